"""The outbox: what is to be told about runs, and every try to tell it.

Rows are written by the database itself, in the transaction of the event that they tell of (migration 0005);
here they are taken, tried and ended.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.policies import DELIVERIES

_SQL = sql.load("notifications.sql")
WHO = "chargeonce"
LOST_AFTER_SECONDS = 2 * max(delivery.pause_max for delivery in DELIVERIES.values())


@dataclass(frozen=True, slots=True)
class Try:
    """One try to deliver one notification, committed before anything leaves."""

    notification_id: int
    attempt_no: int
    destination: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unattended:
    """Notifications of a run that wait: for `deliverer`, if it lives, or for nobody. `newest` is an id."""

    run_id: str
    account: str
    deliverer: str | None
    newest: int


@dataclass(frozen=True, slots=True)
class Retried:
    """Notifications of a run that wait anew, and who had taken some of them."""

    run_id: str
    account: str
    notifications: int
    deliverers: list[str]


class NotificationLedger:
    """The tables `notifications` and `delivery_attempts`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def claim(self, run_id: str, deliverer: str) -> list[tuple[int, str]]:
        """Take what waits, and return (notification id, destination). Idempotent for one deliverer.

        What another one took is taken over where it has begun no try for twice the longest pause between two.
        Should it live after all, a receiver sees a repetition under the same id.
        """
        rows = await self._pool.fetch(_SQL["claim_notifications"], run_id, deliverer, LOST_AFTER_SECONDS)
        return sorted((row["notification_id"], row["destination"]) for row in rows)

    async def waiting(self, run_id: str) -> int:
        """Return how many wait to be delivered."""
        return int(await self._pool.fetchval(_SQL["count_waiting_notifications"], run_id))

    async def unattended(self, after_seconds: float) -> list[Unattended]:
        """Return what has waited so long to be taken, or since its deliverer's last sign of life."""
        rows = await self._pool.fetch(_SQL["find_unattended"], after_seconds)
        return [Unattended(**dict(row)) for row in rows]

    async def release(self, deliverer: str) -> None:
        """Take back what a deliverer took that runs no more."""
        await self._pool.execute(_SQL["release_notifications"], deliverer)

    async def retry(self, run_id: str | None) -> list[Retried]:
        """Let what waits be delivered anew, and return what that is, by run.

        Of one run that is also what was given up; without one it is not, since that may be years old.
        """
        rows = await self._pool.fetch(_SQL["retry_notifications"], run_id)
        return [Retried(**dict(row)) for row in rows]

    async def begin(self, notification_id: int) -> Try | None:
        """Commit one more try; None where there is nothing to deliver any more."""
        row = await self._pool.fetchrow(_SQL["begin_delivery"], notification_id)
        return None if row is None else Try(notification_id=notification_id, **dict(row))

    async def end(self, one_try: Try, *, delivered: bool, detail: str) -> None:
        """Record what became of a try."""
        status = "delivered" if delivered else "failed"
        await self._pool.execute(
            _SQL["end_delivery"], one_try.notification_id, one_try.attempt_no, status, detail
        )

    async def give_up(self, notification_id: int) -> None:
        """Mark it given up, with an alarm among the run's events. A repeated call changes nothing."""
        await self._pool.execute(_SQL["give_up_notification"], notification_id, WHO)

    async def newest(self, *, run_id: str | None, limit: int) -> list[dict[str, Any]]:
        """Return up to `limit` notifications, of one run or of all, newest first."""
        return [dict(row) for row in await self._pool.fetch(_SQL["list_notifications"], run_id, limit)]
