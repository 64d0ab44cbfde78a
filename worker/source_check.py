"""A source file, looked at before anything starts: what can't be billed, and what the rest adds up to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activities.sources import SourceProblem


@dataclass(slots=True)
class CheckedSource:
    """What a file would have a run do. `totals` maps a currency to its lines and minor units.

    Only the run itself finds out whether a customer exists and how they pay.
    """

    path: Path
    sha256: str
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
            "source": str(self.path),
            "source_sha256": self.sha256,
            "lines": self.lines,
            "skipped": {"can_not_be_billed": self.rows_skipped, "zero_amount": self.zero_amounts},
            "totals": {
                currency: {"lines": lines, "amount_minor": amount_minor}
                for currency, (lines, amount_minor) in sorted(self.totals.items())
            },
            "problems": [_problem_document(problem) for problem in self.problems],
        }


def check_source(path: Path) -> CheckedSource:
    """Read the whole file once for its hash and once for its rows.

    Raises:
        InvalidInput: The file can't be read or is empty. Rows that can't be billed are no exception: they are
            `problems`, all of them.
    """
    from activities.sources.csv_file import read_csv, sha256_of  # noqa: PLC0415 - other commands read no files

    resolved = path.expanduser().resolve()
    checked = CheckedSource(resolved, sha256_of(resolved))
    for item in read_csv(resolved):
        if isinstance(item, SourceProblem):
            checked.problems.append(item)
            continue
        checked.lines += 1
        checked.zero_amounts += item.amount_minor == 0
        total = checked.totals.setdefault(item.currency, [0, 0])
        total[0] += 1
        total[1] += item.amount_minor
    return checked


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
