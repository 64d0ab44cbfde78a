"""What people and rules decide about a run, each decision with who, when and why in the same statement.

Every method is idempotent: a decision that stands already changes nothing, and its own retry leaves no second
event. Somebody else's, or for another reason, is on record as well, and hears who was first. One that the
run's state does not allow changes nothing either, and says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.echo import echo
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.mode import CHARGING_PHASES
from workflows.domain.money import format_money
from workflows.domain.plan_hash import refuse_hash

_SQL = sql.load("control.sql")

OPEN_PHASES = frozenset({"locked", "planned", "charging", "settling", "retrying"})
# What a hold is called in the audit trail.
HOLD_ACTIONS = {
    "paused": "paused",
    "canary": "canary_held",
    "breaker": "breaker_opened",
    "cap": "cap_reached",
}
AGAIN = "_again"  # after the action that a decision found standing
ENDS_HOLD = ("resumed", "canary_released", "breaker_closed", "cap_raised")
RECOVER_SECONDS_MAX = 600.0  # as many charges get a new fence as were ever claimed and are open


@dataclass(frozen=True, slots=True)
class RunStanding:
    """Where a run stands, without its counts: cheap enough to be asked twice a second."""

    phase: str
    hold: str | None
    hold_reason: str | None
    canceling: bool
    canary_released: bool = False
    owner: str = ""
    plan_hash: str | None = None
    approved_hash: str | None = None
    restored: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the run has not ended."""
        return self.phase in OPEN_PHASES

    @property
    def may_begin(self) -> bool:
        """Whether first sends are allowed: the database has the last word when an intent commits."""
        return self.phase in CHARGING_PHASES and self.hold is None and not self.canceling


@dataclass(frozen=True, slots=True)
class Ruling:
    """What became of a decision. `refused` says why it was not taken; without it, it stands.

    `already` says who had decided the same before, when and why; None for the first, and for its own retry.
    """

    changed: bool = False
    refused: str | None = None
    already: str | None = None


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One line of a run's audit trail."""

    event_id: int
    at: datetime
    action: str
    who: str
    reason: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CanaryStanding:
    """How the lines of slice 0 stand; those skipped at planning are left out."""

    lines: int
    declined: int
    not_paid_otherwise: int
    unknown: int


