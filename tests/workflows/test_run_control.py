import asyncio
from collections import Counter

import pytest
from temporalio.client import WorkflowUpdateFailedError

from tests.workflows.fake_ledger import LINES_PER_SLICE, PLAN_HASH, FakeLedger
from tests.workflows.stage import (
    WHO,
    RunHandle,
    Stage,
    decide,
    finish,
    progress_once,
    refusal,
    tick,
)
from workflows.contracts import Approval, Canary, CapRaise, HoldKind, Progress, Timing

ONLY_A_TICK_WAKES = Timing.PRODUCTION
RULE = "rule"
OTHER_HASH = "f" * 64
HOUR = 3_600.0

SILENCE = Progress(halted="no answer", halted_kind=HoldKind.BREAKER, closes_by_itself=True)
CREDENTIALS = Progress(halted="401 invalid_api_key", halted_kind=HoldKind.BREAKER)
DECLINES = Progress(halted="30 of 50", halted_kind=HoldKind.BREAKER, halted_by_declines=True)
CAP = Progress(halted="the cap is reached", halted_kind=HoldKind.CAP)


def approval(plan_hash: str = PLAN_HASH) -> Approval:
    """Return an approval."""
    return Approval(who=WHO, reason="the sums are right", plan_hash=plan_hash)


def higher_cap(cap_minor: int = 2_000) -> CapRaise:
    """Return a decision about the cap of usd."""
    return CapRaise(who=WHO, reason="a late order", caps_minor={"usd": cap_minor})


async def start_mid_run(stage: Stage, ledger: FakeLedger, **asked: object) -> RunHandle:
    """Start a run of four slices, of which the first two are at work and don't end yet."""
    ledger.slices = 4
    ledger.slices_may_end.clear()
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=2, **asked)
    await ledger.until(lambda: ledger.calls["charge_slice"] == 2)
    return handle


# --- approval ----------------------------------------------------------------------------------------------


async def test_a_plan_that_nobody_approved_beforehand_waits_and_charges_nobody(
    stage: Stage, ledger: FakeLedger
) -> None:
    """It says which hash it waits for; ticks don't approve it, and an approval of that hash does, once."""
    ledger.approved = False
    handle = await stage.start()
    waiting = await progress_once(handle, lambda progress: progress.phase == "approve")
    assert waiting.plan_hash == PLAN_HASH
    await tick(handle)
    assert ledger.calls["charge_slice"] == 0
    ledger.slices_may_end.clear()
    stands = await decide(handle, "approve", approval())
    assert (stands.phase, stands.selected, stands.not_started) == ("charging", 20, 20)
    await decide(handle, "approve", approval())
    ledger.slices_may_end.set()
    assert (await finish(handle)).counts == {"succeeded": 20}
    assert ledger.events == [("approved", WHO)]


@pytest.mark.parametrize("approved", [False, True])
async def test_an_approval_of_another_hash_is_refused_by_naming_both(
    stage: Stage, ledger: FakeLedger, *, approved: bool
) -> None:
    """Before any ledger is asked, whether the run waits for an approval or has one."""
    ledger.approved = approved
    ledger.slices_may_end.clear()
    handle = await stage.start()
    await progress_once(handle, lambda progress: progress.plan_hash != "")
    refused = await refusal(handle, "approve", approval(OTHER_HASH))
    assert PLAN_HASH in refused
    assert OTHER_HASH in refused
    assert ledger.calls["approve_run"] == 0
    ledger.slices_may_end.set()
    await decide(handle, "approve", approval())
    await finish(handle)


async def test_nothing_can_be_approved_while_the_plan_is_made(stage: Stage, ledger: FakeLedger) -> None:
    """There is no hash yet, and no cap either; a pause is possible, and holds the run once it is planned."""
    ledger.plan_may_end.clear()
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await ledger.until(lambda: ledger.calls["plan_run"] == 1)
    assert "still being planned" in await refusal(handle, "approve", approval())
    assert "no cap yet" in await refusal(handle, "raise_cap", higher_cap())
    await decide(handle, "pause")
    ledger.plan_may_end.set()
    await progress_once(handle, lambda progress: progress.phase == "charge")
    assert ledger.calls["charge_slice"] == 0
    await decide(handle, "resume")
    await finish(handle)


