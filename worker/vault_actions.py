"""`chargeonce vault`: keys for other jobs and agents, and what people do to the keys of runs."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from activities.ledger.runs import RunLedger
from activities.ledger.vault import VaultLedger
from activities.vault import (
    CHARGING,
    READING,
    ROTATED_OF_ACCOUNTS,
    ROTATED_OF_RUNS,
    RunVault,
    issue_custom_key,
)
from worker.console_output import Output, table
from worker.durations import parse_duration_seconds
from worker.environment import load_ledger_settings
from worker.ledger_access import open_ledger
from worker.money_shown import show_money
from worker.reasons import read_reason
from worker.vault_allow import WORDS, describe_allow, read_allow, say_effect
from worker.whoami import who
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, RefusedToStart
from workflows.domain.money import parse_currency, parse_major
from workflows.domain.vault import ENDPOINTS, Effect
from workflows.domain.vault_keys import Mode, parse_vault_key

if TYPE_CHECKING:
    from rich.console import RenderableType

EXPIRES_SECONDS_MAX = 366 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCommand:
    """What was typed."""

    account: str
    allow: Sequence[str]
    caps: Sequence[str]
    daily: bool
    expires: str
    label: str
    live: bool

    @property
    def mode(self) -> Mode:
        """Whether the key stands for a live key."""
        return Mode.LIVE if self.live else Mode.TEST


async def issue_key(output: Output, command: IssueCommand) -> None:
    """Issue a key and print it, this once.

    Raises:
        InvalidInput: An endpoint outside the catalog, an amount or a duration that is none, or a key that may
            move money and has no cap.
        RefusedToStart: The proxy of CHARGEONCE_PROXY_URL says that it does not serve this account or mode.
    """
    allow, caps = read_allow(command.allow), dict(read_caps(command.caps))
    seconds = parse_duration_seconds(command.expires)
    if not 0 < seconds <= EXPIRES_SECONDS_MAX:
        raise InvalidInput("a vault key expires within a year")
    moving = sorted(name for name in allow if ENDPOINTS[name] not in {Effect.READ, Effect.HARMLESS})
    if moving and not caps:
        raise InvalidInput(f"{moving[0]!r} may move money, so say how much at most: --cap usd=100.00")
    settings = load_ledger_settings()
    if settings.proxy_url is not None:
        await _check_served(output, settings.proxy_url, command)
    async with open_ledger(settings) as pool:
        custom = await issue_custom_key(
            VaultLedger(pool),
            account=command.account,
            mode=command.mode,
            allow=allow,
            caps_minor=caps,
            daily=command.daily,
            label=command.label,
            expires=timedelta(seconds=seconds),
            who=who(),
        )
    document = {
        "key": custom.key.get_secret_value(),
        "key_id": custom.key_id,
        "account": command.account,
        "proxy_url": settings.proxy_url,
        "allow": sorted(allow),
        "caps_minor": caps,
        "daily": command.daily,
        "expires_at": custom.expires_at,
    }
    output.result(document, lambda: _render_issued(document))


async def list_keys(output: Output, *, run_id: str | None, everything: bool, limit: int) -> None:
    """Print keys, newest first."""
    async with _ledger() as ledger:
        found = await ledger.list(run_id=run_id, everything=everything, limit=limit)
    keys = [{**key, "allows": describe_allow(key["allow"])} for key in found]
    output.result({"keys": keys}, lambda: _render_keys(keys))


def list_endpoints(output: Output, words: Sequence[str]) -> None:
    """Print what can be allowed: the endpoints of these words, or the whole catalog. Raises InvalidInput."""
    chosen = read_allow(words) if words else ENDPOINTS.keys()
    words_of = {name: [word for word, opened in WORDS.items() if name in opened] for name in ENDPOINTS}
    endpoints = [
        {"endpoint": name, "effect": effect.value, "words": words_of[name]}
        for name, effect in ENDPOINTS.items()
        if name in chosen
    ]
    rows = [(name, say_effect(name), ", ".join(words_of[name])) for name in ENDPOINTS if name in chosen]
    output.result(
        {"endpoints": endpoints}, lambda: [table(("endpoint", "what it does", "opened by --allow"), rows)]
    )


async def revoke_keys(output: Output, *, key_id: str | None, run_id: str | None, reason: str) -> None:
    """Revoke one key, or all of a run's, from their next request on, in every proxy process.

    Raises:
        InvalidInput: Neither a key nor a run was named, or both, or no reason.
        RefusedToStart: There is no such key or run.
    """
    if (key_id is None) == (run_id is None):
        raise InvalidInput("say which key, or --run which run, and not both")
    reason = read_reason(reason)
    async with _ledger() as ledger:
        if run_id is not None:
            revoked = await ledger.revoke_for_run(run_id, who=who(), reason=reason)
        else:
            whole = parse_vault_key(key_id or "")  # a whole key in hand, found where it should not be
            public_id = (key_id or "") if whole is None else whole.key_id
            revoked = [public_id] if await ledger.revoke(public_id, who=who(), reason=reason) else []
    output.result(
        {"revoked": revoked},
        lambda: [f"revoked {', '.join(revoked)}" if revoked else "nothing to revoke: no valid key of these"],
    )


async def rotate_key(
    output: Output, run_id: str | None, *, account: str | None, use: str | None, reason: str
) -> None:
    """Give a run, or an account, another key for a use, in place of all that it had for it.

    Raises:
        InvalidInput: Neither a run nor an account was named, or both; there is no such use of theirs; or the
            reason is blank, too long or no plain text.
        RefusedToStart: No vault secret is configured, or the run does not stand where it may have a key.
    """
    from workflows.contracts import RunKey  # noqa: PLC0415 - slow, and of no use to the other commands

    if (run_id is None) == (account is None):
        raise InvalidInput("say which run, or --account which account, and not both")
    known = ROTATED_OF_ACCOUNTS if run_id is None else ROTATED_OF_RUNS
    wanted = known.get(use or (READING if run_id is None else CHARGING).name)
    if wanted is None:
        raise InvalidInput(f"--use {echo(use or '')} is none of these: {', '.join(known)}")
    reason, settings = read_reason(reason), load_ledger_settings()
    secret = settings.need_vault_secret()
    async with open_ledger(settings) as pool:
        if run_id is not None:
            account = (await RunLedger(pool).read(run_id)).account
        vault = RunVault(VaultLedger(pool), secret=secret, mode=settings.mode)
        key = RunKey(run_id=run_id or "", account=account or "")
        key_id, earlier = await vault.rotate(key, wanted, who=who(), reason=reason)
    document = {"run": run_id, "account": account, "use": wanted.name, "key_id": key_id, "revoked": earlier}
    subject = run_id or account
    output.result(
        document, lambda: [f"{subject}: {key_id} is for {wanted.name} from the next piece of work on"]
    )


def read_caps(texts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield currency and minor units of texts like `usd=100.00`; raises InvalidInput."""
    for text in texts:
        code, equals, amount = text.partition("=")
        if not equals:
            raise InvalidInput(f"{echo(text)} is no cap: write usd=100.00")
        currency = parse_currency(code)
        yield currency, parse_major(amount, currency)


