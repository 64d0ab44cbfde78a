"""Plans of several periods, looked at together: what each customer would be charged over all of them."""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from activities.ledger.frozen_plan import CustomerAmount
from activities.plan_summary import PlanSummary
from activities.spreadsheet_cells import neutral_cell
from worker.console_output import table
from worker.plan_preview import REASONS
from workflows.domain.counted import counted
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType

CUSTOMERS_SHOWN_MAX = 50
CUSTOMERS_IN_JSON_MAX = 10_000


@dataclass(slots=True)
class CustomerTotal:
    """What one customer would be charged in one currency: in all, and by what it is for."""

    customer: str
    currency: str
    lines: int = 0
    amount_minor: int = 0
    periods: dict[str, int] = field(default_factory=dict)


class PeriodPlans:
    """The plans of several periods, each as a preview made it, and what they come to for each customer.

    Plans are added one after another, in the order in which they are shown.
    """

    def __init__(self) -> None:
        self.summaries: dict[str, PlanSummary] = {}
        self.waived: dict[str, str] = {}
        self._customers: dict[tuple[str, str], CustomerTotal] = {}

    def add(self, label: str, summary: PlanSummary, customers: Iterable[CustomerAmount]) -> None:
        """Add the plan of what `label` names: a period, or a period of a schedule."""
        self.summaries[label] = summary
        for one in customers:
            place = (one.customer, one.currency)
            total = self._customers.get(place)
            if total is None:
                total = self._customers[place] = CustomerTotal(one.customer, one.currency)
            total.lines += one.lines
            total.amount_minor += one.amount_minor
            total.periods[label] = total.periods.get(label, 0) + one.amount_minor

    @property
    def due(self) -> list[str]:
        """The labels of the plans that charge somebody."""
        return [label for label, summary in self.summaries.items() if summary.lines]

    @property
    def waived_and_due(self) -> dict[str, str]:
        """Labels of plans that charge somebody for a period that was waived, each with by whom and why."""
        return {label: waiver for label, waiver in self.waived.items() if label in self.due}

    @property
    def combined_hash(self) -> str:
        """SHA-256 over the hash of each plan that charges somebody: who approves it approves them all."""
        lines = (f"{label}\x1f{self.summaries[label].plan_hash}\x1e" for label in sorted(self.due))
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def customers(self) -> list[CustomerTotal]:
        """Return every customer who would be charged, by currency, the largest amount first."""
        return sorted(
            self._customers.values(), key=lambda one: (one.currency, -one.amount_minor, one.customer)
        )

    def totals(self) -> dict[str, dict[str, int]]:
        """Return lines and minor units over all plans, per currency."""
        totals: dict[str, dict[str, int]] = {}
        for summary in self.summaries.values():
            for currency, plan in summary.currencies.items():
                total = totals.setdefault(currency, {"lines": 0, "amount_minor": 0})
                total["lines"] += plan.lines
                total["amount_minor"] += plan.amount_minor
        return totals

    def document(self) -> dict[str, Any]:
        """Return everything as JSON: each plan, and up to 10,000 customers, the largest first."""
        customers = self.customers()
        return {
            "hash": self.combined_hash,
            "totals": self.totals(),
            "plans": {label: summary.document() for label, summary in self.summaries.items()},
            "waived": self.waived,
            "customers_in_all": len(customers),
            "customers": [
                {
                    "customer": one.customer,
                    "currency": one.currency,
                    "lines": one.lines,
                    "amount_minor": one.amount_minor,
                    "periods": one.periods,
                }
                for one in customers[:CUSTOMERS_IN_JSON_MAX]
            ],
        }

    def write_customers(self, path: Path) -> None:
        """Write every customer with what each plan charges them, as CSV. Raises InvalidInput."""
        labels = list(self.summaries)
        try:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.writer(file)
                writer.writerow(["customer", "currency", "lines", "amount_minor", *labels])
                for one in self.customers():
                    amounts = [one.periods.get(label, 0) for label in labels]
                    writer.writerow(
                        [neutral_cell(one.customer), one.currency, one.lines, one.amount_minor, *amounts]
                    )
        except OSError as error:
            raise InvalidInput(f"{str(path)!r} can't be written: {error}") from None


def render_period_plans(document: Mapping[str, Any]) -> Iterator["RenderableType"]:
    """Yield `PeriodPlans.document()`: what each plan comes to, then each customer's sum over all of them."""
    plans: Mapping[str, Mapping[str, Any]] = document["plans"]
    rows = [
        (label, currency.upper(), total["lines"], format_money(total["amount_minor"], currency))
        for label, plan in plans.items()
        for currency, total in plan["totals"].items()
    ]
    if rows:
        yield table(("period", "currency", "lines", "amount"), rows)
    skipped = [
        (label, lines, reason, REASONS.get(reason, ""))
        for label, plan in plans.items()
        for reason, lines in plan["skipped"].items()
    ]
    if skipped:
        yield table(("period", "lines", "not charged", ""), skipped)
    for label, waiver in document["waived"].items():
        yield f"{label} was {waiver}. Was it billed by hand? Then this would charge it again."
    yield from _render_customers(list(plans), document)
    for currency, total in document["totals"].items():
        yield f"in all: {counted(total['lines'], 'line')} of {format_money(total['amount_minor'], currency)}"


def _render_customers(labels: Sequence[str], document: Mapping[str, Any]) -> Iterator["RenderableType"]:
    shown = document["customers"][:CUSTOMERS_SHOWN_MAX]
    if not shown:
        return
    rows = [
        (
            one["customer"],
            *(_amount(one["periods"].get(label), one["currency"]) for label in labels),
            format_money(one["amount_minor"], one["currency"]),
        )
        for one in shown
    ]
    yield table(("customer", *labels, "in all"), rows, title="what each customer is charged")
    if (rest := document["customers_in_all"] - len(shown)) > 0:
        yield f"and {counted(rest, 'customer')} more: --customers FILE writes them all"


def _amount(amount_minor: int | None, currency: str) -> str:
    return "" if amount_minor is None else format_money(amount_minor, currency)
