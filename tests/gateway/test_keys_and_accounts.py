"""No POST without an explicit key, no call without an account."""

import inspect
from collections.abc import Callable

import pytest

from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from tests.gateway.through_proxy import direct_only
from tests.gateway.till import ACCOUNT, CREATE, create, create_key, gateway_at, open_till
from tests.gateway.wire import answering, http, raw_server
from workflows.domain.errors import InvariantViolation, RefusedToStart
from workflows.domain.keys import IdempotencyKey, Operation

CONNECTED = StripeAccount("acct_connected", connected=True)


@pytest.mark.parametrize(
    "key",
    ["", None, "x", "confirm_x_v1", "create_" + "x" * 249, "create_a b", "create_a\r\nX: y", "create_é"],
)
async def test_a_bad_key_is_refused_before_anything_leaves(key: str | None) -> None:
    """An empty, missing, too long or foreign key stops here: the SDK would make up a random one."""
    request = create()
    async with open_till() as till:
        with pytest.raises(InvariantViolation):
            await till.gateway.post(
                CREATE,
                account=ACCOUNT,
                path=request.path,
                parameters=request.parameters,
                key=IdempotencyKey(key),  # type: ignore[arg-type] # what a bug would pass
            )
        assert till.sim.requests == []


async def test_the_longest_key_passes() -> None:
    """255 characters are Stripe's limit, and they are enough."""
    request = create()
    async with open_till() as till:
        till.seed()
        answer = await till.gateway.post(
            CREATE,
            account=ACCOUNT,
            path=request.path,
            parameters=request.parameters,
            key=IdempotencyKey("create_" + "x" * 248),
        )
        assert answer.succeeded
        assert till.sim.requests[0].key == "create_" + "x" * 248


@pytest.mark.parametrize("name", ["idempotency_key", "headers", "stripe_account", "api_key", "base"])
async def test_parameters_can_t_reach_the_sdk_s_options(name: str) -> None:
    """A parameter with the name of an SDK option would vanish from the body: it is refused."""
    async with open_till() as till:
        with pytest.raises(InvariantViolation):
            await till.create(extra={name: "x"})
        assert till.sim.requests == []


async def test_v2_paths_are_refused() -> None:
    """Stripe's v2 re-executes failed requests under the same key, so the window rule does not hold there."""
    async with gateway_at("http://127.0.0.1:9") as gateway:
        with pytest.raises(InvariantViolation):
            await gateway.post(
                CREATE, account=ACCOUNT, path="/v2/payment_intents", parameters={}, key=create_key()
            )


@pytest.mark.parametrize("account_id", ["", "acct 1", "acct_1\r\nX: y", "acct/1"])
def test_an_account_that_can_t_be_a_header_is_refused(account_id: str) -> None:
    """Account ids become a header's value."""
    with pytest.raises(InvariantViolation):
        StripeAccount(account_id, connected=False)


def test_no_call_can_be_made_without_an_account() -> None:
    """Every call but `retrieve_account`, which asks for it, takes the account without a default."""
    calls: list[Callable[..., object]] = [
        StripeGateway.post,
        StripeGateway.retrieve_payment_intent,
        StripeGateway.list_payment_intents,
        StripeGateway.scan_payment_intents,
        StripeGateway.list_events,
        StripeGateway.payment_method_of,
    ]
    for call in calls:
        account = inspect.signature(call).parameters["account"]
        assert account.annotation is StripeAccount
        assert account.default is inspect.Parameter.empty


@direct_only("behind the proxy the account is the vault key's, and naming another is refused")
async def test_a_connected_account_is_named_on_every_call() -> None:
    """POSTs and GETs alike carry `Stripe-Account`, so two accounts never see each other's objects."""
    async with open_till() as till:
        till.sim.seed("cus_1", "pm_card_visa_1", account=CONNECTED.id)
        request = create()
        answer = await till.gateway.post(
            CREATE, account=CONNECTED, path=request.path, parameters=request.parameters, key=create_key()
        )
        assert answer.payment_intent is not None
        intent_id = answer.payment_intent.id
        seen = await till.gateway.retrieve_payment_intent(CONNECTED, intent_id, started_epoch_seconds=0.0)
        unseen = await till.gateway.retrieve_payment_intent(ACCOUNT, intent_id, started_epoch_seconds=0.0)
        assert [intent.id for intent in seen.payment_intents] == [intent_id]
        assert seen.complete
        assert unseen.payment_intents == ()
        assert not unseen.complete
        assert {row.account for row in till.sim.requests[:2]} == {CONNECTED.id}


async def test_the_account_behind_the_key_is_told() -> None:
    """At the start, the gateway says whose key it holds."""
    async with open_till(account="acct_mine") as till:
        assert await till.gateway.retrieve_account() == "acct_mine"


async def test_a_key_that_stripe_refuses_is_a_clear_error() -> None:
    """Nothing begins with a revoked key, and the error says what Stripe said."""
    async with open_till(revoked=True) as till:
        with pytest.raises(RefusedToStart, match=r"HTTP 401.*Invalid API Key"):
            await till.gateway.retrieve_account()


async def test_an_account_answer_that_is_none_is_a_clear_error() -> None:
    """A wrong address answers something else: nothing begins."""
    for body in (b"<html>", b"{}", b'{"id": 7}'):
        async with raw_server(answering(http("200 OK", body))) as wire, gateway_at(wire.url) as gateway:
            with pytest.raises(RefusedToStart):
                await gateway.retrieve_account()


@pytest.mark.parametrize("operation", Operation)
async def test_each_operation_takes_only_its_own_keys(operation: Operation) -> None:
    """A confirm under a create key would be Stripe's `idempotency_error` at best."""
    async with gateway_at("http://127.0.0.1:9") as gateway:
        for other in Operation:
            if other is operation:
                continue
            with pytest.raises(InvariantViolation):
                await gateway.post(
                    operation,
                    account=ACCOUNT,
                    path="/v1/payment_intents",
                    parameters={},
                    key=IdempotencyKey(f"{other.value}_x_v1"),
                )
