"""Planning: stream the source into the ledger, with a reason for every line that will not be charged.

Lines gather in staging tables of one session and become the plan in one transaction, so a killed planner
leaves nothing behind and starts again. Stripe is asked for missing payment methods between batches, when no
transaction is open.
"""

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from activities.crash_points import CrashPoint, reach
from activities.first_error import first_error
from activities.gateway.findings import PaymentMethodKind
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.runs import PlanWriter, Run, RunLedger, SkippedRow, StagedLine
from activities.limiter import Endpoint, Limiter
from activities.sources import SourceLine, SourceProblem
from activities.sources.csv_file import read_csv, sha256_of
from workflows.contracts import RunRequest
from workflows.domain.errors import InvalidInput, NothingWasSent
from workflows.domain.keys import Identity

BATCH_ROWS = 1_000
LOOKUPS_AT_ONCE = 32
LOOKUP_TRIES_MAX = 5
PROBLEMS_NAMED_MAX = 20


class Planner:
    """Turns a run's source into its plan."""

    def __init__(
        self, *, ledger: RunLedger, gateway: StripeGateway, limiter: Limiter, account: StripeAccount
    ) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._limiter = limiter
        self._account = account

    async def plan(self, request: RunRequest) -> Run:
        """Plan the run and return its row.

        Raises:
            InvalidInput: The source is not what was hashed, or has rows that can't be billed exactly and
                were not asked to be skipped. Nothing has been planned then.
        """
        path = Path(request.source)
        await _refuse_changed(path, request.source_sha256)
        digest, selected, problems = hashlib.sha256(), 0, _Problems(skip=request.skip_invalid)
        async with self._ledger.planning(request.run_id, slice_size=request.slice_size) as writer:
            rows = _rows(path)
            while batch := await asyncio.to_thread(lambda: list(islice(rows, BATCH_ROWS))):
                lines = [row for row in batch if isinstance(row, SourceLine)]
                skipped = problems.take(row for row in batch if isinstance(row, SourceProblem))
                selected += len(lines) + len(skipped)
                staged = await self._stage(writer, request, lines)
                await writer.skip(skipped)
                for line in staged:
                    digest.update(_plan_line(line).encode())
                reach(CrashPoint.PLAN_WHILE_STREAMING)
            problems.refuse_if_any()
            # Once more: what was read between the first look and now is what was asked for, or nothing is.
            await _refuse_changed(path, request.source_sha256)
            reach(CrashPoint.PLAN_BEFORE_COMMIT)
            run = await writer.finish(selected=selected, plan_hash=digest.hexdigest())
        reach(CrashPoint.PLAN_AFTER_COMMIT)
        return run

    async def _stage(
        self, writer: PlanWriter, request: RunRequest, lines: list[SourceLine]
    ) -> list[StagedLine]:
        places = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def stage(line: SourceLine) -> StagedLine:
            payment_method, reason = line.payment_method, None
            if line.amount_minor == 0:
                reason = "zero_amount"
            elif payment_method is None:
                async with places:
                    payment_method, reason = await self._find_payment_method(line.customer)
            return _staged(request, line, payment_method, reason)

        with first_error():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(stage(line)) for line in lines]
        staged = [task.result() for task in tasks]
        await writer.stage(staged)
        return staged

    async def _find_payment_method(self, customer: str) -> tuple[str | None, str | None]:
        for _ in range(LOOKUP_TRIES_MAX):
            await self._limiter.acquire(Endpoint.CUSTOMERS)
            finding = await self._gateway.payment_method_of(self._account, customer)
            if finding.payment_method is not None:
                return finding.payment_method, None
            if finding.kind is not PaymentMethodKind.UNKNOWN:
                return None, _SKIP_REASONS[finding.kind]
            self._limiter.slow_down(Endpoint.CUSTOMERS, retry_after_seconds=None)
        raise NothingWasSent(f"Stripe does not say how {customer} pays: {finding.reason}")


_SKIP_REASONS = {
    PaymentMethodKind.NONE: "no_payment_method",
    PaymentMethodKind.SEVERAL: "several_payment_methods",
    PaymentMethodKind.CUSTOMER_DELETED: "customer_deleted",
    PaymentMethodKind.CUSTOMER_MISSING: "customer_missing",
}


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
                rows.append(
                    SkippedRow(problem.row, problem.customer, None, "can_not_be_billed", problem.reason)
                )
            self._last_row = problem.row
        return rows

    def refuse_if_any(self) -> None:
        if self._count:
            raise InvalidInput(f"{self._count} problems in the source: {'; '.join(self._named)}")


async def _refuse_changed(path: Path, sha256: str) -> None:
    if await asyncio.to_thread(sha256_of, path) != sha256:
        raise InvalidInput(f"the source {str(path)!r} has changed since the run was asked for")


def _rows(path: Path) -> Iterator[SourceLine | SourceProblem]:
    return iter(read_csv(path))


def _staged(
    request: RunRequest, line: SourceLine, payment_method: str | None, reason: str | None
) -> StagedLine:
    identity = Identity.of(request.account, line.customer, request.period, line.line)
    return StagedLine(
        charge_id=identity.charge_id,
        account=identity.account,
        customer=identity.customer,
        period=identity.period,
        line=identity.line,
        source_row=line.row,
        currency=line.currency,
        amount_minor=line.amount_minor,
        payment_method=payment_method,
        description=line.description,
        skip_reason=reason,
    )


def _plan_line(line: StagedLine) -> str:
    parts = (line.charge_id, line.currency, line.amount_minor, line.payment_method, line.skip_reason)
    return "\x1f".join(str(part) for part in parts) + "\n"
