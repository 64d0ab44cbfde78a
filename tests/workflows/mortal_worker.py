"""A worker process over fakes that dies by SIGKILL when it begins slice 1: `mortal_worker ADDRESS QUEUE`."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from temporalio import activity

from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.fakes import FakeChargeActivities, FakeRunActivities
from tests.workflows.stage import build_worker, connect
from workflows.contracts import Progress, Slice

FATAL_SLICE = 1


class MortalChargeActivities(FakeChargeActivities):
    """Charges slices until the fatal one."""

    @activity.defn(name="charge_slice")
    async def charge_slice(self, work: Slice) -> Progress:
        """Die in the fatal slice, as a machine does: without a word."""
        if work.slice_no == FATAL_SLICE:
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().charge_slice(work)


async def work(address: str, task_queue: str) -> None:
    """Work until death."""
    ledger = FakeLedger()
    runs, charges = FakeRunActivities(ledger), MortalChargeActivities(ledger)
    activities: list[Callable[..., Any]] = [runs.lock_run, runs.plan_run, charges.charge_slice]
    async with build_worker(await connect(address), task_queue, activities):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
