"""What a demo proved: the simulator's book and `verify` against the ledger's word, and the story of it."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from activities.ledger.audit import AuditedLine, stream_audited_lines
from activities.ledger.database import Pool
from activities.ledger.runs import RunLedger
from worker.books_view import NO_BACKSTOP
from worker.console_output import table
from worker.json_over_http import ask_json
from worker.proof import Scope, verified
from worker.settings import Settings
from worker.waiting import Waited
from workflows.domain.answer import METADATA_CHARGE
from workflows.domain.counted import counted
from workflows.domain.money import format_money
from workflows.domain.states import SETTLED, State

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class Kill:
    """A worker that was killed, and how far the run was then."""

    pid: int
    settled: int
    lines: int
    requests_on_wire: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoProof:
    """The facts of one demo. Money is in minor units by currency, from the simulator's book."""

    counts: Mapping[str, Any]
    customers: int
    kills: Sequence[Kill]
    double_charges: int
    lines_read: int
    lost: int
    wire_requests: int
    posts: int
    connections_dropped: int
    repeated_requests: int
    money_moved: Mapping[str, int]
    money_matches: bool
    books: Mapping[str, Any]
    verify: str
    rate_per_second: float

    @property
    def holds(self) -> bool:
        """Whether a worker died, nobody paid twice, was forgotten or paid another sum; and books agree."""
        return (
            bool(self.kills)
            and self.double_charges == 0
            and self.lost == 0
            and self.lines_read == self.counts["lines"]
            and self.money_matches
            and self.books.get("agree") is True
            and self.verify == "clean"
        )

    def document(self) -> dict[str, Any]:
        """Return everything as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "counts"}
        return {
            **self.counts,
            **values,
            "kills": len(self.kills),
            "killed": [asdict(kill) for kill in self.kills],
            "proved": self.holds,
        }


async def prove(
    pool: Pool, settings: Settings, simulator: str, *, waited: Waited, kills: Sequence[Kill], customers: int
) -> DemoProof:
    """Compare the ledger with the simulator's book, line by line, and with what Stripe's API lists."""
    run_id = waited.view.run_id
    lines = [line async for line in stream_audited_lines(pool, [run_id])]
    summary = await asyncio.to_thread(
        ask_json, simulator, "GET", f"/_sim/book/summary?identity={METADATA_CHARGE}"
    )
    book = await asyncio.to_thread(ask_json, simulator, "GET", "/_sim/book")
    faults = await asyncio.to_thread(ask_json, simulator, "GET", "/_sim/faults")
    [report] = await verified(settings, Scope(run_id=run_id))
    paid: Counter[str] = Counter()
    for line in lines:
        if line.state == State.SUCCEEDED:
            paid[line.currency] += line.amount_minor
    return DemoProof(
        counts=waited.view.document(),
        customers=customers,
        kills=kills,
        double_charges=len(summary["double_charges"]),
        lines_read=len(lines),
        lost=count_lost(lines, {entry["metadata"].get(METADATA_CHARGE) for entry in book["movements"]}),
        wire_requests=summary["requests"],
        posts=summary["posts"],
        connections_dropped=sum(count["fired"] for count in faults["counts"].values()),
        repeated_requests=summary["repeated_posts"],
        money_moved=summary["money_moved"],
        money_matches=dict(paid) == summary["money_moved"],
        books=((await RunLedger(pool).read(run_id)).newest_report or {}).get("books") or {},
        verify=report.verdict,
        rate_per_second=waited.rate_per_second,
    )


def _describe_books(books: Mapping[str, Any]) -> str:
    if not books.get("agree"):
        return f"THE BOOKS DISAGREE: {dict(books)}"
    if books["backstop"]:
        return "At the end the books of ledger, spend-cap proxy and Stripe agree, currency by currency."
    return f"At the end the books of ledger and Stripe agree. {NO_BACKSTOP.capitalize()}."


def count_lost(lines: Iterable[AuditedLine], identities_in_book: set[str | None]) -> int:
    """Return how many lines have no settled state, or are called paid without money in the book."""
    return sum(
        line.state not in SETTLED
        or (line.state == State.SUCCEEDED and line.charge_id not in identities_in_book)
        for line in lines
    )


def render_story(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield the demo as a short story with its proof."""
    yield f"\n{document['run']}: {document['lines']} lines of {document['customers']} customers, two workers."
    for kill in document["killed"]:
        yield (
            f"Worker {kill['pid']} was killed with SIGKILL when {kill['settled']} of {kill['lines']} lines "
            f"were settled and {counted(kill['requests_on_wire'], 'request')} on the wire, sent and not "
            "answered; it was started again, and the run went on."
        )
    rows = [
        ("paid", document["succeeded"], "succeeded"),
        ("declined", document["declined"], "by the bank; some will be tried again in days"),
        ("waiting for the customer", document["needs_customer"], "has to authenticate"),
        *(
            (name, document[name], "")
            for name in ("processing", "refused", "review", "canceled", "skipped", "unknown", "not_started")
            if document[name]
        ),
        (
            "requests to Stripe",
            document["wire_requests"],
            f"in all; {document['posts']} of them could move something",
        ),
        ("connections dropped", document["connections_dropped"], "by the simulator, besides the kill"),
        ("sent again", document["repeated_requests"], "same key and body; lookups did the rest"),
        ("charged twice", document["double_charges"], "from the simulator's own book of money"),
        ("lost", document["lost"], "no outcome, or paid in our ledger only"),
    ]
    yield table(("", "", ""), rows)
    moved = ", ".join(format_money(amount, code) for code, amount in sorted(document["money_moved"].items()))
    agrees = "the ledger says the same" if document["money_matches"] else "THE LEDGER SAYS SOMETHING ELSE"
    yield f"Money in the book: {moved}; {agrees}."
    yield _describe_books(document["books"])
    yield f"verify, ledger against Stripe's API: {document['verify']}. {document['seconds']:.0f} s in all."
    yield "Proved: everyone was charged once." if document["proved"] else "NOT PROVED: see above."
    if document["home"]:
        yield f"Everything is kept in {document['home']}"
