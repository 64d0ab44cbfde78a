from collections import Counter

import pytest
from temporalio.exceptions import WorkflowAlreadyStartedError

from tests.workflows.fake_ledger import LINES_PER_SLICE, FakeLedger
from tests.workflows.stage import Stage, finish, open_at_once_max, progress_once, tick
from workflows.contracts import Lock, Timing
from workflows.domain.errors import InvalidInput, InvariantViolation, RefusedToStart

HOUR = 3_600.0
# With production timing a wait asks again after ten minutes, so in a test only a tick can end it.
ONLY_A_TICK_WAKES = Timing.PRODUCTION


async def test_a_run_locks_plans_charges_settles_and_closes(stage: Stage, ledger: FakeLedger) -> None:
    """A run with nothing in its way asks for each step once and returns the report of its close."""
    report = await finish(await stage.start())
    assert (report.phase, report.selected, report.counts) == ("closed", 20, {"succeeded": 20})
    assert ledger.calls == Counter(
        lock_run=1, plan_run=1, charge_slice=2, begin_settling=1, read_due=1, plan_follow_ups=1, close_run=1
    )


async def test_a_refused_lock_names_the_owner(stage: Stage, ledger: FakeLedger) -> None:
    """A run that does not get the lock charges nobody and says which run has the period."""
    ledger.held_by = Lock(acquired=False, run_id="billing-run/acct_fake/2031-03/other", phase="charging")
    report = await finish(await stage.start())
    assert (report.phase, report.owner_run) == ("refused", "billing-run/acct_fake/2031-03/other")
    assert report.reason is not None
    assert report.reason.startswith("billing-run/acct_fake/2031-03/other has this period")
    assert ledger.calls == Counter(lock_run=1)


async def test_the_lock_is_taken_in_the_name_of_the_first_execution(stage: Stage, ledger: FakeLedger) -> None:
    """The ledger knows a run by the run id of its first execution, which continue-as-new keeps."""
    handle = await stage.start()
    await finish(handle)
    assert ledger.owners == [handle.first_execution_run_id]


async def test_a_refused_plan_fails_the_run(stage: Stage, ledger: FakeLedger) -> None:
    """A source that can't be billed ends the run with the reason, and no slice is begun."""
    ledger.plan_refused = "row 7: negative amount"
    report = await finish(await stage.start())
    assert (report.phase, report.reason) == ("failed", "row 7: negative amount")
    assert ledger.calls == Counter(lock_run=1, plan_run=1)


async def test_no_error_ends_a_run(stage: Stage, ledger: FakeLedger) -> None:
    """Broken promises and wrong credentials stall a run until they are mended, and then it goes on."""
    ledger.plan_errors = [
        RefusedToStart("this worker charges for another account"),
        InvalidInput("a field that nobody foresaw"),
        InvariantViolation("a promise that does not hold"),
    ]
    assert (await finish(await stage.start())).phase == "closed"
    assert ledger.calls["plan_run"] == 4


async def test_an_empty_plan_closes_at_once(stage: Stage, ledger: FakeLedger) -> None:
    """A source in which nothing is due makes no slice and still closes."""
    ledger.slices = 0
    assert (await finish(await stage.start())).phase == "closed"
    assert ledger.calls["charge_slice"] == 0


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_slices_are_open_than_allowed(stage: Stage, ledger: FakeLedger, at_once: int) -> None:
    """Every slice is charged once, and the history never holds more open slices than `slices_at_once`."""
    ledger.slices = 8
    handle = await stage.start(slices_at_once=at_once)
    await finish(handle)
    assert sorted(ledger.slices_charged) == list(range(8))
    (history,) = await stage.histories(handle)
    assert open_at_once_max(history, "charge_slice") == at_once


async def test_progress_counts_what_the_slices_did(stage: Stage, ledger: FakeLedger) -> None:
    """The progress query tells phase and counters while slices are at work, and after the end."""
    ledger.slices = 3
    ledger.slices_may_end.clear()
    handle = await stage.start(slices_at_once=1)
    await ledger.until(lambda: ledger.calls["charge_slice"] == 1)
    before = await progress_once(handle, lambda progress: progress.phase == "charge")
    assert (before.run_id, before.slices, before.slices_done, before.settled) == (stage.run_id, 3, 0, 0)
    ledger.slices_may_end.set()
    await finish(handle)
    after = await progress_once(handle, lambda _progress: True)
    assert (after.phase, after.slices_done, after.settled) == ("close", 3, 3 * LINES_PER_SLICE)


async def test_a_slice_that_fails_is_tried_again(stage: Stage, ledger: FakeLedger) -> None:
    """A slice whose infrastructure broke twice is repeated by Temporal, and counted once."""
    ledger.failures = {1: 2}
    handle = await stage.start()
    await finish(handle)
    assert Counter(ledger.slices_begun) == Counter({0: 1, 1: 3})
    assert (await progress_once(handle, lambda _progress: True)).settled == 2 * LINES_PER_SLICE


async def test_a_halted_slice_goes_on_after_a_tick(stage: Stage, ledger: FakeLedger) -> None:
    """A slice that halted waits, the run says why, and a tick makes it go on at once."""
    ledger.halts = {0: ["401 invalid_api_key"]}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    waiting = await progress_once(handle, lambda progress: progress.halted is not None)
    assert (waiting.halted, waiting.slices_done) == ("401 invalid_api_key", 0)
    assert ledger.slices_begun == [0]
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.slices_charged == [0, 1]
    assert (await progress_once(handle, lambda _progress: True)).halted is None