async def test_a_run_that_has_not_its_period_takes_no_decision(stage: Stage, ledger: FakeLedger) -> None:
    """There is no row yet that the decision could stand in."""
    ledger.lock_may_end.clear()
    handle = await stage.start()
    await ledger.until(lambda: ledger.calls["lock_run"] == 1)
    for update in ("pause", "resume", "cancel"):
        assert "has not taken its period yet" in await refusal(handle, update)
    ledger.lock_may_end.set()
    await finish(handle)


@pytest.mark.parametrize(
    ("update", "decision"),
    [
        ("pause", {"who": WHO, "reason": "a\0b"}),
        ("cancel", {"who": "\x1b[2J", "reason": "why"}),
        ("raise_cap", {"who": WHO, "reason": "why", "caps_minor": {"usd": 2**63}}),
        ("raise_cap", {"who": WHO, "reason": "why", "caps_minor": {"usd": -1}}),
    ],
)
async def test_a_decision_that_no_ledger_could_keep_is_refused_and_holds_up_nothing(
    stage: Stage, ledger: FakeLedger, update: str, decision: dict[str, object]
) -> None:
    """Tried for ever, it would keep every later decision waiting, and the run with them."""
    handle = await start_mid_run(stage, ledger)
    with pytest.raises(WorkflowUpdateFailedError):
        await handle.execute_update(update, decision)
    assert (await decide(handle, "pause")).hold is HoldKind.PAUSED
    await decide(handle, "resume")
    ledger.slices_may_end.set()
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("paused", WHO), ("resumed", WHO)]


async def test_a_pause_of_a_run_that_waits_for_approval_outlasts_it(stage: Stage, ledger: FakeLedger) -> None:
    """Approved and paused, the run charges nobody until it is resumed."""
    ledger.approved = False
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda progress: progress.phase == "approve")
    await decide(handle, "pause")
    assert (await decide(handle, "approve", approval())).hold is HoldKind.PAUSED
    await progress_once(handle, lambda progress: progress.phase == "charge")
    assert ledger.calls["charge_slice"] == 0
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


# --- pause and resume --------------------------------------------------------------------------------------


async def test_a_pause_begins_no_slice_and_says_how_many_remain(stage: Stage, ledger: FakeLedger) -> None:
    """What is at work comes back held and is done again after the resume, before anything new."""
    handle = await start_mid_run(stage, ledger)
    stands = await decide(handle, "pause")
    assert (stands.hold, stands.hold_reason) == (HoldKind.PAUSED, "a good reason")
    assert (stands.selected, stands.settled, stands.in_flight, stands.not_started) == (40, 0, 0, 40)
    assert (await decide(handle, "pause")).hold is HoldKind.PAUSED
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    await tick(handle)
    assert sorted(ledger.slices_begun) == [0, 1]
    held = await progress_once(handle, lambda _progress: True)
    assert (held.hold, held.hold_reason, held.slices_done) == (HoldKind.PAUSED, "a good reason", 0)
    assert (await decide(handle, "resume")).hold is None
    assert (await finish(handle)).counts == {"succeeded": 40}
    assert sorted(ledger.slices_begun[2:4]) == [0, 1]
    assert Counter(ledger.slices_charged) == Counter(range(4))
    assert ledger.events == [("paused", WHO), ("resumed", WHO)]


async def test_a_resume_fills_the_places_that_are_free_at_once(stage: Stage, ledger: FakeLedger) -> None:
    """It does not wait for a slice that is still at work from before the pause."""
    ledger.slices = 4
    ledger.slow_slices_may_end.clear()
    ledger.slow_slices = {0}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=2)
    await ledger.until(lambda: ledger.calls["charge_slice"] == 4)
    assert sorted(ledger.slices_charged) == [1, 2, 3]
    await decide(handle, "pause")
    await decide(handle, "resume")
    ledger.slow_slices_may_end.set()
    assert (await finish(handle)).phase == "closed"


async def test_what_is_in_flight_is_settled_while_the_run_is_held(stage: Stage, ledger: FakeLedger) -> None:
    """As it becomes due by the ledger's clock, and nothing else is carried on."""
    ledger.due_seconds = [HOUR, 3 * HOUR]
    handle = await start_mid_run(stage, ledger)
    await decide(handle, "pause")
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    ledger.move_clock(2 * HOUR)
    await tick(handle)
    await ledger.until(lambda: len(ledger.settled_at_seconds) == 1)
    assert ledger.slices_charged == []
    ledger.move_clock(2 * HOUR)
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert len(ledger.settled_at_seconds) == 2


