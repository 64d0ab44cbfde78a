"""Vault keys in the ledger: issued, revoked, listed, and the audit of what was done with them.

Of a key only its SHA-256 and its public id ever come here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from activities.ledger import sql
from activities.ledger.database import Pool
from workflows.domain.errors import InvalidInput, RefusedToStart, invariant
from workflows.domain.vault import Scope
from workflows.domain.vault_keys import Mode, VaultKey

if TYPE_CHECKING:
    from workflows.contracts import RunKey

_SQL = sql.load("vault.sql")


@dataclass(frozen=True, slots=True)
class KeyUse:
    """One use of derived keys: what they may do.

    `phases`: where a run must stand to get one; none means that the key is the account's, and no run's.
    `spends`: whether money may move by it, out of the run's own budget and once its plan is approved.
    `approved_for`: states of charges. Somebody approves each such key, and it has a budget of its own, of at
    most what the charges in these states come to.
    """

    name: str
    scope: Scope
    allow: frozenset[str]
    phases: tuple[str, ...] = ()
    spends: bool = False
    approved_for: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """How the newest key of a run and use stands."""

    key_id: str
    serial: int
    expired: bool
    revoked: bool
    revoked_by: str | None
    revoked_reason: str | None

    @property
    def valid(self) -> bool:
        """Whether the proxy would take it."""
        return not (self.expired or self.revoked)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """A key for a use that is no run's. Caps are in minor units by currency; none: no money may move."""

    key: VaultKey
    account: str
    allow: frozenset[str]
    caps_minor: Mapping[str, int]
    daily: bool
    label: str
    expires_seconds: float


