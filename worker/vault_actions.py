"""`chargeonce vault`: keys for other jobs and agents, and what people do to the keys of runs."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from activities.ledger.database import open_pool
from activities.ledger.runs import RunLedger
from activities.ledger.vault import VaultLedger
from activities.vault import CHARGING, RunVault, issue_custom_key
from worker.console_output import Output, table
from worker.durations import parse_duration_seconds
from worker.environment import load_settings
from worker.whoami import who
from workflows.contracts import RunKey
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money, parse_currency, parse_major
from workflows.domain.vault import ENDPOINTS, SCOPES, Effect
from workflows.domain.vault_keys import Mode, parse_vault_key

if TYPE_CHECKING:
    from rich.console import RenderableType

EXPIRES_SECONDS_MAX = 366 * 86_400.0
_ALLOW_WORDS = {
    **{scope.value: endpoints for scope, endpoints in SCOPES.items()},
    "reads": frozenset(endpoint for endpoint, effect in ENDPOINTS.items() if effect is Effect.READ),
}


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


async def issue_key(output: Output, command: IssueCommand) -> None:
    """Issue a key and print it, this once.

    Raises:
        InvalidInput: An endpoint outside the catalog, an amount or a duration that is none, or a key that may
            move money and has no cap.
    """
    allow, caps = read_allow(command.allow), dict(read_caps(command.caps))
    seconds = parse_duration_seconds(command.expires)
    if not 0 < seconds <= EXPIRES_SECONDS_MAX:
        raise InvalidInput("a vault key expires within a year")
    moving = sorted(name for name in allow if ENDPOINTS[name] not in {Effect.READ, Effect.HARMLESS})
    if moving and not caps:
        raise InvalidInput(f"{moving[0]!r} may move money, so say how much at most: --cap usd=100.00")
    async with _ledger() as ledger:
        custom = await issue_custom_key(
            ledger,
            account=command.account,
            mode=Mode.LIVE if command.live else Mode.TEST,
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
        "allow": sorted(allow),
        "caps_minor": caps,
        "daily": command.daily,
        "expires_at": custom.expires_at,
    }
    output.result(document, lambda: _render_issued(document))


async def list_keys(output: Output, *, run_id: str | None, everything: bool, limit: int) -> None:
    """Print keys, newest first."""
    async with _ledger() as ledger:
        keys = await ledger.list(run_id=run_id, everything=everything, limit=limit)
    output.result({"keys": keys}, lambda: _render_keys(keys))


async def revoke_keys(output: Output, *, key_id: str | None, run_id: str | None, reason: str) -> None:
    """Revoke one key, or all of a run's, from their next request on, in every proxy process.

    Raises:
        InvalidInput: Neither a key nor a run was named, or both.
        RefusedToStart: There is no such key or run.
    """
    if (key_id is None) == (run_id is None):
        raise InvalidInput("say which key, or --run which run, and not both")
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


async def rotate_key(output: Output, run_id: str, *, reason: str) -> None:
    """Give a run another key to charge by, in place of all that it had.

    Raises:
        RefusedToStart: No vault secret is configured, or the run does not stand where it may have a key.
    """
    settings = load_settings()
    secret = settings.need_vault_secret()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        run = await RunLedger(pool).read(run_id)
        vault = RunVault(VaultLedger(pool), secret=secret, mode=settings.mode)
        key = RunKey(run_id=run.run_id, account=run.account)
        key_id, earlier = await vault.rotate(key, CHARGING, who=who(), reason=reason)
    document = {"run": run_id, "key_id": key_id, "revoked": earlier}
    output.result(document, lambda: [f"{run_id} charges by {key_id} from its next piece of work on"])


def read_allow(words: Sequence[str]) -> frozenset[str]:
    """Return the endpoints that these words mean; raises InvalidInput where one means none."""
    allow: set[str] = set()
    for word in words:
        found = _ALLOW_WORDS.get(word) or ({word} if word in ENDPOINTS else None)
        if found is None:
            raise InvalidInput(
                f"{echo(word)} can't be allowed: it is neither {', '.join(_ALLOW_WORDS)} nor an endpoint "
                "such as 'POST /v1/payment_intents/{id}/confirm'"
            )
        allow |= found
    if not allow:
        raise InvalidInput("say what the key may do: --allow reads, or --allow 'POST /v1/payment_intents'")
    return frozenset(allow)


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
    async with open_pool(load_settings().database_url.get_secret_value(), connections=1) as pool:
        yield VaultLedger(pool)


def _render_issued(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield str(document["key"])
    caps = ", ".join(format_money(cap, code) for code, cap in document["caps_minor"].items()) or "no money"
    a_day = " a day" if document["daily"] else ""
    yield f"This is the only time that the key is shown; its public id is {document['key_id']}."
    yield f"It moves at most {caps}{a_day} and expires at {document['expires_at']:%Y-%m-%d %H:%M} UTC."
    yield f"To end it now: chargeonce vault revoke {document['key_id']} --reason ..."


def _render_keys(keys: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not keys:
        yield "no keys: a run gets its own when it needs one; for other jobs: chargeonce vault issue --help"
        return
    rows = [
        (
            key["key_id"],
            key["scope"],
            key["run_id"] or key["account"],
            key["label"],
            key["standing"],
            ", ".join(
                f"{format_money(part['settled_minor'] + part['held_minor'], code)} of "
                f"{format_money(part['cap_minor'], code)}"
                for code, part in (key["budget"] or {}).items()
            ),
            f"{key['expires_at']:%Y-%m-%d %H:%M}",
        )
        for key in keys
    ]
    yield table(("key", "scope", "run or account", "for", "standing", "moved", "expires"), rows)