async def test_a_held_run_in_which_nothing_is_open_closes(stage: Stage, ledger: FakeLedger) -> None:
    """There is nothing left that a hold could hold."""
    ledger.due_seconds = [HOUR]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    await progress_once(handle, lambda progress: progress.waiting_until_epoch_seconds is not None)
    await decide(handle, "pause")
    ledger.move_clock(2 * HOUR)
    await tick(handle)
    assert (await finish(handle)).phase == "closed"


async def test_a_held_run_whose_slices_have_nothing_open_closes(stage: Stage, ledger: FakeLedger) -> None:
    """A slice that is still to be looked at again does not keep it, nor the worker busy."""
    ledger.phase, ledger.hold, ledger.hold_reason = "charging", HoldKind.PAUSED, "before it died"
    ledger.slices_charged = [0, 1]
    handle = await stage.start(recovered_owner="the old one")
    assert (await finish(handle)).phase == "closed"
    assert (ledger.slices_begun, ledger.calls["read_due"]) == ([], 2)


async def test_a_hold_that_the_ledger_lifted_is_noticed_at_the_next_tick(
    stage: Stage, ledger: FakeLedger
) -> None:
    """The workflow's copy is only a copy: on waking it asks the ledger."""
    handle = await start_mid_run(stage, ledger)
    await decide(handle, "pause")
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    ledger.hold = ledger.hold_reason = None
    await tick(handle)
    assert (await finish(handle)).phase == "closed"


async def test_a_slice_that_knows_of_the_hold_first_makes_the_run_ask(
    stage: Stage, ledger: FakeLedger
) -> None:
    """Whoever holds the run in the ledger past its workflow holds it all the same."""
    handle = await start_mid_run(stage, ledger)
    ledger.hold, ledger.hold_reason = HoldKind.PAUSED, "written by hand"
    ledger.slices_may_end.set()
    held = await progress_once(handle, lambda progress: progress.hold is not None)
    assert held.hold_reason == "written by hand"
    assert sorted(ledger.slices_begun) == [0, 1]
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


async def test_a_pause_and_a_resume_at_once_end_as_the_ledger_took_them(
    stage: Stage, ledger: FakeLedger
) -> None:
    """Decisions are taken one after the other, so the run never believes what the ledger does not."""
    handle = await start_mid_run(stage, ledger)
    await asyncio.gather(*(decide(handle, update) for update in ("pause", "resume") * 4))
    progress = await progress_once(handle, lambda _progress: True)
    assert progress.hold is ledger.hold
    ledger.slices_may_end.set()
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


# --- cancel ------------------------------------------------------------------------------------------------


async def test_a_cancel_begins_nothing_cancels_what_is_open_and_closes(
    stage: Stage, ledger: FakeLedger
) -> None:
    """Counts stay whole, the report says who canceled and why, and there is no way back."""
    handle = await start_mid_run(stage, ledger)
    stands = await decide(handle, "cancel")
    assert (stands.canceling, stands.selected, stands.not_started) == (True, 40, 40)
    assert (await decide(handle, "cancel")).canceling
    assert "not undone" in await refusal(handle, "resume")
    assert "nothing new starts anyway" in await refusal(handle, "pause")
    assert "is being canceled" in await refusal(handle, "approve", approval())
    ledger.slices_may_end.set()
    report = await finish(handle)
    assert (report.phase, report.counts) == ("closed", {"succeeded": 0, "canceled": 40})
    assert report.reason == "canceled by ops@host: a good reason"
    assert sorted(ledger.slices_begun) == [0, 1]
    assert ledger.events == [("cancel_requested", WHO)]


async def test_a_cancel_ends_the_planning_and_frees_the_period(stage: Stage, ledger: FakeLedger) -> None:
    """Also where the source never answers: the attempt is cut off, and nobody was charged."""
    ledger.plan_may_end.clear()
    handle = await stage.start(timing=Timing.TESTS)
    await ledger.until(lambda: ledger.calls["plan_run"] == 1)
    await decide(handle, "cancel")
    report = await finish(handle)
    assert (report.phase, report.reason) == ("failed", "canceled by ops@host: a good reason")
    assert (ledger.phase, ledger.calls["charge_slice"]) == ("failed", 0)


