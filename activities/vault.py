"""The vault keys of runs: issued when a run first needs one, derived wherever one is used, stored nowhere.

Each key speaks for one run of one account and for one use, and what it may move is the database's to say: a
charging key spends from the run's budget, which comes from the totals of the plan that was approved.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pydantic import SecretStr

from activities.ledger.vault import IssuedKey, KeyUse, NewKey, VaultLedger
from workflows.domain.errors import CredentialsRefused, RefusedToStart, invariant
from workflows.domain.vault import ENDPOINTS, SCOPES, Scope
from workflows.domain.vault_keys import (
    CHANCE_BYTES,
    Mode,
    VaultKey,
    derive_vault_key,
    parse_vault_key,
    random_vault_key,
)

if TYPE_CHECKING:
    from workflows.contracts import RunKey

EXPIRES = timedelta(days=120)  # beyond the last day of any retry policy; the close of a run revokes its keys
ISSUER = "chargeonce"

READS = frozenset(endpoint for endpoint in ENDPOINTS if endpoint.startswith("GET "))

CHARGING = KeyUse(
    "charging", Scope.BILLING, SCOPES[Scope.BILLING], phases=("charging", "settling", "retrying"), spends=True
)
PLANNING = KeyUse("planning", Scope.PLANNING, SCOPES[Scope.PLANNING], phases=("locked", "planned"))
PREVIEWING = KeyUse("previewing", Scope.PLANNING, SCOPES[Scope.PLANNING])
RECONCILING = KeyUse(
    "reconciling",
    Scope.RECONCILE,
    SCOPES[Scope.RECONCILE],
    phases=("charging", "settling", "retrying", "closed"),
)
# After a restore of the ledger leftovers are canceled wherever their run stands: the same keys, in any phase.
RESTORING = replace(RECONCILING, phases=("locked", "planned", *RECONCILING.phases, "failed"))
READING = KeyUse("reading", Scope.CUSTOM, READS)
# What reconciliation resends goes out under the run's charging key; where that is gone, under one of these,
# capped at what is in flight. What the run's budget holds for a PaymentIntent goes on counting there, once.
RESENDING = KeyUse(
    "resending",
    Scope.RECONCILE,
    SCOPES[Scope.RECONCILE] | {"POST /v1/payment_intents", "POST /v1/payment_intents/{id}/confirm"},
    phases=("charging", "settling", "retrying", "failed"),
    approved_for=("creating", "confirming"),
)
REFUNDING = KeyUse(
    "refunding",
    Scope.REFUND,
    SCOPES[Scope.REFUND],
    phases=("charging", "settling", "retrying", "closed"),
    # a duplicate may be of a charge that is anything but paid, says the ledger
    approved_for=("succeeded", "review", "declined", "canceled", "refused", "needs_customer", "processing"),
)


def refunding(request_id: str) -> KeyUse:
    """Return the use of one refund request: each has a key of its own, capped at its own amount."""
    return replace(REFUNDING, name=f"refund/{request_id}")


# What a rotation may replace: the rest is approved one by one.
ROTATED_OF_RUNS = {use.name: use for use in (CHARGING, PLANNING, RECONCILING)}
ROTATED_OF_ACCOUNTS = {use.name: use for use in (READING, PREVIEWING)}


@dataclass(frozen=True, slots=True)
class CustomKey:
    """A key for another job or agent: the only time that the key itself is seen."""

    key: SecretStr
    key_id: str
    issued_at: datetime
    expires_at: datetime


class RunVault:
    """Issues, derives and rotates the keys of runs, and those by which an account is only read."""

    def __init__(
        self, ledger: VaultLedger, *, secret: SecretStr, mode: Mode, expires: timedelta = EXPIRES
    ) -> None:
        """Prepare; nothing is issued before it is needed.

        Args:
            ledger: Where keys are issued.
            secret: The vault secret, 32 bytes or more, the same in every process that works on runs.
            mode: Whether the proxy's key moves real money.
            expires: How long a key is good for; a run that takes longer has its key rotated.
        """
        self._ledger = ledger
        self._secret = secret
        self._mode = mode
        self._expires = expires

    async def key_for(self, run: "RunKey", use: KeyUse) -> SecretStr:
        """Return the run's key for a use, issued now if it never was.

        Raises:
            RefusedToStart: The run does not stand where it may have one: its plan is not approved, or it has
                ended; or the use is one that somebody approves, and nobody has.
            CredentialsRefused: Its key was revoked or has expired, which only `rotate` mends: a key that
                somebody took away must not come back by itself.
        """
        for _ in range(2):  # the second time for a key that another process issued meanwhile
            newest = await self._ledger.newest(run, use, self._mode)
            serial = 0 if newest is None else newest.serial
            if newest is not None:
                text = self._derive(run, use, serial)
                if newest.valid and _parsed(text.get_secret_value()).key_id == newest.key_id:
                    return text
                if use.phases or newest.revoked:
                    raise _refused(run, use, newest)
            if use.approved_for:
                raise RefusedToStart(f"nobody has approved a vault key for {use.name} of run {run.run_id}")
            following = await self._following(use, serial)
            if await self._issue(run, use, following, who=ISSUER) is not None:
                return self._derive(run, use, following)
        raise RefusedToStart(_no_key(run, use))

    async def rotate(self, run: "RunKey", use: KeyUse, *, who: str, reason: str) -> tuple[str, list[str]]:
        """Issue the run's next key for a use, then revoke the earlier ones; return its id, and theirs.

        Processes that work on the run take it with the next piece of work that they begin.

        Of a use that is no run's, the account's keys are meant.

        Raises:
            RefusedToStart: The run does not stand where it may have a key.
        """
        newest = await self._ledger.newest(run, use, self._mode)
        serial = await self._following(use, 0 if newest is None else newest.serial)
        key_id = await self._issue(run, use, serial, who=who)
        if key_id is None:
            raise RefusedToStart(f"{_no_key(run, use)}; or somebody rotated it just now")
        if use.phases:
            earlier = await self._ledger.revoke_for_run(
                run.run_id, who=who, reason=reason, use=use, keep=key_id
            )
        else:
            serials = range(1, 1 if newest is None else newest.serial + 1)
            texts = [self._derive(run, use, serial).get_secret_value() for serial in serials]
            earlier = await self._ledger.revoke_for_account(
                run.account,
                use,
                self._mode,
                who=who,
                reason=reason,
                keep=key_id,
                derived=[_parsed(text).key_id for text in texts],
                issuer=ISSUER,
            )
        return key_id, earlier

    async def replace_all(self, run: "RunKey", *, who: str, reason: str) -> list[str]:
        """Take every key that sends for a run from whoever has it; return the ids of those that were revoked.

        The run gets new ones where it stands such that it may have them. What somebody approved to be resent
        has to be approved again; a refund keeps its key, which sends that one refund and nothing else.
        """
        revoked: list[str] = []
        for use in (CHARGING, PLANNING, RESTORING, RESENDING):
            kept = None
            if not use.approved_for and await self._ledger.newest(run, use, self._mode) is not None:
                with suppress(RefusedToStart):  # it has passed that phase: then it gets none
                    kept, earlier = await self.rotate(run, use, who=who, reason=reason)
                    revoked += earlier
            # Of the other mode too: a live key must not stay because nobody said that this is about those.
            revoked += await self._ledger.revoke_for_run(
                run.run_id, who=who, reason=reason, use=use, keep=kept
            )
        return revoked

    async def approve(
        self,
        run: "RunKey",
        use: KeyUse,
        *,
        who: str,
        reason: str,
        caps_minor: Mapping[str, int] | None = None,
    ) -> tuple[str, dict[str, int]]:
        """Issue the run's next key for a use that somebody approves; return its id, and what it may move.

        Earlier keys for the use are revoked with it: two approvals do not add up. `caps_minor` (minor units
        by currency) may ask for less than what its charges come to, which is what None means.

        Raises:
            InvalidInput: More is asked for than the charges come to.
            RefusedToStart: There are no such charges, or the run does not stand there.
        """
        invariant(use.approved_for, f"keys for {use.name} are not approved one by one")
        newest = await self._ledger.newest(run, use, self._mode)
        serial = await self._following(use, 0 if newest is None else newest.serial)
        key = _parsed(self._derive(run, use, serial).get_secret_value())
        caps = await self._ledger.issue_approved(
            key,
            serial,
            run,
            use,
            caps_minor=caps_minor,
            who=who,
            reason=reason,
            expires_seconds=self._expires.total_seconds(),
        )
        return key.key_id, caps

    async def _following(self, use: KeyUse, serial: int) -> int:
        """Return the serial of a use's next key.

        A restored ledger has forgotten serials, and a key that is derived from one of them again would be the
        very key that a sender from before the restore still has. The account's own keys only read.
        """
        forgotten = await self._ledger.forgotten_serials() if use.phases else 0
        return max(serial, forgotten) + 1

    def _derive(self, run: "RunKey", use: KeyUse, serial: int) -> SecretStr:
        return SecretStr(
            derive_vault_key(
                self._secret.get_secret_value().encode(),
                run_id=run.run_id if use.phases else "",
                account=run.account,
                mode=self._mode,
                scope=use.name,
                serial=serial,
            )
        )

    async def _issue(self, run: "RunKey", use: KeyUse, serial: int, *, who: str) -> str | None:
        key = _parsed(self._derive(run, use, serial).get_secret_value())
        seconds = self._expires.total_seconds()
        issued = await self._ledger.issue_derived(key, serial, run, use, who=who, expires_seconds=seconds)
        return key.key_id if issued else None


async def issue_custom_key(
    ledger: VaultLedger,
    *,
    account: str,
    mode: Mode,
    allow: frozenset[str],
    caps_minor: Mapping[str, int],
    daily: bool,
    label: str,
    expires: timedelta,
    who: str,
) -> CustomKey:
    """Issue a random key for any other job or agent. Caps are in minor units; none: it may move nothing."""
    invariant(allow <= ENDPOINTS.keys(), "an endpoint outside the catalog can't be allowed")
    text = random_vault_key(mode, secrets.token_bytes(CHANCE_BYTES))
    key = _parsed(text)
    issued_at, expires_at = await ledger.issue(
        NewKey(
            key=key,
            account=account,
            allow=allow,
            caps_minor=caps_minor,
            daily=daily,
            label=label,
            expires_seconds=expires.total_seconds(),
        ),
        who=who,
    )
    return CustomKey(SecretStr(text), key.key_id, issued_at, expires_at)


def _parsed(text: str) -> VaultKey:
    key = parse_vault_key(text)
    if key is None:
        raise RefusedToStart("a vault key was made that is none")
    return key


def _no_key(run: "RunKey", use: KeyUse) -> str:
    approved = ", or its plan is not approved" if use.spends else ""
    return (
        f"run {run.run_id} gets no vault key for {use.name}: "
        f"it is not in phase {' or '.join(use.phases)}{approved}"
    )


def _refused(run: "RunKey", use: KeyUse, newest: IssuedKey) -> RefusedToStart:
    if newest.revoked:
        why = f"was revoked by {newest.revoked_by}: {newest.revoked_reason}"
    elif newest.expired:
        why = "has expired"
    else:
        why = "was issued under another vault secret"
    subject = f"run {run.run_id}" if use.phases else f"account {run.account}"
    what = "RUN" if use.phases else f"--account {run.account}"
    if use is not CHARGING:
        what = f"{what} --use {use.name}"
    refusal = CredentialsRefused if newest.revoked or newest.expired else RefusedToStart
    return refusal(
        f"vault key {newest.key_id} of {subject} for {use.name} {why}; "
        f"to replace it: chargeonce vault rotate {what} --reason ..."
    )
