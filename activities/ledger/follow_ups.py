"""What runs wait for after their charging: begun, claimed, advanced, ended. One method per intent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from activities.ledger.rows import Row, charge_from, columns, instant
from workflows.domain.charge import Charge
from workflows.domain.errors import StaleWrite, invariant
from workflows.domain.follow_up import End, FollowUp, Kind, Outcome, Wait
from workflows.domain.retry_policy import Decline

_SQL = sql.load("follow_ups.sql")
OPEN_AT_ONCE_MAX = 200  # of which one event names every PaymentIntent that was handed over
READ_SECONDS_MAX = 60.0  # a run of a million lines may wait for tens of thousands


@dataclass(frozen=True, slots=True)
class Candidate:
    """A charge of which something may be waited for. `changed_at` is epoch seconds."""

    charge: Charge
    decline: Decline
    changed_at: float
    undetermined: bool
    """Whether a confirm of it may still do something, though it has been declined (invariant I12)."""


@dataclass(frozen=True, slots=True)
class Followed:
    """A follow-up with its charge as it was claimed or read: what the next step is decided from.

    `step` counts what is used up by now: `follow_up.step`, and every confirm since that was booked. `now` and
    `changed_at` are the ledger's clock in epoch seconds.
    """

    follow_up: FollowUp
    charge: Charge
    decline: Decline
    changed_at: float
    now: float
    step: int
    undetermined: bool
    """Whether a confirm of the charge may still do something, though it has been declined (invariant I12)."""
    confirmed_with: str | None
    """The payment method of the newest confirm."""


@dataclass(frozen=True, slots=True)
class FollowUpsDue:
    """How much a run waits for by the ledger's clock. Seconds are None where nothing has a time to come."""

    open: int
    retries: int
    customers: int
    debits: int
    due_now: int
    next_due_seconds: float | None
    next_due_epoch_seconds: float | None


@dataclass(frozen=True, slots=True)
class WaitingFor:
    """So many lines of a run wait for something of a kind, or did: then `outcome` says how that ended."""

    kind: str
    outcome: str | None
    lines: int
    due_at: datetime
    ends_at: datetime