async def test_a_plan_that_was_made_as_the_cancel_came_is_canceled_line_by_line(
    stage: Stage, ledger: FakeLedger
) -> None:
    """The ledger has the plan, whatever the workflow heard of it, so its lines are accounted for."""
    ledger.phase, ledger.canceling = "planned", True
    report = await finish(await stage.start(recovered_owner="the old one"))
    assert (report.phase, report.counts) == ("closed", {"succeeded": 0, "canceled": 20})


async def test_a_run_that_waits_for_approval_is_canceled(stage: Stage, ledger: FakeLedger) -> None:
    """No slice is ever begun, and the ledger closes it from where it is."""
    ledger.approved = False
    handle = await stage.start()
    await progress_once(handle, lambda progress: progress.phase == "approve")
    await decide(handle, "cancel")
    assert (await finish(handle)).counts == {"succeeded": 0, "canceled": 20}
    assert ledger.calls["charge_slice"] == 0


async def test_a_paused_run_is_canceled(stage: Stage, ledger: FakeLedger) -> None:
    """The hold does not hold up the end."""
    handle = await start_mid_run(stage, ledger)
    await decide(handle, "pause")
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    await decide(handle, "cancel")
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("paused", WHO), ("cancel_requested", WHO)]


async def test_a_cancel_that_meets_broken_credentials_waits_and_goes_on(
    stage: Stage, ledger: FakeLedger
) -> None:
    """A run that is being canceled is not held by a breaker: it tries again after a tick or the poll."""
    ledger.settle_halts = [CREDENTIALS]
    handle = await start_mid_run(stage, ledger)
    await decide(handle, "cancel")
    ledger.slices_may_end.set()
    await progress_once(handle, lambda progress: progress.halted == CREDENTIALS.halted)
    assert ledger.hold is None
    await tick(handle)
    assert (await finish(handle)).phase == "closed"


# --- breaker and cap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("met", "action"), [(CREDENTIALS, "breaker_opened"), (CAP, "cap_reached")])
async def test_what_a_slice_meets_holds_the_run_until_a_person_resumes_it(
    stage: Stage, ledger: FakeLedger, met: Progress, action: str
) -> None:
    """No other slice is begun, the reason is kept, and a tick changes nothing."""
    ledger.slices, ledger.halts = 3, {0: [met]}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    held = await progress_once(handle, lambda progress: progress.hold is not None)
    assert (held.hold, held.hold_reason, held.halted) == (met.halted_kind, met.halted, met.halted)
    for _ in range(2):
        asked = ledger.calls["read_due"]
        await tick(handle)
        await ledger.until(lambda asked=asked: ledger.calls["read_due"] > asked)  # type: ignore[misc]
    assert ledger.slices_begun == [0]
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert ledger.slices_begun == [0, 0, 1, 2]
    assert ledger.events == [(action, RULE), ("resumed", WHO)]


async def test_slices_that_meet_the_same_trouble_hold_the_run_once(stage: Stage, ledger: FakeLedger) -> None:
    """The first of them opens the breaker, and the others find it open."""
    ledger.halts = {0: [CREDENTIALS], 1: [CREDENTIALS]}
    handle = await start_mid_run(stage, ledger)
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["hold_run"] == 2)
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("breaker_opened", RULE), ("resumed", WHO)]


async def test_a_raised_cap_lets_the_run_go_on(stage: Stage, ledger: FakeLedger) -> None:
    """Held at its cap, the run goes on with a higher one, and with a lower one is refused and stays held."""
    ledger.halts = {0: [CAP]}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.CAP)
    assert "never goes down" in await refusal(handle, "raise_cap", higher_cap(1))
    assert "no currency" in await refusal(handle, "raise_cap", CapRaise(who=WHO, reason="r", caps_minor={}))
    assert (await decide(handle, "raise_cap", higher_cap())).hold is None
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("cap_reached", RULE), ("cap_raised", WHO)]


