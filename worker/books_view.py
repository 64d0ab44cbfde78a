"""The three books of a run, read while it runs and shown side by side."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from activities.ledger.database import Pool
from activities.ledger.runs import Run
from worker.console_output import table
from worker.settings import Settings
from workflows.domain.errors import RefusedToStart
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType

    from activities.three_totals import ThreeTotals

NO_BACKSTOP = (
    "no backstop: without the spend-cap proxy, nothing but the run's own code keeps it within its cap"
)
PAGES_MAX = 60  # some seconds; what is beyond that is for `verify`
PROXY_BEHIND_SECONDS = 0.5
_SENDING_PHASES = frozenset({"charging", "settling", "retrying", "closed"})


async def books_of(settings: Settings, pool: Pool, run: Run) -> dict[str, Any] | None:
    """Return the books as the close found them; of a run that goes on, as they are now; None before that.

    Stripe is asked only as far as that takes some seconds. While a run goes on, books that differ say
    nothing: what is in flight stands in one before it stands in the others.
    """
    if run.report is not None:
        found: dict[str, Any] | None = run.report.get("books")
        return found
    if run.phase not in _SENDING_PHASES:
        return None
    books = (await _read_books(settings, pool, run)).as_json()
    return books if run.phase == "closed" else {**books, "agree": books["agree"] or None}


async def _read_books(settings: Settings, pool: Pool, run: Run) -> "ThreeTotals":
    # What speaks Stripe is slow to import, and for most runs nobody has to ask it.
    from activities.three_totals import ask_totals, totals_side_by_side  # noqa: PLC0415 - see above
    from activities.vault import READING  # noqa: PLC0415 - see above
    from worker.wiring import open_accounts  # noqa: PLC0415 - see above
    from workflows.contracts import RunKey  # noqa: PLC0415 - see above

    try:
        async with open_accounts(settings, pool) as accounts:
            parts = await accounts.of(RunKey(run_id=run.run_id, account=run.account), READING)
            return await ask_totals(
                pool, parts, run.run_id, pages_max=PAGES_MAX, wait_seconds=PROXY_BEHIND_SECONDS
            )
    except RefusedToStart as refused:
        return await totals_side_by_side(
            pool, run.run_id, stripe=None, not_asked=str(refused), wait_seconds=PROXY_BEHIND_SECONDS
        )


def render_books(books: Mapping[str, Any] | None) -> Iterable["RenderableType"]:
    """Yield the three books; nothing where they were never read."""
    if not books:
        return
    rows = [
        (code.upper(), *(_money(sums[name], code) for name in _COLUMNS))
        for code, sums in books["by_currency"].items()
    ]
    if rows:
        yield table(("paid", "ledger", "proxy", "Stripe", "cap"), rows)
    if books["agree"] is False:
        yield "THE BOOKS DISAGREE: look with chargeonce verify RUN and chargeonce audit --run RUN"
    elif books["agree"]:
        yield "the books agree"
    if books["not_asked"]:
        yield f"Stripe was not asked: {books['not_asked']}"
    if books["backstop"] is False:
        yield NO_BACKSTOP


_COLUMNS = ("ledger_minor", "proxy_minor", "stripe_minor", "cap_minor")


def _money(amount_minor: int | None, currency: str) -> str:
    return "-" if amount_minor is None else format_money(amount_minor, currency)