class FollowUpLedger:
    """The `follow_ups` table."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def candidates(self, run_id: str, slice_no: int) -> list[Candidate]:
        """Return the charges of a slice of which something may be waited for and is not yet."""
        rows = await self._pool.fetch(
            _SQL["follow_up_candidates"], run_id, slice_no, timeout=READ_SECONDS_MAX
        )
        return [
            Candidate(charge_from(row), _decline_of(row), row["changed_at"].timestamp(), row["undetermined"])
            for row in rows
        ]

    async def open(self, run_id: str, waits: Sequence[tuple[Charge, Wait]]) -> int:
        """Begin to wait for each charge that still stands as it was read; return for how many."""
        opened = 0
        for start in range(0, len(waits), OPEN_AT_ONCE_MAX):
            batch = waits[start : start + OPEN_AT_ONCE_MAX]
            opened += len(await self._pool.fetch(_SQL["open_follow_ups"], run_id, *_columns_of(batch)))
        return opened

    async def note_not_retried(self, ends: Sequence[tuple[Charge, End]]) -> None:
        """Record why charges are not tried again, once for each decline."""
        if ends:
            rows: list[tuple[Any, ...]] = [
                (charge.charge_id, charge.confirm_version, "not_retried", end.reason) for charge, end in ends
            ]
            await self._pool.execute(_SQL["note_not_retried"], *columns(rows))

    async def due(self, run_id: str) -> FollowUpsDue:
        """Return how much a run waits for, and how much of it can be looked at now."""
        row = await self._pool.fetchrow(_SQL["follow_ups_due"], run_id, timeout=READ_SECONDS_MAX)
        return FollowUpsDue(**dict(row or {}))

    async def claim(self, run_id: str, *, limit: int) -> list[Followed]:
        """Take up to `limit` follow-ups that can be looked at now, their charges under a new fence."""
        rows = await self._pool.fetch(_SQL["claim_follow_ups"], run_id, limit, timeout=READ_SECONDS_MAX)
        return [_followed_from(row) for row in rows]

    async def read(self, follow_up_id: int) -> Followed:
        """Return a follow-up with its charge as it is now."""
        row = await self._pool.fetchrow(_SQL["read_followed"], follow_up_id)
        invariant(row is not None, f"follow-up {follow_up_id} is in the ledger")
        return _followed_from(row)  # type: ignore[arg-type]

    async def advance(self, followed: Followed, wait: Wait) -> None:
        """Go on waiting, until a later time.

        Raises:
            StaleWrite: Somebody else has claimed its charge, or the charge has moved on.
        """
        found = await self._pool.fetchval(
            _SQL["advance_follow_up"],
            followed.follow_up.follow_up_id,
            followed.charge.fence,
            wait.rule,
            wait.step,
            instant(wait.since),
            instant(wait.due_at),
            instant(wait.ends_at),
            wait.reason,
        )
        _refuse_stale(found, followed)

    async def postpone(self, followed: Followed, *, seconds: float, reason: str) -> None:
        """Look again in so many seconds: what was to be done now could not be.

        Raises:
            StaleWrite: Somebody else has claimed its charge.
        """
        found = await self._pool.fetchval(
            _SQL["postpone_follow_up"],
            followed.follow_up.follow_up_id,
            followed.charge.fence,
            float(seconds),
            reason,
        )
        _refuse_stale(found, followed)

    async def end(self, followed: Followed, end: End, *, then: Wait | None = None) -> None:
        """Wait no longer, or for something else from now on: in one transaction, with nothing in between.

        Raises:
            StaleWrite: Somebody else has claimed its charge.
        """
        charge = followed.charge
        async with self._pool.acquire() as connection, connection.transaction():
            found = await connection.fetchval(
                _SQL["end_follow_up"],
                followed.follow_up.follow_up_id,
                charge.fence,
                end.outcome,
                end.reason,
                end.outcome == Outcome.STILL_PROCESSING,
            )
            _refuse_stale(found, followed)
            if then is not None:
                opened = await connection.fetch(
                    _SQL["open_follow_ups"], charge.run_id, *_columns_of([(charge, then)])
                )
                _refuse_stale(opened, followed)

    async def summary(self, run_id: str) -> list[WaitingFor]:
        """Return what a run waits for, and what came of what it has waited for."""
        rows = await self._pool.fetch(_SQL["follow_up_summary"], run_id)
        return [WaitingFor(**dict(row)) for row in rows]


def _refuse_stale(found: object, followed: Followed) -> None:
    if not found:
        charge = followed.charge
        raise StaleWrite(f"charge {charge.charge_id} is no longer {charge.state} under fence {charge.fence}")


def _columns_of(waits: Sequence[tuple[Charge, Wait]]) -> list[list[Any]]:
    return columns(
        [
            (
                charge.charge_id,
                charge.confirm_version,
                wait.kind.value,
                wait.rule,
                wait.step,
                instant(wait.since),
                instant(wait.due_at),
                instant(wait.ends_at),
                wait.reason,
            )
            for charge, wait in waits
        ]
    )


def _decline_of(row: Row) -> Decline:
    return Decline(
        code=row["decline_code"],
        advice=row["decline_advice"],
        network_advice=row["decline_network_advice"],
    )


def _followed_from(row: Row) -> Followed:
    charge = charge_from(row)
    return Followed(
        follow_up=FollowUp(
            follow_up_id=row["follow_up_id"],
            kind=Kind(row["kind"]),
            step=row["step"],
            since=row["since"].timestamp(),
            due_at=row["follow_up_due_at"].timestamp(),
            ends_at=row["ends_at"].timestamp(),
        ),
        charge=charge,
        decline=_decline_of(row),
        changed_at=row["changed_at"].timestamp(),
        now=row["now"].timestamp(),
        step=row["step"] + charge.confirm_version - row["booked_version"],
        undetermined=row["undetermined"],
        confirmed_with=row["confirmed_with"],
    )
