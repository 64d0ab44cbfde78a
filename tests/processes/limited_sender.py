"""A process that creates and confirms as fast as the shared limits let it, until it is ended."""

import asyncio
import sys
import uuid

from activities.gateway.requests import Request, StripeAccount, confirm_request, create_request
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import open_pool
from activities.ledger.limits import LimitLedger
from activities.limiter import Endpoint, SharedLimiter
from workflows.domain.answer import Answer
from workflows.domain.keys import ChargeId, IdempotencyKey, Operation

ACCOUNT = StripeAccount("acct_sim", connected=False)
CUSTOMER, CARD = "cus_limited", "pm_card_visa_limited"
AT_ONCE = 25


class Sender:
    """One process's gateway and limiter. Its first answer is announced on standard output."""

    def __init__(self, gateway: StripeGateway, limiter: SharedLimiter) -> None:
        self._gateway = gateway
        self._limiter = limiter
        self._is_announced = False

    async def send_all(self) -> None:
        """Create and confirm, one after the other, without end."""
        while True:
            charge_id = uuid.uuid4().hex
            key = IdempotencyKey(f"create_{charge_id}_v1")
            answer = await self._send(Operation.CREATE, _create(charge_id, key), key)
            if answer.payment_intent is not None:
                confirm = confirm_request(answer.payment_intent.id, CARD)
                await self._send(Operation.CONFIRM, confirm, IdempotencyKey(f"confirm_{charge_id}_v1"))

    async def _send(self, operation: Operation, request: Request, key: IdempotencyKey) -> Answer:
        await self._limiter.acquire(Endpoint(operation))
        answer = await self._gateway.post(
            operation, account=ACCOUNT, path=request.path, parameters=request.parameters, key=key
        )
        if not self._is_announced:
            self._is_announced = True
            print("sending", flush=True)
        if answer.http_status == 429:
            self._limiter.slow_down(
                Endpoint(operation),
                retry_after_seconds=answer.retry_after_seconds,
                reason=answer.rate_limited_reason,
            )
        return answer


def _create(charge_id: str, key: IdempotencyKey) -> Request:
    return create_request(
        amount_minor=1_250,
        currency="usd",
        customer=CUSTOMER,
        payment_method=CARD,
        charge_id=ChargeId(charge_id),
        create_key=key,
        period="2031-03",
        line="base",
        run="run_1",
    )


async def main(database_url: str, url: str, rate_per_second: str) -> None:
    """Send until death."""
    async with (
        open_pool(database_url, connections=4) as pool,
        StripeGateway(api_key="sk_test_synthetic", api_base=url, connections=2 * AT_ONCE) as gateway,
        asyncio.TaskGroup() as group,
    ):
        ledger = LimitLedger(pool, record_grants=True)
        limiter = SharedLimiter(ledger, ACCOUNT.id, rate_per_second=float(rate_per_second))
        sender = Sender(gateway, limiter)
        for _ in range(AT_ONCE):
            group.create_task(sender.send_all())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