@asynccontextmanager
async def _ledger() -> AsyncIterator[VaultLedger]:
    async with open_ledger(load_ledger_settings()) as pool:
        yield VaultLedger(pool)


async def _check_served(output: Output, proxy_url: str, command: IssueCommand) -> None:
    """Refuse a key that would open nothing. A proxy that is away can't tell: that is said, and no more."""
    from worker.proxied_accounts import ask_proxy  # noqa: PLC0415 - slow, and of no use to other commands

    try:
        known = await ask_proxy(proxy_url)
    except RefusedToStart as refusal:
        output.notice(f"whether the proxy serves {command.account} is not known: {refusal}")
        return
    served = ", ".join(f"{account} ({mode})" for account, mode in sorted(known.modes.items())) or "nobody"
    if known.modes.get(command.account) != command.mode.value:
        hint = "; --live says that the key stands for a live one" if not command.live else ""
        raise RefusedToStart(
            f"a {command.mode.value} key for {command.account} would open nothing: the proxy at {proxy_url} "
            f"serves {served}{hint if command.account in known.modes else ''}"
        )


def _render_issued(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield str(document["key"])
    caps = ", ".join(show_money(cap, code) for code, cap in document["caps_minor"].items()) or "no money"
    a_day = " a day" if document["daily"] else ""
    yield f"This is the only time that the key is shown; its public id is {document['key_id']}."
    yield (
        f"It may call {describe_allow(document['allow'])} for {document['account']}, moves at most "
        f"{caps}{a_day}, and expires at {document['expires_at']:%Y-%m-%d %H:%M} UTC."
    )
    proxy_url = document["proxy_url"]
    if proxy_url is None:
        yield "It opens the proxy and not Stripe: use the proxy's URL in place of https://api.stripe.com."
    else:
        yield f"It opens {proxy_url} and not Stripe: use that in place of https://api.stripe.com."
    yield f"To end it now: chargeonce vault revoke {document['key_id']} --reason ..."


def _render_keys(keys: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not keys:
        yield "no keys: a run gets its own when it needs one; for other jobs: chargeonce vault issue --help"
        return
    rows = [
        (
            key["key_id"],
            key["label"],
            key["run_id"] or key["account"],
            key["allows"],
            key["standing"],
            ", ".join(
                f"{show_money(part['settled_minor'] + part['held_minor'], code)} of "
                f"{show_money(part['cap_minor'], code)}{' today' if part['daily'] else ''}"
                for code, part in (key["budget"] or {}).items()
            )
            or "nothing",
            f"{key['expires_at']:%Y-%m-%d %H:%M}",
        )
        for key in keys
    ]
    yield table(("key", "for", "run or account", "allows", "standing", "moved", "expires"), rows)
