"""`chargeonce restore`: whether the ledger was restored, and what clears that."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from activities.accounts import Accounts
from activities.ledger.audit import read_accounts
from activities.ledger.database import Pool, open_pool
from activities.ledger.restores import Restore, RestoreLedger
from activities.ledger.vault import VaultLedger
from activities.restored import STRANGERS_NAMED_MAX, Cleaning, RestoreCleaner
from activities.vault import RunVault
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_FAILED, EXIT_REFUSED, CommandFailed
from worker.proxied_accounts import ask_proxy
from worker.reasons import read_reason
from worker.settings import Settings
from worker.whoami import who as user_at_host
from worker.wiring import open_accounts
from workflows.contracts import RunKey
from workflows.domain.counted import counted
from workflows.domain.errors import RefusedToStart

CLEAR = "chargeonce restore --clear --reason ..."
BEFORE_LOCK = timedelta(days=1)
NOTICE_EVERY = 5_000  # PaymentIntents


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCommand:
    """What was typed."""

    who: str | None
    reason: str
    look_back_days: int
    key_rolled: bool
    accept_strangers: bool
    live: bool
    leave_out: Sequence[str]


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
    """Rotate the keys of runs, look through Stripe, and let sending go on; repeatable at any point.

    Raises:
        RefusedToStart: No restore is open, or the Stripe key was not rolled where there is no proxy.
        CommandFailed: 1: something could not be looked at; 4: Stripe has payments that the ledger has lost.
    """
    settings, why = load_settings(live=command.live), read_reason(command.reason)
    who = command.who or user_at_host()
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        ledger = RestoreLedger(pool)
        restore = await ledger.open()
        if restore is None:
            raise RefusedToStart("the ledger was not restored: there is nothing to clear")
        runs = await ledger.open_runs()
        revoked = await _take_keys(pool, settings, who=who, reason=why, key_rolled=command.key_rolled)
        output.notice(f"{counted(len(revoked), 'key')} of runs revoked: who sent before can't any more")
        cleaner = RestoreCleaner(pool, accounts)
        done = []
        for account in await _accounts_to_ask(pool, settings, accounts, leave_out=command.leave_out):
            since = await _since(ledger, restore, account, look_back_days=command.look_back_days)
            cleaning = await cleaner.clean(account, since=since, on_page=_progress(output, account))
            output.notice(
                f"{account}: {cleaning.payment_intents} PaymentIntents since {since:%Y-%m-%d}: "
                f"{cleaning.recorded} recorded as paid, {cleaning.adopted} adopted, "
                f"{cleaning.canceled} canceled"
            )
            done.append(cleaning)
        _refuse_gaps(done)
        if not command.accept_strangers:
            _refuse_strangers(done)
        counts = {"accounts": [asdict(one) for one in done], "revoked": revoked}
        asked = [one.account for one in done]
        if not await ledger.clear(restore, who=who, why=why, counts=counts, accounts=asked):
            raise CommandFailed(
                "not cleared: an account that was left out has open charges, or somebody else has just "
                "cleared it; look with `chargeonce restore`",
                exit_code=EXIT_FAILED,
            )
    document = {"restored": False, "cleared": True, **counts, "runs": [run_id for run_id, _ in runs]}
    output.result(
        document,
        lambda: [
            "cleared: sending may go on",
            *(f"chargeonce run resume {run_id} --reason ..." for run_id, _ in runs),
        ],
    )


async def _take_keys(pool: Pool, settings: Settings, *, who: str, reason: str, key_rolled: bool) -> list[str]:
    """Take the keys from whoever sent before the restore; return the ids of those that were revoked."""
    if settings.proxy_url is None:
        if not key_rolled:
            raise RefusedToStart(
                "without a proxy, whoever sent before the restore may have survived with the Stripe key: "
                "roll it at Stripe, give the workers the new one, then say --key-rolled"
            )
        return []
    ledger = VaultLedger(pool)
    vault = RunVault(ledger, secret=settings.need_vault_secret(), mode=settings.mode)
    revoked = []
    for run_id, account in await ledger.runs_with_keys():
        run = RunKey(run_id=run_id, account=account)
        revoked += await vault.replace_all(run, who=who, reason=reason)
    return revoked


async def _accounts_to_ask(
    pool: Pool, settings: Settings, accounts: Accounts, *, leave_out: Sequence[str]
) -> list[str]:
    """Return every account that may have been billed: the ledger can have forgotten all runs of one."""
    known = set(await read_accounts(pool))
    if settings.proxy_url is not None:
        known.update((await ask_proxy(settings.proxy_url)).everybody)
    else:
        known.update(await accounts.everybody())
    return sorted(known.difference(leave_out))


async def _since(ledger: RestoreLedger, restore: Restore, account: str, *, look_back_days: int) -> datetime:
    """Return from when on: the days asked for, or further back where the ledger's runs say so."""
    back = restore.found_at - timedelta(days=look_back_days)
    locked = await ledger.forgotten_since(account)
    return back if locked is None else min(back, locked - BEFORE_LOCK)


def _progress(output: Output, account: str) -> Callable[[int], None]:
    told = 0

    def on_page(read: int) -> None:
        nonlocal told
        if read >= told + NOTICE_EVERY:
            told = read
            output.notice(f"{account}: {read} PaymentIntents read")

    return on_page


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