class VaultLedger:
    """The `vault_` tables, as those who issue keys see them; the proxy has doors of its own."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def issue_derived(
        self, key: VaultKey, serial: int, run: "RunKey", use: KeyUse, *, who: str, expires_seconds: float
    ) -> bool:
        """Issue a key and return whether this call did; not where it was there, or may not be (yet)."""
        arguments: list[object] = [key.key_id, key.sha256, use.scope.value, serial, key.mode.value]
        arguments += [sorted(use.allow), use.name, who, expires_seconds, run.account]
        if not use.phases:
            return await self._pool.fetchrow(_SQL["issue_account_key"], *arguments) is not None
        arguments += [run.run_id, use.spends, list(use.phases)]
        return await self._pool.fetchrow(_SQL["issue_run_key"], *arguments) is not None

    async def issue_approved(
        self,
        key: VaultKey,
        serial: int,
        run: "RunKey",
        use: KeyUse,
        *,
        caps_minor: Mapping[str, int] | None,
        who: str,
        reason: str,
        expires_seconds: float,
    ) -> dict[str, int]:
        """Issue a key of a run that somebody approved, and return what it may move, by currency.

        Earlier ones for the use are revoked with it.

        Args:
            key: What is stored of the key.
            serial: Which one of this use it is.
            run: Whose it is.
            use: One with `approved_for`.
            caps_minor: What it may move, minor units; None is all that its charges come to.
            who: Who approved it.
            reason: Why.
            expires_seconds: How long it is good for.

        Raises:
            InvalidInput: More is asked for than the charges come to.
            RefusedToStart: There are no such charges, the run does not stand there, or the key was there.
        """
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(
                _SQL["approvable_amounts"], run.run_id, run.account, list(use.phases), list(use.approved_for)
            )
            most = {row["currency"]: row["amount_minor"] for row in rows}
            caps = most if caps_minor is None else dict(caps_minor)
            if not caps or not most:
                states = " or ".join(use.approved_for)
                raise RefusedToStart(f"run {run.run_id} has no charges that are {states}: nothing to approve")
            for currency, cap_minor in caps.items():
                if not 0 < cap_minor <= most.get(currency, 0):
                    raise InvalidInput(
                        f"{cap_minor} {currency} can't be approved for {use.name}: "
                        f"its charges come to {most.get(currency, 0)} (minor units)"
                    )
            await connection.fetch(_SQL["revoke_keys_of_run"], run.run_id, who, reason, use.name, None)
            issued = await connection.fetchval(
                _SQL["issue_approved_key"],
                *(key.key_id, key.sha256, use.scope.value, serial, key.mode.value, sorted(use.allow)),
                *(use.name, who, expires_seconds, run.account, run.run_id, reason),
            )
            if issued is None:
                raise RefusedToStart(f"somebody approved a key for {use.name} of {run.run_id} just now")
            budgets = [(key.key_id, currency, cap, False) for currency, cap in sorted(caps.items())]
            await connection.executemany(_SQL["insert_budget"], budgets)
        return caps

    async def newest(self, run: "RunKey", use: KeyUse, mode: Mode) -> IssuedKey | None:
        """Return the newest key of a run for a use, None where there never was one."""
        run_id = run.run_id if use.phases else None
        row = await self._pool.fetchrow(
            _SQL["newest_derived_key"], run_id, run.account, use.scope.value, mode.value, use.name
        )
        return None if row is None else IssuedKey(**dict(row))

    async def issue(self, new: NewKey, *, who: str) -> tuple[datetime, datetime]:
        """Issue a key that is no run's and return when it was issued and when it expires."""
        async with self._pool.acquire() as connection, connection.transaction():
            row = await connection.fetchrow(
                _SQL["issue_key"],
                new.key.key_id,
                new.key.sha256,
                Scope.CUSTOM.value,
                new.account,
                new.key.mode.value,
                sorted(new.allow),
                new.key.key_id if new.caps_minor else None,
                new.label,
                who,
                new.expires_seconds,
            )
            await connection.executemany(
                _SQL["insert_budget"],
                [(new.key.key_id, code, cap, new.daily) for code, cap in sorted(new.caps_minor.items())],
            )
        issued = dict(row or {})
        invariant(issued, "an insert returns its row")
        return issued["issued_at"], issued["expires_at"]

    async def revoke(self, key_id: str, *, who: str, reason: str) -> bool:
        """Revoke a key and return whether it was valid until now.

        Raises:
            RefusedToStart: There is no such key.
        """
        if await self._pool.fetchrow(_SQL["revoke_key"], key_id, who, reason) is not None:
            return True
        if await self._pool.fetchrow(_SQL["find_key"], key_id, None) is None:
            raise RefusedToStart(f"there is no vault key {key_id!r}: see `chargeonce vault list`")
        return False

    async def revoke_for_run(
        self, run_id: str, *, who: str, reason: str, use: KeyUse | None = None, keep: str | None = None
    ) -> list[str]:
        """Revoke the keys of a run, for one use or all, but for the one to keep; return their ids."""
        rows = await self._pool.fetch(
            _SQL["revoke_keys_of_run"], run_id, who, reason, None if use is None else use.name, keep
        )
        return [row["key_id"] for row in rows]

    async def revoke_for_account(
        self,
        account: str,
        use: KeyUse,
        mode: Mode,
        *,
        who: str,
        reason: str,
        keep: str,
        derived: Sequence[str],
        issuer: str,
    ) -> list[str]:
        """Revoke an account's own keys for one use: `derived`, or issued by `issuer`; return ids."""
        about = (account, who, reason, use.name, use.scope.value, mode.value, keep)
        rows = await self._pool.fetch(_SQL["revoke_keys_of_account"], *about, list(derived), issuer)
        return [row["key_id"] for row in rows]

    async def list(self, *, run_id: str | None, everything: bool, limit: int) -> Sequence[dict[str, Any]]:
        """Return keys, newest first, with their budgets; without `everything` those that are valid."""
        return [dict(row) for row in await self._pool.fetch(_SQL["list_keys"], run_id, everything, limit)]

    async def forgotten_serials(self) -> int:
        """Return a serial below which keys may have been issued that a restore has made the ledger forget."""
        return await self._pool.fetchval(_SQL["forgotten_serials"])  # type: ignore[no-any-return]

    async def runs_with_keys(self) -> Sequence[tuple[str, str]]:
        """Return the id and account of each run, in whatever phase, that has a key which the proxy takes."""
        rows = await self._pool.fetch(_SQL["runs_with_keys"])
        return [(row["run_id"], row["account"]) for row in rows]

    async def has_charging_key(self, run_id: str) -> bool:
        """Return whether a run ever had a key that charges: whether the proxy is its backstop."""
        return bool(await self._pool.fetchval(_SQL["has_charging_key"], run_id))

    async def standing(self, budget: str) -> Sequence[dict[str, Any]]:
        """Return a budget by currency: cap, settled, held. A run's budget has the run's id."""
        return [dict(row) for row in await self._pool.fetch(_SQL["budget_standing"], budget)]

    async def audit(
        self, *, run_id: str | None, key_id: str | None, since: datetime | None, limit: int
    ) -> Sequence[dict[str, Any]]:
        """Return calls, newest first."""
        rows = await self._pool.fetch(_SQL["read_audit"], run_id, key_id, since, limit)
        return [dict(row) for row in rows]
