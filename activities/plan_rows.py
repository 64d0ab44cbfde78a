"""From a source's rows to staged lines: the path of every one of a million rows, so it does little."""

import asyncio
from collections.abc import AsyncIterator, Iterable

from activities.crash_points import CrashPoint, reach
from activities.ledger.planning import PlanWriter, SkippedRow, StagedLine
from activities.sources import SourceLine, SourceProblem
from workflows.contracts import BelowMinimum, RunRequest
from workflows.domain.errors import InvalidInput
from workflows.domain.keys import ChargeIds
from workflows.domain.skips import AmountRule, SkipReason

PROBLEMS_NAMED_MAX = 20

Rows = list[SourceLine | SourceProblem]

_BELOW_MINIMUM = {
    BelowMinimum.CARRY_FORWARD: SkipReason.BELOW_MINIMUM_CARRIED_FORWARD,
    BelowMinimum.WAIVE: SkipReason.BELOW_MINIMUM_WAIVED,
    BelowMinimum.CHARGE: None,
}


class RowStager:
    """Stages the rows of one source and counts them."""

    def __init__(self, request: RunRequest, writer: PlanWriter) -> None:
        self._writer = writer
        self._charge_id_of = ChargeIds(request.account, request.period).of
        self._reason_for = AmountRule(_BELOW_MINIMUM[request.below_minimum]).reason_for
        self._problems = _Problems(skip=request.skip_invalid)
        self.selected = 0

    async def stage(self, batches: AsyncIterator[Rows]) -> None:
        """Stage everything, one batch ahead of the database.

        Raises:
            InvalidInput: Rows can't be billed exactly and were not asked to be skipped; up to 20 are named.
        """
        coming = asyncio.ensure_future(_next(batches))
        try:
            while (batch := await coming) is not None:
                coming = asyncio.ensure_future(_next(batches))
                await self._stage_batch(batch)
                reach(CrashPoint.PLAN_WHILE_STREAMING)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
        self._problems.refuse_if_any()

    async def _stage_batch(self, batch: Rows) -> None:
        lines = [self._line(row) for row in batch if isinstance(row, SourceLine)]
        skipped = self._problems.take(row for row in batch if isinstance(row, SourceProblem))
        self.selected += len(lines) + len(skipped)
        await self._writer.stage(lines)
        await self._writer.skip(skipped)

    def _line(self, row: SourceLine) -> StagedLine:
        return StagedLine(
            self._charge_id_of(row.customer, row.line),
            row.customer,
            row.line,
            row.row,
            row.currency,
            row.amount_minor,
            row.payment_method,
            row.description,
            self._reason_for(row.amount_minor, row.currency),
        )


class _Problems:
    """Gathers what can't be billed: one skipped row per source row, or the reason for refusing the source."""

    def __init__(self, *, skip: bool) -> None:
        self._skip = skip
        self._last_row = 0
        self._named: list[str] = []
        self._count = 0

    def take(self, problems: Iterable[SourceProblem]) -> list[SkippedRow]:
        rows: list[SkippedRow] = []
        for problem in problems:
            if not self._skip or not problem.skippable:
                self._count += 1
                if len(self._named) < PROBLEMS_NAMED_MAX:
                    self._named.append(f"row {problem.row}: {problem.reason}")
            elif problem.row != self._last_row:
                reason = _reason_of(problem)
                rows.append(SkippedRow(problem.row, problem.customer, None, reason, problem.reason))
            self._last_row = problem.row
        return rows

    def refuse_if_any(self) -> None:
        if self._count:
            raise InvalidInput(f"{self._count} problems in the source: {'; '.join(self._named)}")


def _reason_of(problem: SourceProblem) -> SkipReason:
    is_currency = problem.column == "currency"
    return SkipReason.CURRENCY_UNSUPPORTED if is_currency else SkipReason.CAN_NOT_BE_BILLED


async def _next(batches: AsyncIterator[Rows]) -> Rows | None:
    return await anext(batches, None)