async def test_a_halted_slice_goes_on_after_a_bounded_poll(stage: Stage, ledger: FakeLedger) -> None:
    """Nobody has to tick: a halted slice is tried again after the profile's longest poll."""
    ledger.halts = {0: ["401 invalid_api_key"]}
    await finish(await stage.start(timing=Timing.TESTS))
    assert Counter(ledger.slices_begun) == Counter({0: 2, 1: 1})


async def test_a_halted_slice_does_not_hold_up_the_others(stage: Stage, ledger: FakeLedger) -> None:
    """While one slice waits, the rest of the plan is charged, and the run still says that one is halted."""
    ledger.slices, ledger.halts = 4, {0: ["401 invalid_api_key"]}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=2)
    waiting = await progress_once(handle, lambda progress: progress.slices_done == 3)
    assert (waiting.halted, waiting.phase) == ("401 invalid_api_key", "charge")
    await tick(handle)
    await finish(handle)
    assert sorted(ledger.slices_charged) == [0, 1, 2, 3]


async def test_what_is_due_now_is_settled_at_once(stage: Stage, ledger: FakeLedger) -> None:
    """The settle loop goes on without a wait as long as something is due."""
    ledger.due_seconds, ledger.settled_at_a_time_max = [0.0, 0.0, 0.0], 1
    await finish(await stage.start(timing=ONLY_A_TICK_WAKES))
    assert ledger.calls["settle_due"] == 3


async def test_the_settle_loop_follows_the_due_times(stage: Stage, ledger: FakeLedger) -> None:
    """What becomes due soon is settled then and not before, with no tick and no poll in between."""
    ledger.due_seconds = [ledger.now_seconds + 1.5, ledger.now_seconds + 2.5]
    first, second = ledger.due_seconds
    await finish(await stage.start(timing=ONLY_A_TICK_WAKES))
    assert first <= ledger.settled_at_seconds[0] < second <= ledger.settled_at_seconds[1]
    assert ledger.calls["settle_due"] == 2


async def test_a_tick_settles_what_a_moved_clock_made_due(stage: Stage, ledger: FakeLedger) -> None:
    """A run that waits a day says until when; after the clock has moved, a tick makes it settle at once."""
    due = 24 * HOUR
    ledger.due_seconds = [due]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    waiting = await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
    assert (waiting.phase, waiting.waiting_until_epoch_seconds) == ("settle", due)
    ledger.move_clock(25 * HOUR)
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.calls["settle_due"] == 1


async def test_a_tick_before_the_time_settles_nothing(stage: Stage, ledger: FakeLedger) -> None:
    """A tick only makes the run ask; what is not due by the ledger's clock stays as it is."""
    ledger.due_seconds = [24 * HOUR]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
    asked = ledger.calls["read_due"]
    await tick(handle)
    await ledger.until(lambda: ledger.calls["read_due"] == asked + 1)
    await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
    assert ledger.calls["settle_due"] == 0
    ledger.move_clock(25 * HOUR)
    await tick(handle)
    await finish(handle)


async def test_a_moved_clock_is_seen_by_the_poll(stage: Stage, ledger: FakeLedger) -> None:
    """A wait of a day asks again within the profile's longest poll, so a moved clock needs no tick."""
    ledger.due_seconds = [24 * HOUR]
    handle = await stage.start(timing=Timing.TESTS)
    await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
    ledger.move_clock(25 * HOUR)
    assert (await finish(handle)).phase == "closed"


async def test_a_tick_while_the_ledger_answers_is_not_lost(stage: Stage, ledger: FakeLedger) -> None:
    """A tick that comes after the ledger was asked and before its answer still cuts the next wait short."""
    ledger.due_seconds = [24 * HOUR]
    ledger.due_may_be_told.clear()
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await ledger.until(lambda: ledger.calls["read_due"] == 1)
    ledger.move_clock(25 * HOUR)
    await tick(handle)
    ledger.due_may_be_told.set()
    assert (await finish(handle)).phase == "closed"


async def test_a_tick_while_a_slice_halts_is_not_lost(stage: Stage, ledger: FakeLedger) -> None:
    """A tick that comes while a slice is about to halt still makes it go on at once."""
    ledger.halts = {0: ["401 invalid_api_key"]}
    ledger.slices_may_end.clear()
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await ledger.until(lambda: ledger.calls["charge_slice"] == 2)
    await tick(handle)
    ledger.slices_may_end.set()
    assert (await finish(handle)).phase == "closed"


async def test_halted_settling_waits_and_goes_on_after_a_tick(stage: Stage, ledger: FakeLedger) -> None:
    """Settling that halted is not repeated in a hurry: it waits for a tick or the poll."""
    ledger.due_seconds, ledger.settle_halts = [0.0], ["401 invalid_api_key"]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda progress: progress.halted == "401 invalid_api_key")
    assert ledger.calls["settle_due"] == 1
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.calls["settle_due"] == 2


async def test_a_workflow_id_is_used_once(stage: Stage, ledger: FakeLedger) -> None:
    """The same id is refused while its run goes on, and also after it has closed."""
    ledger.slices_may_end.clear()
    handle = await stage.start()
    with pytest.raises(WorkflowAlreadyStartedError):
        await stage.start()
    ledger.slices_may_end.set()
    await finish(handle)
    with pytest.raises(WorkflowAlreadyStartedError):
        await stage.start()
    assert ledger.calls["lock_run"] == 1
