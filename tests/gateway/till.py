"""A gateway at a simulator, with the few moves that the tests make."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from activities.gateway.calls import CallStyle
from activities.gateway.requests import (
    Request,
    StripeAccount,
    cancel_request,
    confirm_request,
    create_request,
)
from activities.gateway.stripe_gateway import StripeGateway
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.gateway.through_proxy import LEDGER_OF_THE_PROXY, proxied
from workflows.domain.answer import Answer, PaymentIntent, Transport
from workflows.domain.keys import IdempotencyKey, Identity, Operation, key_for

API_KEY = "sk_test_4Synthetic8Key0Of15Our23Tests42"
ACCOUNT = StripeAccount("acct_sim", connected=False)
PERIOD, LINE, RUN = "2031-03", "base", "run_1"
GOOD_CARD = "pm_card_visa_1"

CREATE, CONFIRM, CANCEL = Operation.CREATE, Operation.CONFIRM, Operation.CANCEL
DEADLINE_SECONDS = 10.0


@dataclass(frozen=True)
class Till:
    """One gateway and the simulator it talks to."""

    sim: RunningSim
    gateway: StripeGateway
    api_key: str

    def seed(self, card: str = GOOD_CARD, customer: str = "cus_1") -> None:
        """Make the customer and attach the card."""
        self.sim.seed(customer, card)

    async def create(
        self,
        card: str = GOOD_CARD,
        *,
        version: int = 1,
        amount_minor: int = 1_250,
        extra: Mapping[str, object] | None = None,
    ) -> Answer:
        """Send a create."""
        request = create(card, version=version, amount_minor=amount_minor)
        parameters = {**request.parameters, **(extra or {})}
        return await self.send(CREATE, Request(request.path, parameters), create_key(version))

    async def prepare(
        self, card: str = GOOD_CARD, *, version: int = 1, extra: Mapping[str, object] | None = None
    ) -> PaymentIntent:
        """Seed the card, create a PaymentIntent and return it."""
        self.seed(card)
        answer = await self.create(card, version=version, extra=extra)
        assert answer.payment_intent is not None, answer
        return answer.payment_intent

    async def confirm(self, intent_id: str, card: str = GOOD_CARD, *, version: int = 1) -> Answer:
        """Send a confirm."""
        return await self.send(CONFIRM, confirm_request(intent_id, card), confirm_key(version))

    async def cancel(self, intent_id: str) -> Answer:
        """Send a cancel."""
        return await self.send(CANCEL, cancel_request(intent_id), key_for(CANCEL, intent_id, 1))

    async def send(self, operation: Operation, request: Request, key: IdempotencyKey) -> Answer:
        """Send any request."""
        return await self.gateway.post(
            operation, account=ACCOUNT, path=request.path, parameters=request.parameters, key=key
        )

    def fault(self, **effect: object) -> None:
        """Meet every POST from now on with one fault; `place` is before, unless it is given."""
        place = effect.pop("place", "before")
        self.sim.set_faults({"name": "the fault", "place": place, "effect": effect})

    async def wait_for_requests(self, count: int) -> None:
        """Return once so many requests have reached the simulator."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while len(self.sim.requests) < count:  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0)


IDENTITY = Identity.of(ACCOUNT.id, "cus_1", PERIOD, LINE)


def create_key(version: int = 1) -> IdempotencyKey:
    """Return the create key of the test's only charge."""
    return key_for(CREATE, IDENTITY.charge_id, version)


def confirm_key(version: int = 1) -> IdempotencyKey:
    """Return the confirm key of the test's only charge."""
    return key_for(CONFIRM, IDENTITY.charge_id, version)


def create(card: str = GOOD_CARD, *, version: int = 1, amount_minor: int = 1_250) -> Request:
    """Return the create request of the test's only charge."""
    return create_request(
        amount_minor=amount_minor,
        currency="eur",
        customer="cus_1",
        payment_method=card,
        charge_id=IDENTITY.charge_id,
        create_key=create_key(version),
        period=PERIOD,
        line=LINE,
        run=RUN,
    )


@asynccontextmanager
async def open_till(
    call_style: CallStyle = "raw", *, timeout_seconds: float = 10.0, connections: int = 10, **settings: object
) -> AsyncIterator[Till]:
    """Start a simulator with these settings and a gateway at it, or at a proxy before it."""
    async with AsyncExitStack() as parts:
        sim = await parts.enter_async_context(running_sim(**settings))  # type: ignore[arg-type] # the simulator's
        url, api_key, database = sim.url, API_KEY, LEDGER_OF_THE_PROXY.get()
        if database is not None:
            proxy = proxied(
                database, account=sim.simulator.settings.account, stripe_key=API_KEY, stripe_url=url
            )
            url, api_key = await parts.enter_async_context(proxy)
        gateway = gateway_at(
            url, call_style, timeout_seconds=timeout_seconds, connections=connections, api_key=api_key
        )
        yield Till(sim, await parts.enter_async_context(gateway), api_key)


def gateway_at(
    url: str,
    call_style: CallStyle = "raw",
    *,
    timeout_seconds: float = 10.0,
    connections: int = 10,
    api_key: str = API_KEY,
) -> StripeGateway:
    """Return a gateway that talks to `url`."""
    return StripeGateway(
        api_key=api_key,
        api_base=url,
        connections=connections,
        timeout_seconds=timeout_seconds,
        call_style=call_style,
    )


async def post_create(gateway: StripeGateway) -> Answer:
    """Send one create through a bare gateway."""
    request = create()
    return await gateway.post(
        CREATE, account=ACCOUNT, path=request.path, parameters=request.parameters, key=create_key()
    )


def nothing_was_sent(answer: Answer) -> bool:
    """Whether the answer says that no byte left."""
    return answer.transport is Transport.NOT_SENT
