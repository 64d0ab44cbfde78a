"""The proxy's side of the ledger: admit a request before it leaves, record its answer afterwards.

Admitting holds the money and writes the audit's row in one transaction, shared by all requests that wait for
it. Recording may follow the reply: a proxy that dies in between leaves the outcome open, which holds.
"""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from activities.crash_points import ProxyPoint, reach
from activities.ledger import sql
from activities.ledger.database import Connection, Pool
from activities.ledger.group_commit import GroupCommit
from workflows.domain.cap import Outcome
from workflows.domain.errors import NothingWasSent, RefusedToStart

GATHER_SECONDS = 0.002  # a caller waits for this commit, so company is not worth more
RECORD_PAUSE_SECONDS_MAX = 5.0

_SQL = sql.load("cap.sql")
_LOG = logging.getLogger("chargeonce.proxy")

FORWARD = "forward"
ASK_FIRST = "ask_first"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, as far as deciding on it goes.

    `counts` where it may move money or change an amount that will. `intent` is what it would be counted for:
    a PaymentIntent's id, `create:KEY` or `refund:KEY`. `own` marks what the proxy asks for itself, `refused`
    is a refusal that was found in the request alone, with a detail for the caller.
    """

    call_id: str
    key_sha256: str
    method: str
    path: str
    account: str | None = None
    endpoint: str | None = None
    effect: str | None = None
    counts: bool = False
    idempotency_key: str | None = None
    intent: str | None = None
    amount: int | None = None
    currency: str | None = None
    own: bool = False
    refused: str | None = None
    refused_detail: str = ""


@dataclass(frozen=True, slots=True)
class Admission:
    """The decision on one request: `forward`, `ask_first`, or the code of a refusal.

    `asked_minor` is what it was about. `cap_minor` and `left_minor` stand where that was over a cap; without
    them the currency has none.
    """

    decision: str
    key_id: str | None
    run_id: str | None
    account: str | None
    asked_minor: int | None
    currency: str | None
    cap_minor: int | None
    left_minor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of one request, as it is recorded. Amounts in minor units; `charges` only from a lookup."""

    call_id: str
    outcome: Outcome
    counts: bool
    http_status: int | None = None
    code: str | None = None
    request_id: str | None = None
    replayed: bool = False
    intent: str | None = None
    intent_status: str | None = None
    amount: int | None = None
    amount_received: int | None = None
    currency: str | None = None
    latest_charge: str | None = None
    latency_ms: float | None = None
    charges: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Unresolved:
    """An intent whose money is held and whose outcome is to be looked up."""

    account: str
    intent: str
    status: str | None
    opened_at: datetime | None
    open_calls: int


