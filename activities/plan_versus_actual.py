"""The plan beside what became of it: every line that was to be charged and was not, with its reason."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from activities.ledger.database import Pool
from activities.ledger.plan_outcomes import count_other_amounts, frozen_totals, planned_outcomes
from activities.ledger.rows import Row
from workflows.domain.states import IN_FLIGHT, NOT_STARTED, State

NO_REASON = "no reason recorded"


@dataclass(frozen=True, slots=True)
class Difference:
    """Lines that were planned and not charged, for one reason."""

    standing: str  # a state of the charge, or in_flight, not_started, taken_over
    reason: str
    lines: int
    amount_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencyComparison:
    """One currency, in minor units. Planned = charged + differences + unexplained, in lines and in money."""

    planned_lines: int
    planned_minor: int
    cap_minor: int
    charged_lines: int
    charged_minor: int
    differences: tuple[Difference, ...]
    unexplained_lines: int
    unexplained_minor: int


@dataclass(frozen=True, slots=True)
class PlanVersusActual:
    """What a run did of its plan. `other_amounts` counts charges that moved another amount than planned."""

    run_id: str
    currencies: Mapping[str, CurrencyComparison]
    other_amounts: int

    @property
    def adds_up(self) -> bool:
        """Whether every difference has its reason, and no amount is another than planned."""
        return self.other_amounts == 0 and not any(
            found.unexplained_lines or found.unexplained_minor for found in self.currencies.values()
        )

    def document(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        document = asdict(self)
        document["run"] = document.pop("run_id")
        return {**document, "adds_up": self.adds_up}


async def compare(pool: Pool, run_id: str) -> PlanVersusActual:
    """Compare a planned run with its plan as it stands now; it reads the ledger and changes nothing."""
    outcomes: defaultdict[str, list[Row]] = defaultdict(list)
    for row in await planned_outcomes(pool, run_id):
        outcomes[row["currency"]].append(row)
    frozen = {row["currency"]: row for row in await frozen_totals(pool, run_id)}
    currencies = {
        currency: _compare_currency(frozen.get(currency), outcomes[currency])
        for currency in sorted(frozen.keys() | outcomes.keys())
    }
    return PlanVersusActual(run_id, currencies, await count_other_amounts(pool, run_id))


def _compare_currency(frozen: Row | None, outcomes: Sequence[Row]) -> CurrencyComparison:
    paid = [row for row in outcomes if row["standing"] == State.SUCCEEDED]
    planned_lines, planned_minor, cap_minor = (
        (0, 0, 0) if frozen is None else (frozen["lines"], frozen["amount_minor"], frozen["cap_minor"])
    )
    return CurrencyComparison(
        planned_lines=planned_lines,
        planned_minor=planned_minor,
        cap_minor=cap_minor,
        charged_lines=sum(row["lines"] for row in paid),
        charged_minor=sum(row["amount_minor"] for row in paid),
        differences=tuple(
            Difference(
                _standing(row["standing"]), row["reason"] or NO_REASON, row["lines"], row["amount_minor"]
            )
            for row in outcomes
            if row["standing"] != State.SUCCEEDED
        ),
        unexplained_lines=planned_lines - sum(row["lines"] for row in outcomes),
        unexplained_minor=planned_minor - sum(row["amount_minor"] for row in outcomes),
    )


def _standing(state: str) -> str:
    if state in IN_FLIGHT:
        return "in_flight"
    return "not_started" if state in NOT_STARTED else state
