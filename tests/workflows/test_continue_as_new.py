import asyncio
from collections import Counter

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from tests.workflows.conftest import SUGGESTED_AT_EVENTS
from tests.workflows.fake_ledger import LINES_PER_SLICE, FakeLedger
from tests.workflows.stage import RunHandle, Stage, count, count_scheduled, finish, progress_once, tick

# After the suggestion only what is in flight still adds events.
EVENTS_MAX = SUGGESTED_AT_EVENTS + 40


def assert_continued(histories: list[WorkflowHistory], *, executions_min: int) -> None:
    """Each history is short, and each execution but the last ends by continuing as new."""
    assert len(histories) >= executions_min
    assert max(len(history.events) for history in histories) <= EVENTS_MAX
    last_events = [history.events[-1].event_type for history in histories]
    assert set(last_events[:-1]) == {EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW}
    assert last_events[-1] == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


async def tick_until_closed(handle: RunHandle) -> int:
    """Tick without a pause until the run has closed, and return how many ticks were answered."""
    answered = 0
    while True:
        try:
            progress = await tick(handle)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return answered
        assert progress.run_id == handle.id
        answered += 1


async def test_no_slice_is_lost_or_repeated(restless_stage: Stage, ledger: FakeLedger) -> None:
    """Over many executions every slice is charged once, and the counters go on where they were."""
    ledger.slices = 24
    handle = await restless_stage.start(slices_at_once=3)
    report = await finish(handle)
    assert report.phase == "closed"
    assert Counter(ledger.slices_begun) == Counter(range(24))
    assert_continued(await restless_stage.histories(handle), executions_min=4)
    progress = await progress_once(handle, lambda _progress: True)
    assert (progress.slices, progress.slices_done, progress.settled) == (24, 24, 24 * LINES_PER_SLICE)


async def test_the_lock_and_the_plan_are_made_once(restless_stage: Stage, ledger: FakeLedger) -> None:
    """A later execution does not lock or plan again."""
    ledger.slices = 12
    await finish(await restless_stage.start(slices_at_once=3))
    assert (ledger.calls["lock_run"], ledger.calls["plan_run"], ledger.calls["close_run"]) == (1, 1, 1)


async def test_a_slice_that_stays_halted_does_not_grow_the_history(
    restless_stage: Stage, ledger: FakeLedger
) -> None:
    """A slice that is halted for long moves to the next execution instead of keeping this one alive."""
    ledger.slices, ledger.halts = 5, {1: ["401 invalid_api_key"] * 12}
    handle = await restless_stage.start(slices_at_once=2)
    answered, report = await asyncio.gather(tick_until_closed(handle), finish(handle))
    assert report.phase == "closed"
    assert answered > 0
    assert Counter(ledger.slices_begun) == Counter({0: 1, 1: 13, 2: 1, 3: 1, 4: 1})
    assert Counter(ledger.slices_charged) == Counter(range(5))
    histories = await restless_stage.histories(handle)
    assert max(count_scheduled(history, "charge_slice") for history in histories) <= 8
    progress = await progress_once(handle, lambda _progress: True)
    assert (progress.slices_done, progress.settled) == (5, 5 * LINES_PER_SLICE)


async def test_a_long_settle_loop_continues_as_new(restless_stage: Stage, ledger: FakeLedger) -> None:
    """A backlog that is due at once does not grow one history without end, and its counts are carried."""
    ledger.due_seconds, ledger.settled_at_a_time_max = [0.0] * 12, 1
    handle = await restless_stage.start()
    await finish(handle)
    assert ledger.calls["settle_due"] == 12
    assert ledger.calls["begin_settling"] == 1
    assert_continued(await restless_stage.histories(handle), executions_min=4)
    progress = await progress_once(handle, lambda _progress: True)
    assert (progress.phase, progress.settled) == ("close", 2 * LINES_PER_SLICE + 12)


async def test_no_tick_is_cut_off(restless_stage: Stage, ledger: FakeLedger) -> None:
    """Under a stream of ticks every one that an execution accepted is answered before it ends."""
    ledger.slices = 24
    handle = await restless_stage.start(slices_at_once=3)
    answered, _report = await asyncio.gather(tick_until_closed(handle), finish(handle))
    histories = await restless_stage.histories(handle)
    assert len(histories) >= 4
    accepted = [count(one, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED) for one in histories]
    completed = [count(one, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED) for one in histories]
    assert accepted == completed
    assert sum(accepted) == answered
    assert Counter(ledger.slices_charged) == Counter(range(24))
