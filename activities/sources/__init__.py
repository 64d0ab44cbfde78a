"""What is due, read from outside: every source yields these two kinds of values, in the order of its rows.

A source is hostile text until it is a `SourceLine`. What can't be billed exactly becomes a `SourceProblem`
with its row and reason, and never an exception: all of them are wanted at once.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line that can be billed exactly.

    `row` is the physical line of the file, from 1, where the record begins. `customer`, `line` and `currency`
    are canonical; `amount_minor` is in the unit Stripe counts in, from 0 (whether to bill 0 is the planner's
    decision).
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
