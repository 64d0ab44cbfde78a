"""Wait with a run: until it has ended, or until all that is left has to wait for a time that is not soon."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from activities.ledger.runs import RunLedger
from worker.failures import EXIT_FAILED, EXIT_REFUSED, CommandFailed
from worker.run_advice import advise, describe_recovery
from worker.run_view import RunView, view_run
from worker.temporal_client import RunHandle, read_progress, read_trouble
from workflows.contracts import RunReport

POLL_SECONDS = 0.5
# Counting a large run costs the database something: spend at most this share of the time on it.
COUNTING_SHARE_MAX = 0.05
SOON_SECONDS = 60.0
PERSON_SECONDS = 60.0  # somebody who has just been told may be about to decide
# Some charges are asked about again and again until their window ends, each time due soon: no reason to stay.
STUCK_SECONDS = 120.0
NOBODY_WORKS_SECONDS = 10.0
ASK_WORKFLOW_SECONDS = 5.0
RESULT_SECONDS = 5.0  # from the ledger's `closed` to Temporal's result; it may be gone, or elsewhere by now
PATIENCE_SECONDS = 120.0  # a database or Temporal that restarts is no reason to stop watching


# A run that failed has no plan either: its workflow's result says why.
_BEFORE_PLAN = frozenset({"starting", "locked", "failed"})


class Display(Protocol):
    """Shows how a run is getting on."""

    def update(self, view: RunView) -> None:
        """Show the run as it is now."""


@dataclass(frozen=True, slots=True)
class Waited:
    """What waiting saw. `seconds` is real time; the rate counts the lines that settled meanwhile."""

    view: RunView
    seconds: float
    rate_per_second: float

    @property
    def ended(self) -> bool:
        """Whether the run is closed or its charging is, rather than waiting for what it has charged."""
        return self.view.ended or self.view.phase == "retrying"


async def wait_for_run(
    ledger: RunLedger,
    handle: RunHandle,
    *,
    display: Display,
    notice: Callable[[str], None],
    only_for_plan: bool = False,
    person_seconds: float = PERSON_SECONDS,
) -> Waited:
    """Return when the run has closed, or when it is no use to stay; with `only_for_plan` once it is planned.

    No use is when all that is open or waited for is due in more than 60 s, when the run has waited for a
    person for `person_seconds` (60 at least where a breaker holds it, which may close by itself), or when all
    slices are through and nothing has settled for 120 s.

    Raises:
        CommandFailed: The run refused its period, failed to plan, or its workflow ended in another way; or
            the ledger has not answered for 120 s.
    """
    # Its pool logs a traceback for each lost connection; what matters of it is said in one line below.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    result = asyncio.ensure_future(result_of(handle))
    try:
        wait = _Wait(ledger, handle, result, display=display, notice=notice, person_seconds=person_seconds)
        return await (wait.until_planned() if only_for_plan else wait.until_quiet())
    finally:
        result.cancel()
        await asyncio.gather(result, return_exceptions=True)


async def result_of(handle: WorkflowHandle[Any, Any]) -> Any:
    """Return the workflow's result, whatever becomes of the connection meanwhile."""
    while True:
        try:
            return await handle.result()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise
            await asyncio.sleep(POLL_SECONDS)


