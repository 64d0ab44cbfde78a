"""What a comparison of ledger and Stripe came to, for a terminal and for a script."""

from dataclasses import dataclass
from typing import Any

from activities.differences import Difference

DIFFERENCES_IN_TEXT = 20


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a comparison came to. Money is in minor units by currency, of succeeded and processing alone."""

    run_id: str
    account: str
    period: str
    phase: str
    lines_selected: int | None
    lines_compared: int
    open_charges: dict[str, int]
    pages_read: int
    payment_intents_read: int
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
    def verdict(self) -> str:
        """Return `clean`, `differences` or `incomplete`."""
        if self.differences:
            return "differences"
        return "incomplete" if self.incomplete else "clean"

    def as_json(self) -> dict[str, Any]:
        """Return everything, every difference included, as plain values."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return values | {
            "verify": self.verdict,
            "clean": self.clean,
            "differences": [difference.as_json() for difference in self.differences],
            "incomplete": list(self.incomplete),
        }

    def as_text(self, *, differences_max: int = DIFFERENCES_IN_TEXT) -> str:
        """Return the report for a terminal, with the worst differences alone where there are many."""
        opened = ", ".join(f"{count} {state}" for state, count in self.open_charges.items()) or "none"
        rows = [
            f"{self.verdict}: {self.run_id} ({self.phase})",
            f"  lines compared           {self.lines_compared}",
            f"  open charges             {opened}",
            f"  PaymentIntents at Stripe {self.payment_intents_read} (pages: {self.pages_read})",
            f"  looked at again by id    {self.payment_intents_retrieved}",
            f"  succeeded at Stripe      {self.succeeded_at_stripe}",
            f"  processing at Stripe     {self.processing_at_stripe}",
            *self._money_rows(),
            f"  leftovers, no money      {self.leftovers}",
        ]
        if self.behind:
            rows.append(f"  debits settled since     {self.behind}")
        rows += [f"  not read: {reason}" for reason in self.incomplete]
        rows += [f"  {difference.as_text()}" for difference in self.differences[:differences_max]]
        if len(self.differences) > differences_max:
            rows.append(f"  ... and {len(self.differences) - differences_max} more: see --json")
        return "\n".join(rows)

    def _money_rows(self) -> list[str]:
        return [
            f"  money in {currency}             "
            f"ledger {self.money_ledger.get(currency, 0)}, Stripe {self.money_stripe.get(currency, 0)}"
            for currency in sorted(self.money_ledger.keys() | self.money_stripe.keys())
        ]
