"""A source, looked at before anything starts: what can't be billed, and what the rest adds up to."""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from activities.sources import Source, SourceLine, SourceProblem

BATCH_ROWS = 2_000


@dataclass(slots=True)
class CheckedSource:
    """What a source would have a run do. `totals` maps a currency to its lines and minor units.

    Only a plan finds out whether a customer exists, how they pay and who has charged them already.
    """

    spec: str
    sha256: str
    was_read: bool = True
    lines: int = 0
    zero_amounts: int = 0
    totals: dict[str, list[int]] = field(default_factory=dict)
    problems: list[SourceProblem] = field(default_factory=list)

    @property
    def rows_skipped(self) -> int:
        """How many rows can't be billed; one row may have several problems."""
        return len({problem.row for problem in self.problems})

    @property
    def is_readable(self) -> bool:
        """Whether every problem is one of a row, so that the other rows mean what they say."""
        return all(problem.skippable for problem in self.problems)

    def document(self) -> dict[str, Any]:
        """Return the preview as the JSON of `--preview` and of refusals."""
        return {
            "source": self.spec,
            "source_sha256": self.sha256,
            "lines": self.lines,
            "skipped": {"can_not_be_billed": self.rows_skipped, "zero_amount": self.zero_amounts},
            "totals": {
                currency: {"lines": lines, "amount_minor": amount_minor}
                for currency, (lines, amount_minor) in sorted(self.totals.items())
            },
            "problems": [_problem_document(problem) for problem in self.problems],
        }


async def check_source(source: Source) -> CheckedSource:
    """Read the whole source once for its hash and once for its rows.

    Raises:
        InvalidInput: The source can't be read or is empty. Rows that can't be billed are no exception: they
            are `problems`, all of them.
        RefusedToStart: The source can't be reached now.
    """
    checked = CheckedSource(source.spec, await source.fingerprint())
    async with aclosing(source.batches(BATCH_ROWS)) as batches:
        async for batch in batches:
            for item in batch:
                _count(checked, item)
    return checked


def _count(checked: CheckedSource, item: SourceLine | SourceProblem) -> None:
    if isinstance(item, SourceProblem):
        checked.problems.append(item)
        return
    checked.lines += 1
    checked.zero_amounts += item.amount_minor == 0
    total = checked.totals.setdefault(item.currency, [0, 0])
    total[0] += 1
    total[1] += item.amount_minor


async def not_looked_at(source: Source) -> CheckedSource:
    """Return what is known of a source without reading its rows. Raises as `check_source`."""
    return CheckedSource(source.spec, await source.fingerprint(), was_read=False)


def describe_problem(problem: SourceProblem) -> str:
    """Return one line for people: row, column, reason."""
    column = f", column {problem.column}" if problem.column else ""
    return f"row {problem.row}{column}: {problem.reason}"


def _problem_document(problem: SourceProblem) -> Mapping[str, Any]:
    return {
        "row": problem.row,
        "column": problem.column,
        "customer": problem.customer,
        "reason": problem.reason,
    }
