"""What a plan would do, as people decide about it: the same values for a preview and for the run itself."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from activities.ledger.frozen_plan import FrozenPlan, PlanTotal
from activities.ledger.rows import Row
from activities.limiter import Endpoint, Limiter
from activities.payment_methods import Lookups
from workflows.contracts import RunRequest
from workflows.domain.errors import InvalidInput
from workflows.domain.periods import Period
from workflows.domain.skips import SkipReason

LARGEST_LINES = 5
WIDEST_CHANGES = 5


@dataclass(frozen=True, slots=True)
class LargeLine:
    """One of the largest lines of a currency."""

    customer: str
    line: str
    amount_minor: int


@dataclass(frozen=True, slots=True)
class CurrencyPlan:
    """What is to be charged in one currency, and the most that may be."""

    lines: int
    amount_minor: int
    cap_minor: int
    largest: tuple[LargeLine, ...]


@dataclass(frozen=True, slots=True)
class LineChange:
    """A line beside itself in the period before; a side is None where it is not there."""

    customer: str
    line: str
    currency_before: str | None
    before_minor: int | None
    currency_now: str | None
    now_minor: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """How lines differ from the previous period's, and the widest differences of each kind.

    `changed` counts changes of more than `change_percent` and changes of currency; what another run of this
    period has charged already counts as being here.
    """

    period: str
    change_percent: float
    new: int
    gone: int
    changed: int
    same: int
    widest: Mapping[str, tuple[LineChange, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSummary:
    """A plan at one glance. `charge_seconds` is how long its charges take at the account's rate, at best.

    `below_minimum` counts lines that are sent although they are below Stripe's minimum: it will refuse them.
    `taken_over` counts lines that ended without success in an earlier run, by the state they were left in.
    `nothing_due` says who has all the lines already, where that is so.
    """

    run_id: str
    account: str
    period: str
    source: str
    source_sha256: str
    selected: int
    currencies: Mapping[str, CurrencyPlan]
    skipped: Mapping[str, int]
    below_minimum: int
    taken_over: Mapping[str, int]
    nothing_due: str | None
    comparison: Comparison | None
    lookups: Lookups
    rate_per_second: float
    charge_seconds: float
    lookup_seconds: float
    plan_hash: str

    @property
    def lines(self) -> int:
        """How many lines are to be charged."""
        return sum(currency.lines for currency in self.currencies.values())

    def totals(self) -> list[PlanTotal]:
        """Return what is frozen with the plan, per currency."""
        return [
            PlanTotal(code, plan.lines, plan.amount_minor, plan.cap_minor)
            for code, plan in self.currencies.items()
        ]

    def document(self) -> dict[str, Any]:
        """Return everything as JSON: `--preview --json`, and the ledger's record of the plan."""
        document = asdict(self)
        document["run"] = document.pop("run_id")
        document["totals"] = document.pop("currencies")
        return {**document, "lines": self.lines}


async def summarize(
    plan: FrozenPlan, request: RunRequest, *, selected: int, lookups: Lookups, limiter: Limiter
) -> PlanSummary:
    """Read what a frozen plan would do. Creates and confirms run side by side, so the slower one decides."""
    rate = min(limiter.rate_per_second(endpoint) for endpoint in (Endpoint.CREATE, Endpoint.CONFIRM))
    totals = await plan.totals()
    lookup_rate = limiter.rate_per_second(Endpoint.CUSTOMERS)
    return PlanSummary(
        run_id=request.run_id,
        account=request.account,
        period=request.period,
        source=request.source,
        source_sha256=request.source_sha256,
        selected=selected,
        currencies=_currencies(totals, await plan.largest(lines_max=LARGEST_LINES)),
        skipped=await plan.skips(),
        below_minimum=await plan.below_minimum(),
        taken_over=await plan.takeovers(),
        nothing_due=_nothing_due(await plan.kept(), selected),
        comparison=await _compare(plan, request),
        lookups=lookups,
        rate_per_second=rate,
        charge_seconds=sum(total.lines for total in totals) / rate,
        lookup_seconds=lookups.requests / lookup_rate,
        plan_hash=await plan.plan_hash(),
    )


def _nothing_due(kept: Sequence[Row], selected: int) -> str | None:
    """Return who has all the lines of a plan already, or None where there is anything else in it."""
    if not kept or sum(row["lines"] for row in kept) < selected:
        return None
    by_run = [
        f"{row['lines']} lines charged by run {row['owner_run']}"
        if row["reason"] == SkipReason.ALREADY_CHARGED
        else f"{row['lines']} lines left with run {row['owner_run']} ({row['reason']})"
        for row in kept
    ]
    return f"nothing is due: {', '.join(by_run)}"


def _currencies(totals: Sequence[PlanTotal], largest: Sequence[Row]) -> dict[str, CurrencyPlan]:
    lines: defaultdict[str, list[LargeLine]] = defaultdict(list)
    for row in largest:
        lines[row["currency"]].append(LargeLine(row["customer"], row["line"], row["amount_minor"]))
    return {
        total.currency: CurrencyPlan(
            total.lines, total.amount_minor, total.cap_minor, tuple(lines[total.currency])
        )
        for total in totals
    }


async def _compare(plan: FrozenPlan, request: RunRequest) -> Comparison | None:
    try:
        earlier = str(Period.parse(request.period).previous())
    except InvalidInput:  # before the first period there is none
        return None
    rows = await plan.compare(earlier, change_percent=request.change_percent, lines_max=WIDEST_CHANGES)
    if rows is None:
        return None
    counts = {row["kind"]: row["lines"] for row in rows}
    widest: defaultdict[str, list[LineChange]] = defaultdict(list)
    for row in rows:
        if row["customer"] is not None:
            widest[row["kind"]].append(
                LineChange(**{name: row[name] for name in LineChange.__dataclass_fields__})
            )
    return Comparison(
        period=earlier,
        change_percent=request.change_percent,
        **{kind: counts.get(kind, 0) for kind in ("new", "gone", "changed", "same")},
        widest={kind: tuple(changes) for kind, changes in widest.items()},
    )
