"""A plan that is decided and not yet kept: what a preview shows of it, and the move into the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import asyncpg

from activities.ledger import sql
from activities.ledger.database import Connection
from activities.ledger.runs import Run, run_from
from workflows.domain.cap import cap_for
from workflows.domain.errors import StaleWrite, invariant
from workflows.domain.money import RULES
from workflows.domain.skips import KEPT_BY_ANOTHER_RUN

_SQL = sql.load("planning.sql")

STATEMENT_SECONDS_MAX = 1_800.0  # a million lines are judged, hashed and moved in one statement each


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerms:
    """Whose plan it is and how it is cut. `slice_lines` is 1 to 5,000; `canary_lines` 0 means no canary."""

    run_id: str
    account: str
    period: str
    slice_lines: int
    canary_lines: int = 0


@dataclass(frozen=True, slots=True)
class PlanTotal:
    """What is to be charged in one currency, and the most that may be."""

    currency: str
    lines: int
    amount_minor: int
    cap_minor: int


class CustomerAmount(NamedTuple):
    """What one customer is to be charged in one currency, over all lines: there may be a million of them."""

    customer: str
    currency: str
    lines: int
    amount_minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """What is kept beside the lines. `approved_because` None leaves the plan waiting for approval.

    `nothing_due` says why a plan has nothing to charge; None where it has, or where it is the source's doing.
    """

    selected: int
    plan_hash: str
    planned_by: str
    approved_because: str | None
    summary: Mapping[str, Any]
    nothing_due: str | None = None


class FrozenPlan:
    """The lines of a plan, inside the transaction that decides about them. `moved`: they were kept."""

    def __init__(self, connection: Connection, terms: PlanTerms) -> None:
        self._connection = connection
        self._terms = terms
        self.moved = False

    async def plan_hash(self) -> str:
        """Return SHA-256, in hex, over what every line would send, or why it sends nothing."""
        return str(await self._connection.fetchval(_SQL["hash_plan"], timeout=STATEMENT_SECONDS_MAX))

    async def totals(self) -> list[PlanTotal]:
        """Return what is to be charged per currency, in minor units."""
        rows = await self._fetch("plan_totals")
        invariant(not any(row["without_method"] for row in rows), "a line is charged by a payment method")
        caps = cap_for({row["currency"]: row["amount_minor"] for row in rows})
        return [
            PlanTotal(row["currency"], row["lines"], row["amount_minor"], caps[row["currency"]])
            for row in rows
        ]

    async def largest(self, *, lines_max: int) -> list[asyncpg.Record]:
        """Return the largest lines of each currency: currency, customer, line, amount_minor."""
        return await self._fetch("plan_largest", lines_max)

    async def customers(self) -> list[CustomerAmount]:
        """Return what each customer is to be charged, by customer and currency."""
        return [CustomerAmount(*row) for row in await self._fetch("plan_customers")]

    async def skips(self) -> dict[str, int]:
        """Return how many lines are not charged, by reason, the most frequent first."""
        return {row["reason"]: row["lines"] for row in await self._fetch("plan_skips")}

    async def takeovers(self) -> dict[str, int]:
        """Return how many lines are taken over, by the state in which an earlier run left them."""
        return {row["state"]: row["lines"] for row in await self._fetch("plan_takeovers")}

    async def kept(self) -> list[asyncpg.Record]:
        """Return owner_run, reason and lines of what other runs of the period keep, the most first."""
        return await self._fetch("plan_kept", sorted(KEPT_BY_ANOTHER_RUN))

    async def below_minimum(self) -> int:
        """Return how many lines are to be charged although they are below Stripe's documented minimum."""
        minimums = {code: rule.minimum_minor for code, rule in RULES.items() if rule.minimum_minor}
        [row] = await self._fetch("plan_below_minimum", list(minimums), list(minimums.values()))
        return int(row["count"])

    async def compare(
        self, earlier_period: str, *, change_percent: float, lines_max: int
    ) -> list[asyncpg.Record] | None:
        """Return how lines differ from an earlier period's, or None where nobody was billed in it.

        Rows name kind (new, gone, changed, same) and count, each with up to `lines_max` of its widest.
        """
        account = self._terms.account
        if not await self._connection.fetchval(_SQL["was_period_billed"], account, earlier_period):
            return None
        kept = sorted(KEPT_BY_ANOTHER_RUN)
        return await self._fetch("compare_periods", account, earlier_period, change_percent, lines_max, kept)

    async def move(self, record: PlanRecord, totals: list[PlanTotal]) -> Run:
        """Move the lines into the ledger and freeze the plan; it is kept when the transaction ends.

        Raises:
            StaleWrite: The run is not being planned any more, or another run has got a line meanwhile.
        """
        invariant(not self.moved, "a plan is moved once")
        run_id = self._terms.run_id
        try:
            row = await self._move_lines(record, totals)
        except (asyncpg.CheckViolationError, asyncpg.UniqueViolationError) as error:
            raise StaleWrite(f"the plan of {run_id} met another one; it is made again") from error
        # Raised in here, so that nothing of a plan that comes too late is kept.
        if row is None:
            raise StaleWrite(f"run {run_id} is not being planned any more")
        self.moved = True
        return run_from(row)

    async def _move_lines(self, record: PlanRecord, totals: list[PlanTotal]) -> asyncpg.Record | None:
        terms = self._terms
        cut = (terms.slice_lines, terms.canary_lines)
        await self._execute("insert_planned", terms.run_id, terms.account, terms.period, *cut)
        [taken] = await self._fetch("take_over", terms.run_id, *cut)
        if taken["taken"] != taken["wanted"]:
            raise StaleWrite(f"lines that {terms.run_id} was to take over have moved on; it is planned again")
        await self._execute("insert_skipped", terms.run_id)
        await self._execute(
            "insert_totals",
            terms.run_id,
            [total.currency for total in totals],
            [total.lines for total in totals],
            [total.amount_minor for total in totals],
            [total.cap_minor for total in totals],
        )
        approved = record.approved_because is not None
        rows = await self._fetch(
            "finish_plan",
            terms.run_id,
            record.selected,
            record.plan_hash,
            approved,
            record.planned_by,
            *cut,
            record.nothing_due,
        )
        if rows:
            await self._record_events(record)
        return rows[0] if rows else None

    async def _record_events(self, record: PlanRecord) -> None:
        run_id, who = self._terms.run_id, record.planned_by
        reason = f"{record.selected} lines were read"
        await self._execute("record_plan_event", run_id, "planned", who, reason, dict(record.summary))
        if record.approved_because is not None:
            detail = {"plan_hash": record.plan_hash}
            await self._execute("record_plan_event", run_id, "approved", who, record.approved_because, detail)

    async def _fetch(self, name: str, *arguments: object) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(
            _SQL[name], *arguments, timeout=STATEMENT_SECONDS_MAX
        )
        return rows

    async def _execute(self, name: str, *arguments: object) -> None:
        await self._connection.execute(_SQL[name], *arguments, timeout=STATEMENT_SECONDS_MAX)
