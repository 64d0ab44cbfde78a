"""The inbox: verified events, each kept once, leased to whoever works through them, ended once.

The table is the queue. Nothing that has been acknowledged is anywhere else, and nothing is lost with whoever
took it: a lease runs out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from activities.ledger import sql
from activities.ledger.database import PERMANENT, Pool
from activities.ledger.group_commit import GroupCommit
from activities.ledger.rows import charge_from, columns, instant
from workflows.domain.charge import Charge
from workflows.domain.errors import ChargeonceError, invariant
from workflows.domain.webhook_event import WebhookEvent

GATHER_SECONDS = 0.004  # somebody waits for the acknowledgement
BATCH_EVENTS_MAX = 500
REASON_LENGTH_MAX = 500

_SQL = sql.load("inbox.sql")
_READ_CHARGES = sql.load("charges.sql")["read_charges"]


class LedgerAway(ChargeonceError):
    """The database did not take it and may take it later: connections, locks, shutdowns."""


class EventState(StrEnum):
    """Where an event stands."""

    WAITING = "waiting"
    UNMATCHED = "unmatched"  # of a charge that the ledger does not have; tried again
    DONE = "done"
    IGNORED = "ignored"  # not about a charge of ours
    PARKED = "parked"  # for people, who can let it be tried again


OPEN_STATES = frozenset({EventState.WAITING, EventState.UNMATCHED})


@dataclass(frozen=True, slots=True)
class Received:
    """A verified event and the account that it is of."""

    event: WebhookEvent
    account: str


@dataclass(frozen=True, slots=True)
class Claimed:
    """One leased event. `tries` is how often it was worked on before."""

    event_id: str
    account: str
    type: str
    object_kind: str | None
    payment_intent: str | None
    charge_id: str | None
    tries: int
    state: EventState
    claim: int


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of leased events: all of them the same. `wait_seconds` counts where they stay open."""

    events: tuple[Claimed, ...]
    state: EventState
    reason: str
    wait_seconds: float = 0.0


class InboxLedger:
    """The table `inbox_events`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._inserts = GroupCommit(
            self._insert,
            subject=lambda received: received.event.event_id,
            batch_size_max=BATCH_EVENTS_MAX,
            gather_seconds=GATHER_SECONDS,
        )
        self._ends = GroupCommit(self._end, subject=lambda ending: ending.events[0].event_id)

    async def keep(self, received: Received) -> bool:
        """Keep an event; return whether it was new, once that is committed either way.

        Raises:
            LedgerAway: It was not kept, or nobody knows: whoever delivers it has to do so again.
        """
        return await self._inserts.submit(received)

    async def claim(self, *, limit: int, lease_seconds: float) -> list[Claimed]:
        """Lease up to `limit` events that are due, and whatever else waits for the same objects."""
        rows = await self._pool.fetch(_SQL["claim_events"], limit, float(lease_seconds))
        return [Claimed(**{**dict(row), "state": EventState(row["state"])}) for row in rows]

    async def end(self, ending: Ending) -> None:
        """End leased events or put them off; those whose lease went to somebody else are left to them."""
        if ending.events:
            await self._ends.submit(ending)

    async def release(self, claims: Sequence[int]) -> None:
        """Give leases back whose holder has stopped working."""
        await self._pool.execute(_SQL["release_events"], list(claims))

    async def read_charges(self, charge_ids: Sequence[str]) -> dict[str, Charge]:
        """Return the charges of these ids as they stand now; what the ledger does not have is missing."""
        if not charge_ids:
            return {}
        rows = await self._pool.fetch(_READ_CHARGES, list(charge_ids))
        return {row["charge_id"]: charge_from(row) for row in rows}

    async def replay(self, event_ids: Sequence[str]) -> list[str]:
        """Let events be worked through again; return the ids of those that there are."""
        return [row["event_id"] for row in await self._pool.fetch(_SQL["replay_events"], list(event_ids))]

    async def find_in_state(self, state: EventState, *, limit: int) -> list[str]:
        """Return the ids of up to `limit` events in a state, oldest first."""
        rows = await self._pool.fetch(_SQL["find_events_in_state"], state, limit)
        return [row["event_id"] for row in rows]

    async def newest(
        self,
        *,
        states: Sequence[EventState],
        charge_id: str | None = None,
        payment_intent: str | None = None,
        limit: int,
    ) -> list[dict[str, Any]]:
        """Return up to `limit` events in these states, newest first."""
        rows = await self._pool.fetch(_SQL["list_events"], list(states), charge_id, payment_intent, limit)
        return [dict(row) for row in rows]

    async def read(self, event_id: str) -> dict[str, Any] | None:
        """Return one event with all that is known of it."""
        row = await self._pool.fetchrow(_SQL["read_event"], event_id)
        return None if row is None else dict(row)

    async def count(self) -> dict[str, int]:
        """Return how many events there are in each state."""
        return {row["state"]: row["events"] for row in await self._pool.fetch(_SQL["count_events"])}

    async def _insert(self, batch: Sequence[Received]) -> list[bool]:
        rows = columns([_row_of(received) for received in batch])
        try:
            kept = await self._pool.fetch(_SQL["insert_events"], *rows)
        except PERMANENT:
            raise
        except Exception as error:  # a server that went away shows in every class of them
            raise LedgerAway(f"the ledger did not take it: {type(error).__name__}") from error
        fresh = {row["event_id"] for row in kept}
        return [received.event.event_id in fresh for received in batch]

    async def _end(self, endings: Sequence[Ending]) -> list[None]:
        rows = [
            (
                event.event_id,
                event.claim,
                ending.state,
                _cut(ending.reason),
                ending.wait_seconds,
            )
            for ending in endings
            for event in ending.events
        ]
        invariant(all(ending.wait_seconds >= 0 for ending in endings), "nothing is due before now")
        await self._pool.execute(_SQL["end_events"], *columns(rows))
        return [None] * len(endings)


def _cut(reason: str) -> str:
    """What raised may speak of anything, and a text in the ledger holds no zero byte."""
    return reason.replace("\0", "")[:REASON_LENGTH_MAX]


def _row_of(received: Received) -> tuple[Any, ...]:
    event = received.event
    return (
        event.event_id,
        received.account,
        event.type,
        instant(event.created_epoch_seconds),
        event.object_kind,
        event.object_id,
        event.payment_intent,
        event.charge_id,
        event.request_id,
    )