class ControlLedger:
    """The columns of `billing_runs` that people decide about, `run_totals`' caps, and `run_events`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def standing(self, run_id: str) -> RunStanding:
        """Return where the run stands. Raises RefusedToStart where there is none of that id."""
        row = await self._pool.fetchrow(_SQL["standing"], run_id)
        if row is None:
            raise RefusedToStart(f"there is no run {run_id!r} in the ledger: see `chargeonce run list`")
        return RunStanding(**dict(row))

    async def approve(self, run_id: str, plan_hash: str, *, who: str, reason: str) -> Ruling:
        """Let a planned run charge, if `plan_hash` is its plan's."""
        if await self._pool.fetchval(_SQL["approve"], run_id, plan_hash, who, reason) is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        if run.plan_hash is None:
            return Ruling(refused=f"{run_id} has no plan yet, so there is nothing to approve")
        refused = refuse_hash(run_id, run.plan_hash, plan_hash)
        if refused is not None:
            return Ruling(refused=refused)
        if run.approved_hash == plan_hash:
            return await self._stands(
                run_id, "it was approved already", ("approved",), who=who, reason=reason
            )
        return _refuse(run_id, run, "approved")

    async def hold(self, run_id: str, kind: str, *, who: str, reason: str) -> Ruling:
        """Let the run start nothing new. `kind` is paused, canary, breaker or cap.

        A pause replaces a hold by a rule; nothing else replaces one, and the run is held all the same.
        """
        action = HOLD_ACTIONS[kind]
        if await self._pool.fetchval(_SQL["hold"], run_id, kind, who, reason, action) is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        if run.is_open and not run.canceling and run.hold is not None:
            if kind != "paused":
                return Ruling()  # a rule's, which nobody said
            return await self._stands(run_id, "it was paused already", ("paused",), who=who, reason=reason)
        return _refuse(run_id, run, "held")

    async def resume(self, run_id: str, *, who: str, reason: str) -> Ruling:
        """Lift whatever hold there is; after the canary's verdict that lets the rest follow it."""
        if await self._pool.fetchval(_SQL["resume"], run_id, who, reason) is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        if run.is_open and not run.canceling and run.hold is None:
            return await self._stands(run_id, "it was not held", ENDS_HOLD, who=who, reason=reason)
        return _refuse(run_id, run, "resumed")

    async def close_breaker(self, run_id: str, *, who: str, reason: str) -> Ruling:
        """Lift a breaker's hold, and no other that may have come in its place."""
        changed = await self._pool.fetchval(_SQL["close_breaker"], run_id, who, reason) is not None
        return Ruling(changed=changed)

    async def release_canary(self, run_id: str, *, who: str, reason: str) -> Ruling:
        """Let the rest of the run follow its canary."""
        if await self._pool.fetchval(_SQL["release_canary"], run_id, who, reason) is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        return Ruling() if run.canary_released else _refuse(run_id, run, "let past its canary")

    async def request_cancel(self, run_id: str, *, who: str, reason: str) -> Ruling:
        """Let the run end: nothing new starts, and what is open is to be canceled. Never undone."""
        if await self._pool.fetchval(_SQL["request_cancel"], run_id, who, reason) is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        if run.is_open and run.canceling:
            return await self._stands(
                run_id, "it was being canceled already", ("cancel_requested",), who=who, reason=reason
            )
        return _refuse(run_id, run, "canceled")

    async def raise_cap(self, run_id: str, caps_minor: Mapping[str, int], *, who: str, reason: str) -> Ruling:
        """Raise the caps of some currencies (minor units); all of them or none.

        A cap never goes down. A run that is held at its cap goes on.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(_SQL["lock_caps"], run_id)
            caps_before = {row["currency"]: row["cap_minor"] for row in rows}
            if caps_before:
                refused = refuse_caps(run_id, caps_before, caps_minor)
                if refused is not None:
                    return Ruling(refused=refused)
                event = await connection.fetchval(
                    _SQL["raise_caps"], run_id, list(caps_minor), list(caps_minor.values()), who, reason
                )
                if event is not None:
                    return Ruling(changed=True)
        if caps_before:
            return await self._stands(
                run_id, "its cap is as high already", ("cap_raised",), who=who, reason=reason
            )
        run = await self.standing(run_id)
        if run.is_open and not run.canceling:
            return Ruling(refused=f"{run_id} has no plan with anything to charge, and so no cap")
        return _refuse(run_id, run, "given a higher cap")

    async def recover(self, run_id: str, *, owner_before: str, owner: str, who: str, reason: str) -> Ruling:
        """Let another workflow own a run whose own has died, and fence whatever survived of that one.

        Owners are run ids of workflows' first executions.
        """
        changed = await self._pool.fetchval(
            _SQL["recover"], run_id, owner_before, owner, who, reason, timeout=RECOVER_SECONDS_MAX
        )
        if changed is not None:
            return Ruling(changed=True)
        run = await self.standing(run_id)
        if run.is_open and run.owner == owner:
            return Ruling()
        if run.is_open:
            return Ruling(refused=f"{run_id} belongs to the execution {run.owner}, not to {owner_before}")
        return _refuse(run_id, run, "recovered")

    async def _stands(
        self, run_id: str, stands: str, actions: tuple[str, ...], *, who: str, reason: str
    ) -> Ruling:
        """Record that somebody decided what stood already, and say by whom, when and why it does."""
        event = await self._pool.fetchrow(_SQL["newest_event"], run_id, list(actions))
        if event is not None and (event["who"], event["reason"]) == (who, reason):
            return Ruling()  # the same words: a retry of the very decision that stands
        action, found = (actions[0], 0) if event is None else (event["action"], event["event_id"])
        await self._pool.execute(_SQL["note_again"], run_id, f"{action}{AGAIN}", who, reason, found)
        if event is None:
            return Ruling(already=stands)
        done, at = action.replace("_", " "), f"{event['at']:%Y-%m-%d %H:%M:%S}"
        return Ruling(already=f"{stands}: {done} by {event['who']} at {at}: {event['reason']}")

    async def canary(self, run_id: str) -> CanaryStanding:
        """Return how the lines of slice 0 stand."""
        row = await self._pool.fetchrow(_SQL["read_canary"], run_id)
        return CanaryStanding(**dict(row or {}))

    async def events(self, run_id: str) -> list[RunEvent]:
        """Return the run's audit trail, oldest first."""
        return [RunEvent(**dict(row)) for row in await self._pool.fetch(_SQL["run_events"], run_id)]


def refuse_caps(run_id: str, caps_before: Mapping[str, int], caps_minor: Mapping[str, int]) -> str | None:
    """Return why these caps (minor units) can't be had, or None. One that is as high already can."""
    unknown = sorted(caps_minor.keys() - caps_before.keys())
    if unknown:
        named = ", ".join(echo(currency) for currency in unknown)
        return f"{run_id} charges nothing in {named}: it has caps for {', '.join(caps_before)}"
    lower = sorted(currency for currency, cap in caps_minor.items() if cap < caps_before[currency])
    if lower:
        stands = ", ".join(format_money(caps_before[currency], currency) for currency in lower)
        return f"a cap never goes down, and that of {run_id} stands at {stands}"
    return None


def _refuse(run_id: str, run: RunStanding, decided: str) -> Ruling:
    """Say why a decision matched no row. Raises StaleWrite where nothing stands against it any more."""
    if not run.is_open:
        return Ruling(refused=f"{run_id} has ended ({run.phase}): it can not be {decided} any more")
    if run.canceling:
        return Ruling(refused=f"{run_id} is being canceled: it can not be {decided} any more")
    raise StaleWrite(f"{run_id} changed just now, to {run.phase}: decide again")
