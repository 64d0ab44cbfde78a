"""Public incidents that only whole systems show: the same job run twice, a crash in the middle of a batch."""

import asyncio
import random

import asyncpg
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.crash_points import CrashPoint
from activities.sources.csv_file import sha256_of
from tests.auditor import audit
from tests.crash.world import ACCOUNT, PERIOD, World, expected_counts, outcomes_of
from workflows.billing_run import BillingRun
from workflows.contracts import RunInput, RunReport, RunRequest, Timing
from workflows.domain.retry_policy import NOTHING_AFTERWARDS

LINES = 200
STARTS = 5
SENDING = (
    CrashPoint.CREATE_AFTER_INTENT,
    CrashPoint.CREATE_BEFORE_REQUEST,
    CrashPoint.CREATE_BEFORE_RECORD,
    CrashPoint.CONFIRM_AFTER_INTENT,
    CrashPoint.CONFIRM_BEFORE_REQUEST,
    CrashPoint.CONFIRM_BEFORE_RECORD,
)


async def start(
    world: World, client: Client, source: str, run_id: str
) -> WorkflowHandle[BillingRun, RunReport]:
    """Ask for a run under an id of this test's choice."""
    request = RunRequest(
        account=ACCOUNT,
        period=PERIOD,
        run_id=run_id,
        source=source,
        source_sha256=sha256_of(world.folder / "charges.csv"),
        started_by="an impatient scheduler",
        approve_any=True,
        slice_size=50,
        timing=Timing.TESTS,
        retry_policy=NOTHING_AFTERWARDS,
    )
    return await client.start_workflow(
        BillingRun.run,
        RunInput(request=request),
        id=run_id,
        task_queue=world.task_queue,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
    )


async def test_i10_the_same_job_run_twice(world: World) -> None:
    """Started five times at once and by another product: one run has the period, and charges once."""
    source = str(world.write_source(LINES))
    another = await Client.connect(world.temporal.address, data_converter=pydantic_data_converter)
    asked = await asyncio.gather(
        *(start(world, client, source, world.run_id) for client in (world.client, another) * STARTS),
        start(world, another, source, f"{world.run_id}/other"),
        return_exceptions=True,
    )
    refused = [one for one in asked if isinstance(one, WorkflowAlreadyStartedError)]
    started = [one for one in asked if isinstance(one, WorkflowHandle)]
    assert (len(refused), len(started)) == (2 * STARTS - 1, 2)
    for _ in range(2):
        await world.start_worker()
    reports = {report.phase: report for report in [await world.finish(handle) for handle in started]}
    assert set(reports) == {"closed", "refused"}, world.logs()
    winner = reports["closed"]
    assert reports["refused"].owner_run == winner.run_id
    assert outcomes_of(winner) == expected_counts(LINES)

    movements = len(world.sim.movements)
    with pytest.raises(WorkflowAlreadyStartedError):
        await start(world, another, source, winner.run_id)
    # Asked for once more, it may only take up what nobody paid, once the window of those keys is over.
    again = await start(world, another, source, f"{world.run_id}/r2")
    await world.wait_for_idleness(again)
    await world.cancel(again)
    ended = await world.finish(again)
    assert ended.phase == "closed", ended
    assert "succeeded" not in outcomes_of(ended)
    assert len(world.sim.movements) == movements == expected_counts(LINES)["succeeded"]
    assert world.sim.summary("chargeonce_charge")["double_charges"] == []


@pytest.mark.parametrize(
    ("lines", "kills"),
    [
        pytest.param(60, 2, id="60 lines, 2 kills"),
        pytest.param(
            1_000, 10, id="1000 lines, 10 kills", marks=[pytest.mark.proof, pytest.mark.timeout(600)]
        ),
    ],
)
async def test_i11_a_crash_in_the_middle_of_a_batch(world: World, lines: int, kills: int) -> None:
    """Killed between intent and request or between answer and record, again and again: everybody once."""
    dice = random.Random(11)
    source = world.write_source(lines)
    handle = await world.start_run(source, slice_size=50)
    for _ in range(kills):
        point, nth = dice.choice(SENDING), dice.randrange(1, 20)
        await world.wait_for_death(await world.start_worker(crash_at=f"{point}:{nth}"))
    await world.start_worker()
    report = await world.finish(handle)

    assert outcomes_of(report) == expected_counts(lines)
    posts = sum(request.method == "POST" for request in world.sim.requests)
    assert posts <= 2 * lines + kills * 16
    assert (await audit(world.sim.url, world.database.owner_url)).double_charges == 0
    connection = await asyncpg.connect(world.database.owner_url)
    try:
        owed = await connection.fetchval("SELECT sum(amount_minor) FROM charges")
        paid_minor = await connection.fetchval(
            "SELECT sum(amount_minor) FROM charges WHERE state = 'succeeded'"
        )
    finally:
        await connection.close()
    assert owed == sum(1_000 + number for number in range(lines))
    assert paid_minor == sum(movement.amount for movement in world.sim.movements)
