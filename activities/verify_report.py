"""What a comparison of ledger and Stripe came to, for a terminal and for a script."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from activities.differences import Difference
from workflows.domain.money import format_money

DIFFERENCES_IN_TEXT = 20


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a comparison came to. Money is in minor units by currency, of succeeded and processing alone."""

    runs: tuple[tuple[str, str], ...]
    """Ids and phases of the runs that were compared."""
    account: str
    lines_selected: int
    lines_compared: int
    lines_paid: int
    lines_processing: int
    not_paid: tuple[Mapping[str, Any], ...]
    """Where lines stand that are not paid, why, and how many: `standing`, `reason`, `lines`."""
    open_charges: dict[str, int]
    pages_read: int
    refund_pages_read: int
    payment_intents_read: int
    """Of the whole account since shortly before the run: other business of it is among them."""
    payment_intents_of_run: int
    payment_intents_retrieved: int
    succeeded_at_stripe: int
    processing_at_stripe: int
    money_ledger: dict[str, int]
    money_stripe: dict[str, int]
    leftovers: int
    """Unconfirmed PaymentIntents that are not their charge's own: no money, and a sweep cancels them."""
    behind: int
    """Debits that Stripe has settled and the ledger still calls processing."""
    differences: tuple[Difference, ...]
    incomplete: tuple[str, ...]
    """What could not be read. Not empty: nothing is proved, whatever `differences` says."""

    @property
    def clean(self) -> bool:
        """Whether everything was read and nothing differs. Open charges are no difference."""
        return not self.differences and not self.incomplete

    @property
    def subject(self) -> str:
        """Return what was compared, in a few words."""
        if len(self.runs) == 1:
            [(run_id, phase)] = self.runs
            return f"{run_id} ({phase})"
        return f"{len(self.runs)} runs of {self.account}"

    @property
    def verdict(self) -> str:
        """Return `clean`, `differences` or `incomplete`."""
        if self.differences:
            return "differences"
        return "incomplete" if self.incomplete else "clean"

    def as_json(self) -> dict[str, Any]:
        """Return everything, every difference included, as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {
            "runs": [{"run": run_id, "phase": phase} for run_id, phase in self.runs],
            "verify": self.verdict,
            "clean": self.clean,
            "differences": [difference.as_json() for difference in self.differences],
            "incomplete": list(self.incomplete),
            "not_paid": [dict(row) for row in self.not_paid],
        }

    def as_text(self, *, differences_max: int = DIFFERENCES_IN_TEXT) -> str:
        """Return the report for a terminal, with the worst differences alone where there are many."""
        opened = ", ".join(f"{count} {state}" for state, count in self.open_charges.items()) or "none"
        rows = [
            f"{self.verdict}: {self.subject}",
            f"  lines compared           {self.lines_compared}",
            *self._outcome_rows(),
            f"  lines open               {opened}",
            f"  PaymentIntents of them   {self.payment_intents_of_run}",
            f"    succeeded at Stripe    {self.succeeded_at_stripe}",
            f"    processing at Stripe   {self.processing_at_stripe}",
            *self._money_rows(),
            f"  read of the account      {self.payment_intents_read} (pages: {self.pages_read})",
            f"  pages of refunds         {self.refund_pages_read}",
            f"  looked at again by id    {self.payment_intents_retrieved}",
            f"  leftovers, no money      {self.leftovers}",
        ]
        if self.behind:
            rows.append(f"  debits settled since     {self.behind}")
        rows += [f"  not read: {reason}" for reason in self.incomplete]
        rows += [f"  {difference.as_text()}" for difference in self.differences[:differences_max]]
        if len(self.differences) > differences_max:
            rows.append(f"  ... and {len(self.differences) - differences_max} more: see --json")
        return "\n".join(rows)

    def _outcome_rows(self) -> Iterator[str]:
        on_the_way = f", {self.lines_processing} on the way" if self.lines_processing else ""
        yield f"  lines paid               {self.lines_paid}{on_the_way}"
        yield f"  lines not paid           {sum(row['lines'] for row in self.not_paid)}"
        for row in self.not_paid:
            yield f"    {row['lines']:>6} {row['standing']}: {row['reason']}"

    def _money_rows(self) -> list[str]:
        return [
            f"  money in {currency.upper()}             "
            f"ledger {format_money(self.money_ledger.get(currency, 0), currency)}, "
            f"Stripe {format_money(self.money_stripe.get(currency, 0), currency)}"
            for currency in sorted(self.money_ledger.keys() | self.money_stripe.keys())
        ]
