"""What a run does after its charging, over days: its timers, and all that may happen to it meanwhile."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.client import WorkflowHistory
from temporalio.testing import TimeSkipper, TimeSkippingConfig

from deploy.temporal_server import TemporalServer
from tests.conftest import drive
from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.fakes import fake_activities
from tests.workflows.stage import (
    WHO,
    Stage,
    build_worker,
    connect,
    count_scheduled,
    decide,
    finish,
    open_stage,
    progress_once,
    refusal,
    tick,
)
from tests.workflows.test_continue_as_new import assert_continued
from workflows.billing_run import BillingRun
from workflows.contracts import CapRaise, HoldKind, Timing
from workflows.domain.retry_policy import DEFAULT_POLICY, RetryRule
from workflows.follow_up_contracts import FollowedUp

DAY = 86_400.0
ONLY_A_TICK_WAKES = Timing.PRODUCTION


def timers(history: WorkflowHistory) -> list[float]:
    """Return the seconds of every timer that a history started."""
    return [
        event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta().total_seconds()
        for event in history.events
        if event.HasField("timer_started_event_attributes")
    ]


@pytest.fixture(scope="module")
def skipping_server() -> Iterator[TemporalServer]:
    """A Temporal server that lets workflows skip the time that they only wait."""
    with tempfile.TemporaryDirectory(prefix="chargeonce-skipping-") as directory:
        server = TemporalServer(
            Path(directory),
            headless=True,
            durable=False,
            dynamic_config={"frontend.WorkflowTimeSkippingEnabled": "true"},
        )
        drive(server.start())
        try:
            yield server
        finally:
            drive(server.stop())


@pytest.fixture
async def skipping_stage(
    skipping_server: TemporalServer, task_queue: str, ledger: FakeLedger
) -> AsyncIterator[Stage]:
    """A worker over `ledger` on that server, and a client whose workflows skip."""
    client = await connect(skipping_server.address)
    skipper = TimeSkipper(client, config=TimeSkippingConfig(disable_propagation=True))
    async with build_worker(client, task_queue, fake_activities(ledger)):
        yield Stage(skipper.client, task_queue, ledger)


def follow_temporal(ledger: FakeLedger) -> None:
    """Let the ledger's days be those of the workflow, from its first look at them on."""
    began: list[float] = []

    def tell_time() -> float:
        now = activity.info().current_attempt_scheduled_time.timestamp()
        began.append(now)
        return now - began[0]

    ledger.tell_time = tell_time


@pytest.mark.parametrize(
    "rule",
    [*(rule for rule in DEFAULT_POLICY.rules if rule.retry_after_days), DEFAULT_POLICY.otherwise],
    ids=lambda rule: rule.name,
)
async def test_the_timers_are_as_long_as_the_policy_says(
    skipping_stage: Stage, ledger: FakeLedger, rule: RetryRule
) -> None:
    """One timer for each wait, from the decline to the first retry and on to the next: nothing polls."""
    days = [float(day) for day in rule.retry_after_days]
    ledger.waits = [[day * DAY for day in days]]
    follow_temporal(ledger)
    handle = await skipping_stage.start(timing=ONLY_A_TICK_WAKES)
    assert (await finish(handle)).phase == "closed"
    (history,) = await skipping_stage.histories(handle)
    gaps = [later - earlier for earlier, later in zip([0.0, *days], days, strict=False)]
    assert [round(seconds / DAY, 3) for seconds in timers(history)] == gaps
    assert ledger.followed_up_at == [day * DAY for day in days]


async def test_a_customer_is_asked_about_daily(skipping_stage: Stage, ledger: FakeLedger) -> None:
    """The slow timer of a hand-over: a day each, and a history that three weeks of it leave small."""
    ledger.waits = [[day * DAY for day in range(1, 6)]]
    follow_temporal(ledger)
    handle = await skipping_stage.start(timing=ONLY_A_TICK_WAKES)
    await finish(handle)
    (history,) = await skipping_stage.histories(handle)
    assert {round(seconds / DAY, 3) for seconds in timers(history)} == {1.0}
    assert count_scheduled(history, "follow_up_due") == 5
    assert len(history.events) * DEFAULT_POLICY.customer_days / 5 < 1_000


async def test_a_run_with_nothing_to_wait_for_closes_at_once(stage: Stage, ledger: FakeLedger) -> None:
    """There is no phase of retries where nothing can be retried."""
    assert (await finish(await stage.start())).phase == "closed"
    assert ledger.calls["plan_follow_ups"] == 1
    assert ledger.calls["read_follow_ups_due"] == 0


async def test_a_tick_wakes_a_run_that_waits(stage: Stage, ledger: FakeLedger) -> None:
    """Its timer is days long: a moved clock is seen at once after a tick, and not before."""
    ledger.waits = [[3 * DAY, 5 * DAY]]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    progress = await progress_once(handle, lambda one: one.waiting_until_epoch_seconds is not None)
    assert (progress.phase, progress.waiting_until_epoch_seconds) == ("retry", 3 * DAY)
    for _ in range(2):
        ledger.move_clock(3 * DAY)
        await tick(handle)
        await progress_once(handle, lambda _: True)
    await ledger.until(lambda: ledger.calls["follow_up_due"] == 2)
    assert (await finish(handle)).phase == "closed"


async def test_charges_in_flight_are_settled_before_anything_else(stage: Stage, ledger: FakeLedger) -> None:
    """A retry without an answer is looked up first, and the run does not close over it."""
    ledger.waits = [[0.0]]
    ledger.follow_up_halts = [FollowedUp()]
    handle = await stage.start()
    await ledger.until(lambda: ledger.calls["follow_up_due"] == 1)
    ledger.due_seconds.append(0.0)
    assert (await finish(handle)).phase == "closed"
    assert ledger.calls["settle_due"] == 1


