"""`chargeonce restore`: whether the ledger was restored, and what clears that."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

from activities.ledger.database import Pool, open_pool
from activities.ledger.restores import RestoreLedger
from activities.ledger.vault import VaultLedger
from activities.restored import STRANGERS_NAMED_MAX, Cleaning, RestoreCleaner
from activities.vault import CHARGING, RunVault
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_FAILED, EXIT_REFUSED, CommandFailed
from worker.reasons import read_reason
from worker.settings import Settings
from worker.whoami import who as user_at_host
from worker.wiring import open_accounts
from workflows.contracts import RunKey
from workflows.domain.counted import counted
from workflows.domain.errors import RefusedToStart

CLEAR = "chargeonce restore --clear --reason ..."


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCommand:
    """What was typed."""

    who: str | None
    reason: str
    look_back_days: int
    key_rolled: bool
    accept_strangers: bool


async def show_restore(output: Output) -> None:
    """Print whether a restore is open, and what is still to be looked at."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        ledger = RestoreLedger(pool)
        found, runs = await ledger.open(), await ledger.open_runs()
        charges = {account: await ledger.count_open(account) for account in {name for _, name in runs}}
    if found is None:
        output.result({"restored": False}, lambda: ["the ledger was not restored: nothing is held back"])
        return
    open_charges = sum(charges.values())
    document = {"restored": True, **asdict(found), "runs": [run_id for run_id, _ in runs], "charges": charges}
    output.result(
        document,
        lambda: [
            f"the ledger was restored ({found.who}, {found.found_at:%Y-%m-%d %H:%M:%S}): {found.why}",
            f"nothing is sent: {counted(len(runs), 'open run')}, {counted(open_charges, 'open charge')}",
            f"to let it go on once the right backup is in place: {CLEAR}",
        ],
    )


async def declare_restore(output: Output, *, who: str | None, reason: str) -> None:
    """Stop all sending, since the ledger was restored where its cluster does not show it."""
    settings, why = load_settings(), read_reason(reason)
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        is_new = await RestoreLedger(pool).declare(who=who or user_at_host(), why=why)
    said = "nothing is sent any more" if is_new else "nothing is sent already"
    output.result({"restored": True, "declared": is_new}, lambda: [f"{said}: {CLEAR}"])


async def clear_restore(output: Output, command: ClearCommand) -> None:
    """Rotate the keys of open runs, look through Stripe, and let sending go on.

    Raises:
        RefusedToStart: No restore is open, or the Stripe key was not rolled where there is no proxy.
        CommandFailed: 1: something could not be looked at; 4: Stripe has payments that the ledger has lost.
    """
    settings, why, who = load_settings(), read_reason(command.reason), command.who or user_at_host()
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        ledger = RestoreLedger(pool)
        restore = await ledger.open()
        if restore is None:
            raise RefusedToStart("the ledger was not restored: there is nothing to clear")
        runs = await ledger.open_runs()
        rotated = await _rotate(pool, settings, runs, who=who, reason=why, key_rolled=command.key_rolled)
        output.notice(f"{counted(len(rotated), 'key')} of runs rotated: who sent before can't any more")
        since = restore.found_at - timedelta(days=command.look_back_days)
        cleaner = RestoreCleaner(pool, accounts)
        done = []
        for account in sorted({account for _, account in runs}):
            cleaning = await cleaner.clean(account, since=since)
            output.notice(
                f"{account}: {cleaning.payment_intents} PaymentIntents since {since:%Y-%m-%d}: "
                f"{cleaning.recorded} recorded as paid, {cleaning.canceled} canceled"
            )
            done.append(cleaning)
        _refuse_gaps(done)
        if not command.accept_strangers:
            _refuse_strangers(done)
        counts = {"accounts": [asdict(one) for one in done], "rotated": rotated}
        await ledger.clear(restore, who=who, why=why, counts=counts)
    document = {"restored": False, "cleared": True, **counts, "runs": [run_id for run_id, _ in runs]}
    output.result(
        document,
        lambda: [
            "cleared: sending may go on",
            *(f"chargeonce run resume {run_id} --reason ..." for run_id, _ in runs),
        ],
    )


async def _rotate(
    pool: Pool,
    settings: Settings,
    runs: Sequence[tuple[str, str]],
    *,
    who: str,
    reason: str,
    key_rolled: bool,
) -> list[str]:
    """Take the keys from whoever sent before the restore; return the ids of the new ones."""
    if settings.proxy_url is None:
        if not key_rolled:
            raise RefusedToStart(
                "without a proxy, whoever sent before the restore may have survived with the Stripe key: "
                "roll it at Stripe, give the workers the new one, then say --key-rolled"
            )
        return []
    ledger = VaultLedger(pool)
    vault = RunVault(ledger, secret=settings.need_vault_secret(), mode=settings.mode)
    rotated = []
    for run_id, account in runs:
        if await ledger.has_charging_key(run_id):
            key_id, _ = await vault.rotate(
                RunKey(run_id=run_id, account=account), CHARGING, who=who, reason=reason
            )
            rotated.append(key_id)
    return rotated


def _refuse_gaps(done: Sequence[Cleaning]) -> None:
    gaps = [f"{one.account}: {gap}" for one in done for gap in one.gaps]
    if gaps:
        raise CommandFailed(
            f"not cleared, and nothing is sent: {counted(len(gaps), 'question')} to Stripe had no answer "
            f"that ends it; do it again: {gaps[0]}",
            exit_code=EXIT_FAILED,
            details={"gaps": gaps},
        )


def _refuse_strangers(done: Sequence[Cleaning]) -> None:
    strangers = [stranger for one in done for stranger in one.strangers]
    if strangers:
        raise CommandFailed(
            f"not cleared: Stripe has {counted(len(strangers), 'PaymentIntent')} of charges that this ledger "
            f"has lost, such as {strangers[0]}; a run for their periods would make them anew. Restore a "
            "newer backup; or, if nobody will bill these periods again, say --accept-strangers",
            exit_code=EXIT_REFUSED,
            details={"strangers": strangers[:STRANGERS_NAMED_MAX], "count": len(strangers)},
        )