async def test_silence_ends_by_itself_once_stripe_answers(stage: Stage, ledger: FakeLedger) -> None:
    """After the poll what is in flight is asked about; an answer closes the breaker."""
    ledger.slices, ledger.halts, ledger.due_seconds = 3, {0: [SILENCE]}, [0.0, HOUR]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=3)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    assert ledger.calls["settle_due"] == 0
    await tick(handle)
    await ledger.until(lambda: ("breaker_closed", RULE) in ledger.events)
    ledger.move_clock(2 * HOUR)
    await progress_once(handle, lambda progress: progress.phase == "settle")
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("breaker_opened", RULE), ("breaker_closed", RULE)]


async def test_silence_that_goes_on_keeps_the_run_held(stage: Stage, ledger: FakeLedger) -> None:
    """A probe without an answer is no reason to go on, and no second event."""
    ledger.slices, ledger.halts, ledger.due_seconds = 2, {0: [SILENCE]}, [0.0]
    ledger.settle_halts = [SILENCE, SILENCE]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    for probes in (1, 2):
        await tick(handle)
        await ledger.until(lambda probes=probes: ledger.calls["settle_due"] == probes)  # type: ignore[misc]
        assert ledger.events == [("breaker_opened", RULE)]
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("breaker_opened", RULE), ("breaker_closed", RULE)]


async def test_silence_with_nothing_in_flight_is_probed_by_one_slice(
    stage: Stage, ledger: FakeLedger
) -> None:
    """The breaker closes for a single slice; while that meets silence again, no other is begun."""
    ledger.slices, ledger.halts = 4, {0: [SILENCE, SILENCE]}
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    await tick(handle)
    await ledger.until(lambda: ledger.calls["hold_run"] == 2)
    assert ledger.slices_begun == [0, 0]
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    await tick(handle)
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("breaker_opened", RULE), ("breaker_closed", RULE)] * 2


@pytest.mark.parametrize(("met", "accepted"), [(DECLINES, True), (CREDENTIALS, False)])
async def test_a_resume_after_too_many_declines_accepts_them(
    stage: Stage, ledger: FakeLedger, met: Progress, *, accepted: bool
) -> None:
    """What comes after it is told so, and what began before holds nothing again; no other hold says it."""
    ledger.slices, ledger.halts = 3, {0: [met, DECLINES] if accepted else [met]}
    handle = await stage.start(slices_at_once=1)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert ledger.declines_accepted[0] is False
    assert set(ledger.declines_accepted[1:]) == {accepted}
    assert ledger.events == [("breaker_opened", RULE), ("resumed", WHO)]


async def test_broken_credentials_met_by_a_probe_wait_for_a_person(stage: Stage, ledger: FakeLedger) -> None:
    """Silence that turned into a refusal of the key no longer ends by itself."""
    ledger.slices, ledger.halts, ledger.due_seconds = 2, {0: [SILENCE]}, [0.0]
    ledger.settle_halts = [CREDENTIALS]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, slices_at_once=1)
    await progress_once(handle, lambda progress: progress.hold is HoldKind.BREAKER)
    await tick(handle)
    await ledger.until(lambda: ledger.calls["hold_run"] == 2)
    await tick(handle)
    await ledger.until(lambda: ledger.due_seconds == [])
    await tick(handle)
    assert (await progress_once(handle, lambda _progress: True)).hold is HoldKind.BREAKER
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert ledger.events == [("breaker_opened", RULE), ("resumed", WHO)]


async def test_settling_that_meets_a_breaker_holds_the_run_too(stage: Stage, ledger: FakeLedger) -> None:
    """After the last slice as before it."""
    ledger.due_seconds, ledger.settle_halts = [0.0], [CREDENTIALS]
    handle = await stage.start(timing=ONLY_A_TICK_WAKES)
    held = await progress_once(handle, lambda progress: progress.hold is not None)
    assert (held.phase, held.hold_reason) == ("settle", CREDENTIALS.halted)
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


# --- canary ------------------------------------------------------------------------------------------------


async def test_a_canary_without_a_rule_holds_the_run_until_somebody_has_looked(
    stage: Stage, ledger: FakeLedger
) -> None:
    """Slice 0 is charged alone; the release is the resume, and is an event of its own."""
    ledger.slices = 3
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, canary=Canary(lines=LINES_PER_SLICE))
    held = await progress_once(handle, lambda progress: progress.hold is HoldKind.CANARY)
    assert "10 paid, 0 declined" in (held.hold_reason or "")
    assert ledger.slices_begun == [0]
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert sorted(ledger.slices_charged) == [0, 1, 2]
    assert ledger.events == [("canary_held", RULE), ("canary_released", WHO)]
    assert ledger.calls["read_canary"] == 1