async def test_a_pause_over_a_retry(stage: Stage, ledger: FakeLedger) -> None:
    """A held run sends no retry; it goes on where it was when it is resumed."""
    ledger.waits = [[3 * DAY]]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda one: one.phase == "retry")
    await decide(handle, "pause")
    ledger.move_clock(4 * DAY)
    await tick(handle)
    await progress_once(handle, lambda one: one.hold is HoldKind.PAUSED)
    assert ledger.calls["follow_up_due"] == 0
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert ledger.followed_up_at == [3 * DAY]


async def test_a_cancel_ends_the_waiting(stage: Stage, ledger: FakeLedger) -> None:
    """A run that waits for weeks ends within a moment when somebody cancels it, and then decides nothing."""
    ledger.waits = [[3 * DAY], [20 * DAY]]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda one: one.phase == "retry")
    await decide(handle, "cancel")
    assert (await finish(handle)).phase == "closed"
    assert ledger.calls["follow_up_due"] == 1


async def test_credentials_that_are_refused_hold_it(stage: Stage, ledger: FakeLedger) -> None:
    """A retry that Stripe does not let in holds the run for a person, like any first send."""
    ledger.waits = [[0.0]]
    ledger.follow_up_halts = [FollowedUp(halted="401", halted_kind=HoldKind.BREAKER)]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda one: one.hold is HoldKind.BREAKER)
    assert ledger.calls["follow_up_due"] == 1
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


async def test_silence_closes_its_breaker_by_itself(stage: Stage, ledger: FakeLedger) -> None:
    """After a while it is tried again without anybody."""
    ledger.waits = [[0.0]]
    ledger.follow_up_halts = [
        FollowedUp(halted="no answer", halted_kind=HoldKind.BREAKER, closes_by_itself=True)
    ]
    handle = await stage.start()
    assert (await finish(handle)).phase == "closed"
    assert ("breaker_closed", "rule") in ledger.events


async def test_days_of_ticks_continue_as_new(restless_stage: Stage, ledger: FakeLedger) -> None:
    """Many looks make many short histories, each of which goes on where the one before was."""
    ledger.waits = [[0.0] for _ in range(3)] + [[float(second) / 10 for second in range(12)]]
    handle = await restless_stage.start()
    await finish(handle)
    assert ledger.calls["plan_follow_ups"] == 1
    assert len(ledger.followed_up_at) == 15
    assert_continued(await restless_stage.histories(handle), executions_min=2)


async def test_a_worker_may_be_replaced_meanwhile(
    temporal_server: TemporalServer, task_queue: str, ledger: FakeLedger
) -> None:
    """A deploy between two retries: another worker replays the run and goes on."""
    ledger.waits = [[3 * DAY, 5 * DAY]]
    async with open_stage(temporal_server.address, task_queue, ledger) as stage:
        handle = await stage.start(timing=ONLY_A_TICK_WAKES)
        await progress_once(handle, lambda one: one.waiting_until_epoch_seconds is not None)
    ledger.move_clock(6 * DAY)
    async with open_stage(temporal_server.address, task_queue, ledger):
        await asyncio.wait_for(tick(handle), 30)
        assert (await finish(handle)).phase == "closed"
    assert len(ledger.followed_up_at) == 2


async def test_a_temporal_that_restarts_keeps_the_timer(
    tmp_path: Path, task_queue: str, ledger: FakeLedger
) -> None:
    """The wait is in Temporal's own store: after a kill it is still there, with what it waits for."""
    server = TemporalServer(tmp_path, headless=True)
    await server.start()
    try:
        ledger.waits = [[3 * DAY]]
        async with open_stage(server.address, task_queue, ledger) as stage:
            handle = await stage.start(timing=ONLY_A_TICK_WAKES)
            await progress_once(handle, lambda one: one.waiting_until_epoch_seconds is not None)
        server.kill()
        await server.start()
        ledger.move_clock(4 * DAY)
        async with open_stage(server.address, task_queue, ledger) as stage:
            handle = stage.client.get_workflow_handle_for(BillingRun.run, handle.id)
            await asyncio.wait_for(tick(handle), 30)
            assert (await finish(handle)).phase == "closed"
    finally:
        await server.stop()


async def test_a_run_that_was_retrying_is_recovered(stage: Stage, ledger: FakeLedger) -> None:
    """A lost workflow is no lost retry: the new one goes on with what the ledger waits for."""
    ledger.phase, ledger.waits = "retrying", [[0.0]]
    handle = await stage.start(recovered_owner="the old one")
    assert (await finish(handle)).phase == "closed"
    assert (ledger.calls["charge_slice"], ledger.calls["follow_up_due"]) == (0, 1)


async def test_a_cap_may_still_be_raised(stage: Stage, ledger: FakeLedger) -> None:
    """Decisions go on being taken, and refused, while a run waits."""
    ledger.waits = [[3 * DAY]]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda one: one.phase == "retry")
    nothing = CapRaise(who=WHO, reason="late", caps_minor={})
    assert "no currency was named" in await refusal(handle, "raise_cap", nothing)
    more = CapRaise(who=WHO, reason="a later retry needs it", caps_minor={"usd": 2_000})
    assert (await decide(handle, "raise_cap", more)).phase == "retrying"
    await decide(handle, "cancel")
    await finish(handle)
