"""The usual way with a workflow engine: one activity per Stripe call. For comparison, not for use."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel, ConfigDict
from temporalio import workflow

from deploy.bench.customers import Due, dues

CALL_SECONDS = timedelta(seconds=60)


class Batch(BaseModel):
    """Some customers of a label, small enough for one workflow's history."""

    model_config = ConfigDict(frozen=True)

    label: str
    first: int
    count: int
    at_once: int

    @property
    def workflow_id(self) -> str:
        """The id of the workflow that charges it."""
        return f"bench-{self.label}-{self.first}"


@workflow.defn(name="BenchChargePerCall")
class ChargePerCall:
    """Charges a batch: an activity that creates, an activity that confirms, a few customers at once."""

    @workflow.run
    async def run(self, batch: Batch) -> int:
        """Return how many succeeded."""
        waiting = iter(dues(batch.label, batch.first + batch.count)[batch.first :])
        succeeded = 0

        async def charge_next() -> None:
            nonlocal succeeded
            for due in waiting:
                succeeded += await _charge(due) == "succeeded"

        await asyncio.gather(*(charge_next() for _ in range(batch.at_once)))
        return succeeded


async def _charge(due: Due) -> str:
    created: str = await workflow.execute_activity(
        "bench_create", due, start_to_close_timeout=CALL_SECONDS, result_type=str
    )
    status: str = await workflow.execute_activity(
        "bench_confirm", args=[created, due], start_to_close_timeout=CALL_SECONDS, result_type=str
    )
    return status
