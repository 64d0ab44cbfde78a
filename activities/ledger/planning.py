"""Plans in the making: lines gather in tables of one session, are decided about, and become the plan at once.

No transaction is open while lines gather. Once they have, one transaction freezes them, reads what a preview
shows, and either moves everything into the ledger or is rolled back: a preview is a plan that is not kept.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from activities.ledger.frozen_plan import STATEMENT_SECONDS_MAX, FrozenPlan, PlanTerms
from workflows.domain.window import WINDOW_SECONDS

_SQL = sql.load("planning.sql")

# In tables of the session, so that a planner that dies leaves nothing behind.
STAGING = """
CREATE TEMPORARY TABLE staged_lines (
    charge_id text COLLATE "C" NOT NULL, customer text COLLATE "C" NOT NULL, line text COLLATE "C" NOT NULL,
    source_row bigint NOT NULL, currency text NOT NULL, amount_minor bigint NOT NULL,
    payment_method text, description text, reason text
);
CREATE TEMPORARY TABLE staged_skips (
    source_row bigint NOT NULL, customer text, line text, reason text NOT NULL, detail text
);
CREATE TEMPORARY TABLE staged_owners (
    charge_id text COLLATE "C" NOT NULL, run_id text NOT NULL, state text NOT NULL, fence bigint NOT NULL,
    kept_because text  -- NULL: it may be taken over
);
CREATE TEMPORARY TABLE staged_customers (
    place bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text COLLATE "C" NOT NULL
);
CREATE TEMPORARY TABLE staged_methods (
    customer text COLLATE "C" NOT NULL, payment_method text, reason text, detail text
);
CREATE TEMPORARY TABLE plan_lines (
    charge_id text COLLATE "C" NOT NULL, customer text COLLATE "C" NOT NULL, line text COLLATE "C" NOT NULL,
    source_row bigint NOT NULL, currency text NOT NULL, amount_minor bigint NOT NULL,
    payment_method text, description text, reason text, owner_run text, owner_state text, owner_fence bigint,
    place bigint NOT NULL  -- how many lines to be charged there are up to this one, in the source's order
)
"""


class StagedLine(NamedTuple):
    """One line on its way into the ledger: a tuple in the order of `staged_lines`, as COPY takes it.

    `reason` is set where the line is not to be charged.
    """

    charge_id: str
    customer: str
    line: str
    source_row: int
    currency: str
    amount_minor: int
    payment_method: str | None
    description: str | None
    reason: str | None


class SkippedRow(NamedTuple):
    """A source row that has no charge in this run, and why."""

    source_row: int
    customer: str | None
    line: str | None
    reason: str
    detail: str | None


class FoundMethod(NamedTuple):
    """How a customer pays, or why they can't; with a `detail` their lines have no charge."""

    customer: str
    payment_method: str | None
    reason: str | None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class CustomerPage:
    """Some of the customers whose payment method is missing; `last` is where the next page begins."""

    customers: tuple[str, ...]
    last: int


class PlanLedger:
    """Where plans are made."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @asynccontextmanager
    async def planning(self, terms: PlanTerms) -> AsyncIterator["PlanWriter"]:
        """Yield a writer that gathers lines in staging tables of a session of its own."""
        async with self._pool.acquire() as connection:
            # Sessions are pooled: one whose planner was cut off while it tidied up still has its tables.
            await connection.execute(_SQL["drop_staging"])
            await connection.execute(STAGING)
            try:
                yield PlanWriter(connection, terms)
            finally:
                if not connection.is_closed():
                    await connection.execute(_SQL["drop_staging"])


class PlanWriter:
    """Gathers lines, asks what is missing, and freezes the whole."""

    def __init__(self, connection: Connection, terms: PlanTerms) -> None:
        self._connection = connection
        self._terms = terms

    async def stage(self, lines: Sequence[StagedLine]) -> None:
        """COPY a batch of lines into the staging table."""
        await self._copy("staged_lines", StagedLine._fields, lines)

    async def skip(self, rows: Sequence[SkippedRow]) -> None:
        """COPY a batch of source rows that have no charge, each with its reason."""
        await self._copy("staged_skips", SkippedRow._fields, rows)

    async def resolve(self, methods: Sequence[FoundMethod]) -> None:
        """COPY a batch of customers with how they pay."""
        await self._copy("staged_methods", FoundMethod._fields, methods)

    async def find_missing(self) -> int:
        """Set apart what other runs have, and return how many customers Stripe must be asked about."""
        terms = self._terms
        await self._execute("analyze_staged")
        await self._execute("find_owners", terms.run_id, terms.account, terms.period, float(WINDOW_SECONDS))
        await self._execute("find_customers")
        return int(await self._connection.fetchval(_SQL["count_customers"]))

    async def missing(self, after: int, *, limit: int) -> CustomerPage:
        """Return the next page of customers to ask about; the first is after 0."""
        rows = await self._connection.fetch(_SQL["read_customers"], after, limit)
        customers = tuple(row["customer"] for row in rows)
        return CustomerPage(customers, rows[-1]["place"] if rows else after)

    @asynccontextmanager
    async def freezing(self) -> AsyncIterator[FrozenPlan]:
        """Freeze what was gathered and yield it, in a transaction that is kept only if the plan was moved."""
        transaction = self._connection.transaction()
        await transaction.start()
        kept = False
        try:
            await self._execute("use_memory_for_plan")
            await self._execute("set_refused_apart")
            await self._execute("freeze_plan")
            await self._execute("analyze_plan")
            plan = FrozenPlan(self._connection, self._terms)
            yield plan
            kept = plan.moved
        finally:
            await (transaction.commit() if kept else transaction.rollback())

    async def _copy(self, table: str, columns: Sequence[str], records: Sequence[tuple[object, ...]]) -> None:
        if records:
            await self._connection.copy_records_to_table(table, columns=columns, records=records)

    async def _execute(self, name: str, *arguments: object) -> None:
        await self._connection.execute(_SQL[name], *arguments, timeout=STATEMENT_SECONDS_MAX)