class _Line:
    """One connection, kept for one statement at a time.

    Taking it from the pool and giving it back costs every request a task and a tenth of a millisecond.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._connection: Connection | None = None

    async def fetch(self, query: str, *arguments: object) -> "list[asyncpg.Record]":
        """Run a statement, on another connection if the kept one has gone."""
        if self._connection is not None and self._connection.is_closed():
            await self.give_back()
        if self._connection is None:
            self._connection = await self._pool.acquire()
        try:
            return await self._connection.fetch(query, *arguments)
        except asyncpg.PostgresError:
            raise
        except BaseException:  # it may be in the middle of something
            await self.give_back()
            raise

    async def give_back(self) -> None:
        """Return the connection to the pool, which closes it if it is broken."""
        kept, self._connection = self._connection, None
        if kept is not None:
            await self._pool.release(kept)


class CapLedger:
    """Admissions and answers of one proxy process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._admitting, self._recording_line = _Line(pool), _Line(pool)
        self.accounts: Mapping[str, str] = {}
        """Accounts that there is a real key for, each with its mode."""
        self._asks = GroupCommit(self._admit, subject=lambda ask: ask.call_id, gather_seconds=GATHER_SECONDS)
        self._answers = GroupCommit(
            self._record, subject=lambda told: told.call_id, gather_seconds=GATHER_SECONDS
        )
        self._recording: dict[str, asyncio.Task[None]] = {}
        self._latest_of: dict[str, str] = {}

    async def refuse_wrong_role(self) -> None:
        """Raise RefusedToStart where the database's role may not count money: nothing would get through."""
        role = await self._pool.fetchval(_SQL["find_role_without_rights"])
        if role is not None:
            raise RefusedToStart(
                f"the role {role} of CHARGEONCE_PROXY_DATABASE_URL may not count money in this ledger: "
                f"run `chargeonce migrate --proxy-role {role}` as the owner of its schema"
            )

    async def admit(self, ask: Ask) -> Admission:
        """Decide, hold and write down; returns once that is committed.

        Raises:
            NothingWasSent: The ledger can't be reached. If it did commit, the call is recorded as not sent.
        """
        if ask.intent is not None and (call_id := self._latest_of.get(ask.intent)) is not None:
            await self.recorded(call_id)  # what this process knows already must be counted first
        try:
            return await self._asks.submit(ask)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            self.record(Told(call_id=ask.call_id, outcome=Outcome.NOT_EXECUTED, counts=ask.counts))
            raise NothingWasSent(f"the ledger did not answer: {type(error).__name__}") from error

    def record(self, told: Told, *, asked_for: str | None = None) -> None:
        """Write an answer down, soon and as often as it takes; `asked_for` is the intent of its request."""
        task = asyncio.create_task(self._record_until_done(told))
        self._recording[told.call_id] = task
        for intent in {told.intent, asked_for} - {None}:
            self._latest_of[str(intent)] = told.call_id
        task.add_done_callback(lambda _: self._forget(told.call_id, {told.intent, asked_for}))

    @property
    def unrecorded(self) -> int:
        """How many answers wait to be committed."""
        return len(self._recording)

    async def recorded(self, call_id: str) -> None:
        """Return once the answer of a call is committed, if it is waiting to be."""
        if (task := self._recording.get(call_id)) is not None:
            await asyncio.shield(task)

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until all answers are committed, or give up; those left count as unknown."""
        if tasks := list(self._recording.values()):
            _, left = await asyncio.wait(tasks, timeout=timeout_seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        await self._admitting.give_back()
        await self._recording_line.give_back()

    async def unresolved(self, *, limit: int, older_than_seconds: float) -> list[Unresolved]:
        """Take intents whose hold waits for a lookup for at least so long (by the ledger's clock)."""
        rows = await self._pool.fetch(_SQL["take_unresolved"], limit, timedelta(seconds=older_than_seconds))
        return [Unresolved(**dict(row)) for row in rows]

    def _forget(self, call_id: str, intents: set[str | None]) -> None:
        self._recording.pop(call_id, None)
        for intent in intents:
            if intent is not None and self._latest_of.get(intent) == call_id:
                del self._latest_of[intent]

    async def _record_until_done(self, told: Told) -> None:
        pause_seconds = 0.1
        while True:
            try:
                await self._answers.submit(told)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
                _LOG.warning(
                    json.dumps({"event": "answer_not_recorded", "call": told.call_id, "why": str(error)})
                )
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RECORD_PAUSE_SECONDS_MAX)
            else:
                return

    async def _admit(self, asks: Sequence[Ask]) -> list[Admission]:
        rows = await self._admitting.fetch(
            _SQL["admit_calls"], [_ask_row(ask) for ask in asks], dict(self.accounts)
        )
        decided = {str(row["call_id"]): row for row in rows}
        return [_admission(decided[ask.call_id]) for ask in asks]

    async def _record(self, answers: Sequence[Told]) -> list[None]:
        reach(ProxyPoint.AFTER_REPLY)
        [(alarms,)] = await self._recording_line.fetch(
            _SQL["record_call_answers"], [_answer_row(told) for told in answers]
        )
        if alarms:
            _LOG.error(json.dumps({"event": "proxy_alarm", "alarms": alarms, "see": "vault_alarms"}))
        reach(ProxyPoint.AFTER_ANSWER)
        return [None] * len(answers)


def _admission(row: "asyncpg.Record") -> Admission:
    values = dict(row)
    del values["call_id"]
    return Admission(**values)


# Not asdict(), which copies deeply: it took a seventh of the proxy's time.
_ASK_FIELDS = tuple(field.name for field in fields(Ask) if field.name != "refused_detail")
_TOLD_FIELDS = tuple(field.name for field in fields(Told) if field.name != "charges")


def _ask_row(ask: Ask) -> dict[str, Any]:
    return {name: getattr(ask, name) for name in _ASK_FIELDS}


def _answer_row(told: Told) -> dict[str, Any]:
    row = {name: getattr(told, name) for name in _TOLD_FIELDS}
    return row if told.charges is None else row | {"charges": told.charges}
