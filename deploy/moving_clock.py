"""`chargeonce clock`: ledger and simulator have one time, and move together."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from activities.ledger.clock import ClockReading, advance_clock, read_clock
from deploy.stack_info import StackInfo
from worker.console_output import Output
from worker.json_over_http import NoAnswer, ask_json
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
    _print(output, ledger, _ask_simulator(stack, "POST", position))


def _ask_simulator(stack: StackInfo, method: str, document: Any = None) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = ask_json(stack.stripe_sim_url, method, "/_sim/clock", document)
    except NoAnswer as error:
        raise ChargeonceError(f"the simulator's clock: {error}. Say `chargeonce clock show`") from error
    return answer


def _print(output: Output, ledger: ClockReading, simulator: dict[str, Any]) -> None:
    simulated = datetime.fromtimestamp(simulator["now"], tz=UTC)
    document = {
        "ledger": ledger.now,
        "simulator": simulated,
        "offset_seconds": ledger.offset_seconds,
        "apart_seconds": round(abs((ledger.now - simulated).total_seconds()), 1),
        "frozen": ledger.frozen_at is not None,
        "movable": ledger.movable,
    }
    output.result(document, lambda: _render(document))


def _render(document: dict[str, Any]) -> Iterable["RenderableType"]:
    frozen = ", standing still" if document["frozen"] else ""
    yield f"ledger     {document['ledger']:%Y-%m-%d %H:%M:%S} UTC{frozen}"
    yield f"simulator  {document['simulator']:%Y-%m-%d %H:%M:%S} UTC"
    yield f"{document['offset_seconds']:.0f} s ahead of real time"