@pytest.mark.parametrize(
    ("canary", "event"),
    [
        ((10, 1, 0, 0), "canary_released"),
        ((10, 2, 0, 0), "canary_held"),
        ((10, 0, 0, 1), "canary_held"),
    ],
)
async def test_a_canary_with_a_rule_goes_on_by_itself_or_holds(
    stage: Stage, ledger: FakeLedger, canary: tuple[int, int, int, int], event: str
) -> None:
    """At most that share without money, and nothing unknown."""
    ledger.canary = canary
    handle = await stage.start(
        timing=ONLY_A_TICK_WAKES, canary=Canary(lines=LINES_PER_SLICE, declined_percent_max=10)
    )
    await ledger.until(lambda: bool(ledger.events))
    assert ledger.events == [(event, RULE)]
    if event == "canary_held":
        await progress_once(handle, lambda progress: progress.hold is HoldKind.CANARY)
        assert ledger.slices_begun == [0]
        await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


async def test_a_canary_is_judged_after_a_pause_not_during_it(stage: Stage, ledger: FakeLedger) -> None:
    """The resume of a pause releases no canary that nobody has looked at."""
    ledger.slices = 3
    ledger.slices_may_end.clear()
    handle = await stage.start(timing=ONLY_A_TICK_WAKES, canary=Canary(lines=LINES_PER_SLICE))
    await ledger.until(lambda: ledger.calls["charge_slice"] == 1)
    await decide(handle, "pause")
    ledger.slices_may_end.set()
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    assert ledger.calls["read_canary"] == 0
    await decide(handle, "resume")
    await progress_once(handle, lambda progress: progress.hold is HoldKind.CANARY)
    assert ledger.slices_charged == [0]
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"


# --- recovery ----------------------------------------------------------------------------------------------


async def test_a_recovered_run_goes_on_from_where_the_ledger_says(stage: Stage, ledger: FakeLedger) -> None:
    """Held stays held, a released canary is not judged again, and every slice is looked at again."""
    ledger.phase, ledger.canary_released = "charging", True
    ledger.hold, ledger.hold_reason = HoldKind.PAUSED, "before it died"
    ledger.slices_charged = [0]
    handle = await stage.start(
        timing=ONLY_A_TICK_WAKES, recovered_owner="the old one", canary=Canary(lines=LINES_PER_SLICE)
    )
    await ledger.until(lambda: ledger.calls["read_due"] > 0)
    assert ledger.slices_begun == []
    await decide(handle, "resume")
    assert (await finish(handle)).phase == "closed"
    assert sorted(ledger.slices_begun) == [0, 1]
    assert ledger.calls["read_canary"] == 0


async def test_a_recovered_run_that_was_settling_begins_no_slice(stage: Stage, ledger: FakeLedger) -> None:
    """All its slices were through before it died."""
    ledger.phase, ledger.due_seconds = "settling", [0.0]
    assert (await finish(await stage.start(recovered_owner="the old one"))).phase == "closed"
    assert (ledger.calls["charge_slice"], ledger.calls["settle_due"]) == (0, 1)


async def test_a_recovered_run_that_waited_for_approval_waits_on(stage: Stage, ledger: FakeLedger) -> None:
    """Recovering is no approval."""
    ledger.phase, ledger.approved = "planned", False
    handle = await stage.start(recovered_owner="the old one")
    await progress_once(handle, lambda progress: progress.phase == "approve")
    assert ledger.calls["charge_slice"] == 0
    await decide(handle, "approve", approval())
    assert (await finish(handle)).phase == "closed"


async def test_a_recovered_run_that_was_being_canceled_is_canceled(stage: Stage, ledger: FakeLedger) -> None:
    """Nothing undoes a cancel, its workflow's death neither."""
    ledger.phase, ledger.canceling = "charging", True
    assert (await finish(await stage.start(recovered_owner="the old one"))).counts == {
        "succeeded": 0, "canceled": 20,
    }  # fmt: skip
    assert ledger.calls["charge_slice"] == 0
