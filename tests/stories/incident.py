"""What goes wrong in the drill: processes that die, webhooks that are lost, and hands where none belong."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import stripe

from activities.missed_events import TYPES
from deploy.devstack import DevStack
from deploy.postgres import DATABASE
from deploy.stripe_sim.client import call_sim

CHARGE = "chargeonce_charge"  # the metadata key that says which charge a PaymentIntent is for
LATE_SECONDS = 1_800.0
EVERY_NTH_CONFIRM_IS_LATE = 25
# No trigger, no check of a state machine: what somebody with the superuser's password can do to a row.
ALTERED_AMOUNT = "UPDATE charges SET amount_minor = amount_minor + 100 WHERE charge_id = $1"
ALTERED_STATE = "UPDATE charges SET state = 'declined' WHERE charge_id = $1"
SOME_PAID = """
SELECT charge_id, customer, payment_intent, amount_minor, currency
  FROM charges WHERE run_id = $1 AND state = 'succeeded' ORDER BY charge_id LIMIT 3
"""
SETTINGS = {"webhook_concurrency": 16, "webhook_retry_seconds": [60.0, 600.0, 1_800.0]}
FAULTS = {
    "faults": [
        {
            "name": "rolled forward later",
            "match": {"path": "^/v1/payment_intents/.*/confirm", "nth": EVERY_NTH_CONFIRM_IS_LATE},
            "effect": {"kind": "late", "seconds": LATE_SECONDS},
        }
    ],
    "webhooks": [{"name": "a third is lost", "match": {"probability": 1 / 3}, "effect": {"kind": "drop"}}],
}


@dataclass
class Incident:
    """A stack with a webhook receiver, and what was done to it. Amounts in minor units."""

    stack: DevStack
    client: stripe.StripeClient
    paid: list[Mapping[str, Any]] = field(default_factory=list)

    @property
    def sim_url(self) -> str:
        """Where the simulator is."""
        return self.stack.info.stripe_sim_url

    def kill_both(self) -> tuple[int, int]:
        """End worker and receiver with SIGKILL, one right after the other; the pids that they had."""
        assert self.stack.web is not None
        worker, web = self.stack.workers[0].pid, self.stack.web.pid
        assert worker is not None
        assert web is not None
        os.kill(worker, signal.SIGKILL)
        os.kill(web, signal.SIGKILL)
        return worker, web

    async def start_both(self) -> None:
        """Start worker and receiver again, as whoever is on call would."""
        assert self.stack.web is not None
        await self.stack.web.start()
        await self.stack.restart_worker(0)

    async def pay_twice(self, paid: Mapping[str, Any]) -> str:
        """Charge a customer a second time by hand, with a copy of the first one's metadata."""
        first = await self.client.v1.payment_intents.retrieve_async(paid["payment_intent"])
        second = await self.client.v1.payment_intents.create_async(
            {
                "amount": first.amount,
                "currency": first.currency,
                "customer": str(first.customer),
                "payment_method": str(first.payment_method),
                "confirm": True,
                "off_session": True,
                "metadata": first.metadata.to_dict(),
            },
            {"idempotency_key": "typed by hand"},
        )
        assert second.status == "succeeded"
        return second.id

    async def alter(self, statement: str, charge_id: str) -> None:
        """Change a row of the ledger behind everybody's back."""
        connection = await self.stack.postgres.connect_superuser(DATABASE)
        try:
            await connection.execute("SET session_replication_role = replica")
            assert await connection.execute(statement, charge_id) == "UPDATE 1"
        finally:
            await connection.close()

    async def lost_events(self, *, before: datetime) -> set[str]:
        """Return the ids of Stripe's older events about our payments that the receiver was never sent."""
        lost: set[str] = set()
        kept = await self._kept()
        listed = await self.client.v1.events.list_async(
            {"limit": 100, "types": list(TYPES), "created": {"lt": int(before.timestamp())}}
        )
        async for event in listed.auto_paging_iter():
            ours = CHARGE in (event.data.object.to_dict().get("metadata") or {})
            if ours and event.id not in kept:
                lost.add(event.id)
        return lost

    async def _kept(self) -> set[str]:
        connection = await self.stack.postgres.connect_superuser(DATABASE)
        try:
            return {row["event_id"] for row in await connection.fetch("SELECT event_id FROM inbox_events")}
        finally:
            await connection.close()

    def pending_deliveries(self) -> int:
        """Return how many webhooks are still on their way."""
        return len(call_sim(self.sim_url, "GET", "/_sim/webhooks")["pending"])


@asynccontextmanager
async def incident(stack: DevStack) -> AsyncIterator[Incident]:
    """Yield a stack whose Stripe loses webhooks, and rolls forward some requests that it has answered 500."""
    transport = stripe.AIOHTTPClient(timeout=30, connector=aiohttp.TCPConnector())
    client = stripe.StripeClient(
        stack.info.stripe_secret_key,
        base_addresses={"api": stack.info.stripe_sim_url},
        http_client=transport,
    )
    call_sim(stack.info.stripe_sim_url, "PATCH", "/_sim/settings", SETTINGS)
    call_sim(stack.info.stripe_sim_url, "PUT", "/_sim/faults", FAULTS)
    try:
        yield Incident(stack, client)
    finally:
        await transport.close_async()  # type: ignore[no-untyped-call]  # as the SDK ships it


def write_source(folder: Path, lines: int) -> Path:
    """Write who is billed: two currencies, an amount of its own for each."""
    path = folder / "march.csv"
    rows = [
        f"cus_drill_{n},{'eur' if n % 4 == 0 else 'usd'},{n % 900 + 1}.25,pm_card_visa_drill_{n}"
        for n in range(1, lines + 1)
    ]
    path.write_text("\n".join(["customer,currency,amount,payment_method", *rows]) + "\n")
    return path
