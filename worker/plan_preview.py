"""A plan as people read it before they approve it, and beside what became of it after the run."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool
from worker.console_output import table
from workflows.domain.counted import counted
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType

# In words, since whoever approves need not know the program.
REASONS = {
    "zero_amount": "nothing to pay",
    "below_minimum_carried_forward": "below Stripe's minimum: recorded as owed, billed by no later run",
    "below_minimum_waived": "below Stripe's minimum: given up",
    "no_payment_method": "no payment method on file",
    "several_payment_methods": "several cards, and none is the default",
    "customer_deleted": "the customer was deleted at Stripe",
    "customer_missing": "no such customer in this account",
    "already_charged": "paid, or on its way, by another run of the period",
    "in_another_run": "another run of the period is still at it",
    "waiting_for_retry": "declined in another run, which tries again",
    "waiting_for_customer": "another run waits for its customer",
    "in_review": "somebody has to look at it first: it is in review in another run",
    "undetermined": "what an earlier run sent for it has no certain outcome yet",
    "currency_unsupported": "Stripe does not charge in this currency",
    "can_not_be_billed": "the row can't be billed exactly",
}
_KINDS = ("new", "gone", "changed")


def render_plan(plan: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield everything of `PlanSummary.document()`, the hash last."""
    totals: Mapping[str, Mapping[str, Any]] = plan["totals"]
    yield (
        f"{plan['source']}: {counted(plan['selected'], 'row')} for {plan['period']} of {plan['account']}, "
        f"{plan['lines']} to be charged"
    )
    rows = [
        (
            currency.upper(),
            total["lines"],
            format_money(total["amount_minor"], currency),
            format_money(total["cap_minor"], currency),
        )
        for currency, total in totals.items()
    ]
    if rows:
        yield table(("currency", "lines", "amount", "cap"), rows)
    largest = [
        (large["customer"], large["line"], format_money(large["amount_minor"], currency))
        for currency, total in totals.items()
        for large in total["largest"]
    ]
    if largest:
        yield table(("customer", "line", "amount"), largest, title="largest lines")
    if plan["skipped"]:
        reasons = [(lines, reason, REASONS.get(reason, "")) for reason, lines in plan["skipped"].items()]
        yield table(("lines", "not charged", ""), reasons)
    yield from _render_small_lines(plan)
    yield from _render_comparison(plan["comparison"])
    yield from _render_durations(plan)
    yield f"plan hash: {plan['plan_hash']}"


def render_plan_versus_actual(report: Mapping[str, Any]) -> Iterable["RenderableType"]:
    """Yield `PlanVersusActual.document()`: what was planned, what was charged, and why they differ."""
    currencies: Mapping[str, Mapping[str, Any]] = report["currencies"]
    rows = [
        (
            currency.upper(),
            found["planned_lines"],
            format_money(found["planned_minor"], currency),
            found["charged_lines"],
            format_money(found["charged_minor"], currency),
        )
        for currency, found in currencies.items()
    ]
    if rows:
        columns = ("currency", "planned lines", "planned", "charged lines", "charged")
        yield table(columns, rows, title="plan against outcome, at the close")
    differences: list[Sequence[object]] = [
        (part["lines"], format_money(part["amount_minor"], currency), part["standing"], part["reason"])
        for currency, found in currencies.items()
        for part in found["differences"]
    ]
    if differences:
        yield table(("lines", "amount", "planned but", "why"), differences)
    if not report["adds_up"]:
        unexplained = sum(abs(found["unexplained_lines"]) for found in currencies.values())
        yield (
            f"planned and charged do NOT add up: {counted(unexplained, 'line')} without a reason, "
            f"{counted(report['other_amounts'], 'charge')} of another amount than planned"
        )


async def read_plan(pool: Pool, run_id: str) -> Mapping[str, Any] | None:
    """Return `PlanSummary.document()` as it was recorded with a run's plan, or None where there is none."""
    for event in await ControlLedger(pool).events(run_id):
        if event.action == "planned":
            return event.detail
    return None


def describe_duration(seconds: float) -> str:
    """Return hours, minutes and seconds; below a minute with a tenth."""
    return f"{seconds:.1f} s" if seconds < 60 else str(timedelta(seconds=round(seconds)))


def _render_small_lines(plan: Mapping[str, Any]) -> Iterable[str]:
    """Yield what becomes of lines below Stripe's minimum where nobody may expect it."""
    if small := plan.get("below_minimum"):
        yield (
            f"Stripe will refuse {counted(small, 'line')}: below its minimum amount. To leave them out: "
            "--below-minimum waive, or carry-forward (recorded as owed)"
        )
    if carried := plan["skipped"].get("below_minimum_carried_forward"):
        yield (
            f"{counted(carried, 'line')} carried forward: that records what is owed, and no later run bills "
            "it; add it to a later source yourself"
        )


def _render_comparison(comparison: Mapping[str, Any] | None) -> Iterable["RenderableType"]:
    if comparison is None:
        yield "nobody was billed for the period before, so there is nothing to compare with"
        return
    yield (
        f"beside {comparison['period']}, in lines: {comparison['new']} new, {comparison['gone']} gone, "
        f"{comparison['changed']} changed by more than {comparison['change_percent']:g} %, "
        f"{comparison['same']} not"
    )
    rows = [
        (kind, change["customer"], change["line"], _money(change, "before"), _money(change, "now"))
        for kind in _KINDS
        for change in comparison["widest"].get(kind, ())
    ]
    if rows:
        yield table(("", "customer", "line", "before", "now"), rows, title="widest differences")


def _money(change: Mapping[str, Any], side: str) -> str:
    amount_minor, currency = change[f"{side}_minor"], change[f"currency_{side}"]
    return "" if amount_minor is None else format_money(amount_minor, currency)


def _render_durations(plan: Mapping[str, Any]) -> Iterable[str]:
    lookups, rate = plan["lookups"], plan["rate_per_second"]
    if plan["lines"]:
        yield f"charging takes {describe_duration(plan['charge_seconds'])} or more at {rate:g} lines/s"
    else:
        yield "nobody is to be charged"
    if lookups["customers"]:
        lookup_time = describe_duration(plan["lookup_seconds"])
        yield (
            f"planning asks Stripe how {counted(lookups['customers'], 'customer')} pay "
            f"({counted(lookups['requests'], 'request')}), which takes {lookup_time} or more"
        )
