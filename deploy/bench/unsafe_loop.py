"""The loop that a billing run is measured against: two SDK calls per charge, and nothing to make them safe.

No database, no workflow, no key that outlives the process: killed in the middle, it can only be started
again, and then charges everybody whom it had charged before. It sends the same parameters through the same
transport and event loop as the worker does, and imports what the worker imports, so that what is left of the
difference is the price of safety.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any

import stripe
import uvloop

import worker.temporal  # noqa: F401 - the same modules in memory as the worker has
from activities.gateway.calls import STRIPE_VERSION
from deploy.bench.customers import Due, dues
from deploy.bench.jobs import LoopJob, LoopResult


class UnsafeLoop:
    """Charges whoever it is told to, as fast as it can."""

    def __init__(self, job: LoopJob) -> None:
        self._job = job
        self._transport = stripe.AIOHTTPClient()
        self._client = stripe.StripeClient(
            job.secret_key,
            base_addresses={"api": job.url},
            http_client=self._transport,
            max_network_retries=0,
            stripe_version=STRIPE_VERSION,
        )
        self._charge = {"raw": self._charge_raw, "typed": self._charge_typed}[job.call_style]

    async def run(self) -> LoopResult:
        """Warm up, then charge everybody once and say how long that took."""
        job = self._job
        await self._charge_all(dues(f"{job.label}w", job.warm_up_charges))
        began, cpu_began = time.perf_counter(), time.process_time()
        succeeded = await self._charge_all(dues(job.label, job.charges))
        return LoopResult(
            seconds=time.perf_counter() - began,
            cpu_seconds=time.process_time() - cpu_began,
            succeeded=succeeded,
        )

    async def close(self) -> None:
        """Close the connections."""
        transport: Any = self._transport
        await transport.close_async()

    async def _charge_all(self, everybody: list[Due]) -> int:
        waiting = iter(everybody)
        statuses: Counter[str] = Counter()

        async def charge_next() -> None:
            for due in waiting:
                statuses[await self._charge(due)] += 1

        await asyncio.gather(*(charge_next() for _ in range(self._job.at_once)))
        return statuses["succeeded"]

    async def _charge_raw(self, due: Due) -> str:
        created: Any = await self._client.raw_request_async(
            "post", "/v1/payment_intents", **_create_parameters(due)
        )
        path = f"/v1/payment_intents/{created.data['id']}/confirm"
        confirmed: Any = await self._client.raw_request_async("post", path, **_confirm_parameters(due))
        return str(confirmed.data["status"])

    async def _charge_typed(self, due: Due) -> str:
        service: Any = self._client.v1.payment_intents
        created = await service.create_async(_create_parameters(due))
        confirmed = await service.confirm_async(created.id, _confirm_parameters(due))
        return str(confirmed.status)


def _create_parameters(due: Due) -> dict[str, Any]:
    return {
        "amount": due.amount_minor,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
        "currency": "usd",
        "customer": due.customer,
        "metadata": {
            "chargeonce_charge": due.identity,
            "chargeonce_create_key": f"create_{due.identity}_v1",
            "chargeonce_line": "base",
            "chargeonce_period": "2031-01",
            "chargeonce_run": "billing-run/acct_sim/2031-01",
        },
        "payment_method": due.payment_method,
    }


def _confirm_parameters(due: Due) -> dict[str, Any]:
    return {"off_session": True, "payment_method": due.payment_method}


async def _run(job: LoopJob) -> LoopResult:
    loop = UnsafeLoop(job)
    try:
        return await loop.run()
    finally:
        await loop.close()


def main() -> None:
    """Read a job as JSON on standard input, write its result as JSON on standard output."""
    stripe.enable_telemetry = False  # as the gateway has it
    job = LoopJob.model_validate(json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_run(job))
    print(result.model_dump_json())


if __name__ == "__main__":
    main()
