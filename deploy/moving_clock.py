"""`chargeonce clock`: ledger and simulator have one time, and move together."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from activities.ledger.clock import ClockReading, advance_clock, read_clock
from activities.ledger.database import open_pool
from activities.ledger.runs import RunLedger
from deploy.stack_info import StackInfo
from worker.console_output import Output
from worker.json_over_http import NoAnswer, ask_json
from worker.run_view import ENDED_PHASES
from workflows.domain.counted import counted
from workflows.domain.errors import ChargeonceError

if TYPE_CHECKING:
    from rich.console import RenderableType


async def show_clock(output: Output, stack: StackInfo) -> None:
    """Print both clocks."""
    _print(output, await read_clock(stack.database_url), _ask_simulator(stack, "GET"))


async def advance_clocks(output: Output, stack: StackInfo, seconds: float) -> None:
    """Move the ledger's clock by `seconds`, set the simulator's to the same, and print both.

    Raises:
        RefusedToStart: The ledger's clock can't be moved; the simulator's was left alone.
    """
    ledger = await advance_clock(stack.owner_database_url, seconds)
    # Set, not advanced: two clocks that had come apart are together again after this.
    if ledger.frozen_at is None:
        position = {"set_offset_seconds": ledger.offset_seconds}
    else:
        position = {"freeze_at": ledger.frozen_at.timestamp()}
    simulator = _ask_simulator(stack, "POST", position)
    async with open_pool(stack.database_url, connections=1) as pool:
        woken = await _find_due(RunLedger(pool))
    _print(output, ledger, simulator, due=woken)


async def _find_due(ledger: RunLedger) -> list[dict[str, Any]]:
    """Return the open runs in which something is due by the clock as it is now, with how many lines."""
    found = []
    for run in await ledger.newest():
        if run.phase in ENDED_PHASES or run.phase in {"locked", "planned"}:
            continue
        due = await ledger.due(run.run_id)
        lines = due.in_flight_due_now if due.hold is not None else due.due_now
        if lines or run.phase == "retrying":
            found.append({"run": run.run_id, "lines": lines, "phase": run.phase})
    return found


def _ask_simulator(stack: StackInfo, method: str, document: Any = None) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask_json(stack.stripe_sim_url, method, "/_sim/clock", document)
    except NoAnswer as error:
        raise ChargeonceError(f"the simulator's clock: {error}. Say `chargeonce clock show`") from error
    return answer


def _print(
    output: Output,
    ledger: ClockReading,
    simulator: dict[str, Any],
    *,
    due: list[dict[str, Any]] | None = None,
) -> None:
    simulated = datetime.fromtimestamp(simulator["now"], tz=UTC)
    document = {
        "ledger": ledger.now,
        "simulator": simulated,
        "offset_seconds": ledger.offset_seconds,
        "apart_seconds": round(abs((ledger.now - simulated).total_seconds()), 1),
        "frozen": ledger.frozen_at is not None,
        "movable": ledger.movable,
        **({} if due is None else {"due": due}),
    }
    output.result(document, lambda: _render(document))


def _render(document: dict[str, Any]) -> Iterable["RenderableType"]:
    frozen = ", standing still" if document["frozen"] else ""
    yield f"ledger     {document['ledger']:%Y-%m-%d %H:%M:%S} UTC{frozen}"
    yield f"simulator  {document['simulator']:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{document['offset_seconds']:.0f} s ahead of real time"
    if "due" in document:
        yield from describe_due(document["due"])


def describe_due(due: list[dict[str, Any]]) -> Iterable[str]:
    """Yield what to type for runs in which something has become due, or that there is none."""
    for one in due:
        what = f"{counted(one['lines'], 'line')} due now" if one["lines"] else "its retries may be due now"
        yield f"{one['run']}: {what}: chargeonce run tick {one['run']} --wait"
    if not due:
        yield "no run has anything due, so there is nothing to be seen of it"
