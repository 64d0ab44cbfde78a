"""What is due, read from outside: every source yields these two kinds of values, in the order of its rows.

A source is hostile text until it is a `SourceLine`. What can't be billed exactly becomes a `SourceProblem`
with its row and reason, and never an exception: all of them are wanted at once. The same fault has the same
reason in every kind of source, since one reader (`rows.RowReader`) judges the cells of all.

A row's number is what its author would look for: the physical line, from 1, where a record of CSV or JSON
lines begins; the number of the record, from 1, in Parquet, a query's result or an entry point's rows. Where
the columns themselves are wrong, it is the header's: row 1 of a CSV file, row 0 where no header is a row.
"""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias


class SourceLine(NamedTuple):
    """One line that can be billed exactly. A tuple, since a million of them are made in one reading.

    `customer`, `line` and `currency` are canonical; `amount_minor` is in the unit Stripe counts in, from 0
    (whether to bill 0 is the planner's decision).
    """

    row: int
    customer: str
    line: str
    currency: str
    amount_minor: int
    payment_method: str | None
    description: str | None


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """One reason why one row can't be billed; a row may have several.

    `column` is None when the row as a whole is wrong; `customer` is canonical, and None when unclear.
    `reason` is one short printable line.

    `skippable` is False where the reading lost its footing (header, quoting, line ends): where the next
    record begins is then a guess, and text out of a description could pass for a row. Such a file must not be
    billed at all, not even by somebody who asked to skip invalid rows.
    """

    row: int
    column: str | None
    reason: str
    customer: str | None
    skippable: bool = True


Batch: TypeAlias = list[SourceLine | SourceProblem]


class Source(Protocol):
    """A place that lines are read from, as often as anybody asks; `opening.open_source` makes one.

    Both methods raise InvalidInput where the source as a whole can't be read, and RefusedToStart where it
    can't be reached now and might be later.
    """

    @property
    def spec(self) -> str:
        """The text that opens this source again, in another process too: paths in it are absolute."""

    async def fingerprint(self) -> str:
        """Return 64 hex digits that change with what would be read, as far as that can be known beforehand.

        Of a file, all of its bytes. Of a query, its text and the name of its database; of an entry point, its
        name, argument and version: whether the rows are the same again is then their author's business, and
        the plan's hash tells whether two plans agree.
        """

    def batches(self, rows_max: int) -> AsyncGenerator[Batch, None]:
        """Yield what is read, in order, about `rows_max` rows at once (1 or more), never an empty list.

        Whoever stops before the end closes it (`contextlib.aclosing`): a connection may be open. Memory stays
        flat, and nothing blocks the event loop for longer than a batch takes to judge. Of rows with the same
        customer and line, the first is the line and each later one a problem.
        """