class _Wait:
    def __init__(
        self,
        ledger: RunLedger,
        handle: RunHandle,
        result: "asyncio.Future[Any]",
        *,
        display: Display,
        notice: Callable[[str], None],
        person_seconds: float,
    ) -> None:
        self._person_seconds = person_seconds
        self._ledger = ledger
        self._handle = handle
        self._result = result
        self._display = display
        self._notice = notice
        self._began = time.monotonic()
        self._asked_workflow = self._began
        self._first_settled: tuple[float, int] | None = None
        self._said: set[str] = set()
        self._settled = 0
        self._settled_at = self._began
        self._open_at = self._began
        self._needed_nobody_at = self._began

    async def until_planned(self) -> Waited:
        while True:
            closed_before = self._result.done()
            view = await self._view()
            self._display.update(view)
            if closed_before:
                self._refuse_failure(view)
            if closed_before or view.phase not in _BEFORE_PLAN:
                return self._waited(view)
            await self._ask_workflow(view)
            await asyncio.wait({self._result}, timeout=POLL_SECONDS)

    async def until_quiet(self) -> Waited:
        waits = 0
        while True:
            closed_before = self._result.done()
            asked = time.monotonic()
            view = await self._view()
            counting_seconds = time.monotonic() - asked
            self._display.update(view)
            if self._first_settled is None and view.due is not None:
                self._first_settled = (asked, view.settled)
            if closed_before:
                self._refuse_failure(view)
            # A charge whose answer is just being recorded may look as if it waited: twice is a fact.
            waits = waits + 1 if _only_waits(view) else 0
            if closed_before or waits > 1 or self._is_no_use(view):
                return self._waited(view)
            await self._ask_workflow(view)
            pause_seconds = max(POLL_SECONDS, counting_seconds / COUNTING_SHARE_MAX)
            await asyncio.wait({self._result}, timeout=pause_seconds)

    def _is_no_use(self, view: RunView) -> bool:
        # Each sign has a clock of its own to set, so each is looked at.
        signs = (
            self._is_stuck(view),
            self._waits_for_somebody(view),
            self._is_closed_without_result(view),
        )
        return any(signs)

    def _waits_for_somebody(self, view: RunView) -> bool:
        """Whether a person has to decide, has been told so, and has not for a while."""
        advice = None if view.ended else advise(view.document())
        if advice is None or _is_still_settling(view):
            self._needed_nobody_at = time.monotonic()
        if advice is not None:
            self._say(f"{view.run_id}: {advice}")
        may_pass = view.run is not None and view.run.hold == "breaker"
        patience_seconds = max(self._person_seconds, SOON_SECONDS) if may_pass else self._person_seconds
        return advice is not None and time.monotonic() - self._needed_nobody_at > patience_seconds

    def _is_closed_without_result(self, view: RunView) -> bool:
        """Whether the ledger has closed the run, and Temporal has had time to say so and does not."""
        if view.phase != "closed":
            self._open_at = time.monotonic()
        return time.monotonic() - self._open_at > RESULT_SECONDS

    def _is_stuck(self, view: RunView) -> bool:
        if view.settled != self._settled or view.phase != "settling":
            self._settled, self._settled_at = view.settled, time.monotonic()
        return time.monotonic() - self._settled_at > STUCK_SECONDS

    async def _view(self) -> RunView:
        patient_until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await view_run(self._ledger, self._handle.id)
            except Exception as error:  # the driver's errors are the ledger's to name
                if time.monotonic() > patient_until:
                    raise CommandFailed(
                        f"the ledger has not answered for {PATIENCE_SECONDS:.0f} s "
                        f"({type(error).__name__}); the run goes on without this command: "
                        f"chargeonce run show {self._handle.id}",
                        exit_code=EXIT_FAILED,
                        details={"run": self._handle.id},
                    ) from error
                self._say(f"the ledger does not answer ({type(error).__name__}); still trying")
                await asyncio.sleep(POLL_SECONDS)

    def _refuse_failure(self, view: RunView) -> None:
        """Raise CommandFailed unless the workflow's result is a run that closed."""
        try:
            report = RunReport.model_validate(self._result.result())
        except (WorkflowFailureError, RPCError) as error:
            cause = error.cause if isinstance(error, WorkflowFailureError) else "Temporal does not know it"
            lost = "" if view.ended else f". Nobody works on it until: {describe_recovery(view.run_id)}"
            raise CommandFailed(
                f"the workflow of {view.run_id} ended without a result ({cause}); "
                f"what it did stands in the ledger: chargeonce run show {view.run_id}{lost}",
                exit_code=EXIT_FAILED,
                details=view.document(),
            ) from error
        if report.phase == "refused":
            details = {"refused": report.reason, "run": report.owner_run, "phase": view.phase}
            raise CommandFailed(
                f"nobody was charged: {report.reason}; "
                f"look at it with `chargeonce run show {report.owner_run}`",
                exit_code=EXIT_REFUSED,
                details=details,
            )
        if report.phase == "failed":
            raise CommandFailed(
                f"nobody was charged: the run could not be planned: {report.reason}",
                exit_code=EXIT_FAILED,
                details=view.document(),
            )

    def _waited(self, view: RunView) -> Waited:
        now = time.monotonic()
        since, before = self._first_settled or (self._began, 0)
        rate = (view.settled - before) / max(now - since, 0.001)
        return Waited(view, round(now - self._began, 3), round(rate, 1))

    async def _ask_workflow(self, view: RunView) -> None:
        """Say once what a person would otherwise wonder about: nobody works, work fails, the run halts."""
        now = time.monotonic()
        if now - self._asked_workflow < ASK_WORKFLOW_SECONDS:
            return
        self._asked_workflow = now
        if view.run is None:
            if now - self._began > NOBODY_WORKS_SECONDS:
                self._say("no worker has picked the run up yet: is one running (`chargeonce worker`)?")
            return
        trouble = await read_trouble(self._handle)
        if trouble is not None:
            self._say(f"tried again until it works: {trouble}")
        progress = await read_progress(self._handle)
        if progress is not None and progress.halted is not None and progress.hold is None:
            self._say(
                f"the run has halted: {progress.halted}. It tries again by itself; "
                f"to try at once: chargeonce run tick {view.run_id}"
            )

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._notice(text)


def _is_still_settling(view: RunView) -> bool:
    """Whether something in flight is due soon: it goes on whoever holds the run."""
    due = view.due
    if due is None:
        return False
    next_seconds = due.next_in_flight_due_seconds
    return bool(due.in_flight_due_now) or (next_seconds is not None and next_seconds <= SOON_SECONDS)


def _only_waits(view: RunView) -> bool:
    due, waits_for = view.due, view.waits_for
    if due is None or due.due_now or (due.open == 0 and waits_for is None):
        return False
    times = [due.next_due_seconds]
    if waits_for is not None:
        if waits_for.due_now or waits_for.open == 0:
            return False
        times.append(waits_for.next_due_seconds)
    known = [seconds for seconds in times if seconds is not None]
    return bool(known) and min(known) > SOON_SECONDS
