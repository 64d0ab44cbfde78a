"""What a pack adds up to: added up while it is written, and again from its rows when it is checked."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from workflows.domain.states import State


class ChargeTotals:
    """Lines and minor units of charges.csv, by currency and state."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()
        self._amounts: dict[str, dict[str, list[int]]] = {}
        self._returned: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one row."""
        state, currency = row["state"], row["currency"]
        self.lines[state] += 1
        amount = self._amounts.setdefault(currency, {}).setdefault(state, [0, 0])
        amount[0] += 1
        amount[1] += row["amount_minor"]
        self._returned[currency] += row["returned_minor"] or 0

    def as_json(self) -> dict[str, Any]:
        """Return, by currency, what is paid, what went back, and lines and amounts by state."""
        return {
            currency: {
                "paid_minor": states.get(State.SUCCEEDED, [0, 0])[1],
                "processing_minor": states.get(State.PROCESSING, [0, 0])[1],
                "returned_minor": self._returned[currency],
                "by_state": {
                    state: {"lines": lines, "amount_minor": amount_minor}
                    for state, (lines, amount_minor) in sorted(states.items())
                },
            }
            for currency, states in sorted(self._amounts.items())
        }


class SettlementTotals:
    """Rows of settlement.csv by standing, and minor units by the balance's currency and type."""

    def __init__(self) -> None:
        self._standings: Counter[str] = Counter()
        self._missing: dict[str, list[int]] = {}
        self._amounts: dict[str, dict[str, list[int]]] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one row."""
        self._standings[row["standing"]] += 1
        if row["balance_transaction"] is None:
            missing = self._missing.setdefault(row["currency"], [0, 0])
            missing[0] += 1
            missing[1] += row["amount_minor"]
            return
        amounts = self._amounts.setdefault(row["settlement_currency"], {}).setdefault(
            row["type"], [0, 0, 0, 0, 0]
        )
        amounts[0] += 1
        for at, name in enumerate(("gross_minor", "fee_minor", "net_minor"), start=1):
            amounts[at] += row[name]
        amounts[4] += row["net_minor"] if row["payout"] else 0

    def as_json(self) -> dict[str, Any]:
        """Return rows by standing, paid lines without a transaction, and sums by currency and type."""
        return {
            "rows_by_standing": dict(sorted(self._standings.items())),
            "without_transaction": {
                currency: {"lines": lines, "amount_minor": amount_minor}
                for currency, (lines, amount_minor) in sorted(self._missing.items())
            },
            "totals": {
                currency: {
                    **_sums([sum(each) for each in zip(*by_type.values(), strict=True)]),
                    "by_type": {kind: _sums(amounts) for kind, amounts in sorted(by_type.items())},
                }
                for currency, by_type in sorted(self._amounts.items())
            },
        }


def _sums(amounts: list[int]) -> dict[str, int]:
    names = ("transactions", "gross_minor", "fee_minor", "net_minor", "paid_out_minor")
    return dict(zip(names, amounts, strict=True))
