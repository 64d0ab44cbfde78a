"""`chargeonce proxy`, `vault` and `audit`: the spend-cap proxy, its keys, and what was done with them."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples
from worker.vault_allow import explain_words

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them


_ISSUE_HELP = (
    "Issue a key for another job or agent, and print it once. Point its SDK at the proxy, with this key.\n\n"
    "What each word of --allow opens, all paths below /v1/ (`chargeonce vault endpoints` lists each):\n\n"
    f"\b\n{explain_words()}"
)
_PROXY_HELP = """Run one spend-cap proxy until SIGTERM or Ctrl-C: the only process that needs the Stripe key.

\b
  CHARGEONCE_PROXY_DATABASE_URL   the ledger, as the role of `migrate --proxy-role`
  STRIPE_SECRET_KEY               the key; or CHARGEONCE_STRIPE_KEY_FILE, or
                                  CHARGEONCE_STRIPE_KEY_COMMAND, which prints it
  CHARGEONCE_ACCOUNT_KEYS         a JSON object, for accounts with a key of their own
  CHARGEONCE_CONNECTED_ACCOUNTS   accounts behind the one key: acct_1,acct_2
  CHARGEONCE_STRIPE_API_BASE      in place of https://api.stripe.com, for a simulator
  CHARGEONCE_PROXY_TIMEOUT_SECONDS
                                  how long Stripe may take, 20 if not set: more than
                                  the clients' own timeout

SIGHUP reads the keys again; so does a change of the file, and a 401 from Stripe. What the proxy has decided
is in the ledger, so several may run side by side.
"""

vault_app = typer.Typer(
    help="Keys for the spend-cap proxy: capped, allowlisted, revocable stand-ins for a Stripe key.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
Reason = Annotated[str, typer.Option(help="Why; it is kept with the key.")]
Run = Annotated[str | None, typer.Option(help="A run, such as billing-run/acct_1/2031-03.")]


def add_proxy_commands(app: typer.Typer) -> None:
    """Add the commands of the proxy to the production commands."""
    app.add_typer(vault_app, name="vault")
    app.command("proxy", help=_PROXY_HELP, epilog=examples("proxy --listen 127.0.0.1:12112", "proxy --live"))(
        proxy
    )
    app.command(
        "audit", epilog=examples("audit --run billing-run/acct_1/2031-03", "audit --since 2h --json")
    )(audit)


def proxy(
    *,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Where to listen; port 0 takes a free one.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help='Write {"url": ...} here once it listens.')] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Say out loud that a live key moves real money.")
    ] = False,
) -> None:
    """Run one spend-cap proxy: see `_PROXY_HELP`."""
    with reported(Output(as_json=False)):
        from worker.proxy_process import run_proxy_process

        run_proxy_process(listen=listen, ready_file=ready_file, live=live)


@vault_app.command(
    "issue",
    help=_ISSUE_HELP,
    epilog=examples(
        "vault issue --account acct_1 --allow reads --expires 24h",
        "vault issue --account acct_1 --allow billing --cap usd=100.00 --daily --label 'shop agent'",
        "vault issue --account acct_1 --allow 'POST /v1/refunds' --allow reads --cap eur=50.00 --json",
    ),
)
def issue(
    *,
    account: Annotated[str, typer.Option(help="The Stripe account that the key is for.")],
    allow: Annotated[
        list[str],
        typer.Option(
            help="What it may do: reads, billing, planning, reconcile, refund (see above), or one endpoint "
            "such as 'POST /v1/payment_intents/{id}/confirm'; may be given again."
        ),
    ],
    cap: Annotated[
        list[str] | None,
        typer.Option(help="The most that it moves of a currency: usd=100.00; may be given again."),
    ] = None,
    daily: Annotated[bool, typer.Option("--daily", help="The caps are for each day (UTC).")] = False,
    expires: Annotated[str, typer.Option(help="How long it is good for: 90s, 24h, 30d.")] = "24h",
    label: Annotated[str, typer.Option(help="What it is for; shown in lists.")] = "",
    live: Annotated[bool, typer.Option("--live", help="It stands for a live key: real money.")] = False,
    as_json: AsJson = False,
) -> None:
    """Issue a key: see `_ISSUE_HELP`."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.vault_actions import IssueCommand, issue_key

        command = IssueCommand(
            account=account, allow=allow, caps=cap or [], daily=daily, expires=expires, label=label, live=live
        )
        asyncio.run(issue_key(output, command))


@vault_app.command("endpoints", epilog=examples("vault endpoints", "vault endpoints billing refund --json"))
def endpoints(
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="See `vault issue`.")] = None,
    *,
    as_json: AsJson = False,
) -> None:
    """List what --allow can open: these words, or the whole catalog. Nothing else passes the proxy."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.vault_actions import list_endpoints

        list_endpoints(output, words or [])


@vault_app.command("list", epilog=examples("vault list", "vault list --all --json"))
def list_(
    *,
    run: Run = None,
    everything: Annotated[bool, typer.Option("--all", help="Those revoked or expired as well.")] = False,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many, newest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List keys by their public ids, with what each may move and has moved."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.vault_actions import list_keys

        asyncio.run(list_keys(output, run_id=run, everything=everything, limit=limit))


@vault_app.command(
    "revoke",
    epilog=examples(
        "vault revoke vk_test_0Ab1Cd2Ef3 --reason 'the agent is done'",
        "vault revoke --run billing-run/acct_1/2031-03 --reason 'stop it now'",
    ),
)
def revoke(
    reason: Reason,
    key_id: Annotated[str | None, typer.Argument(metavar="[KEY_ID]", help="See `vault list`.")] = None,
    *,
    run: Run = None,
    as_json: AsJson = False,
) -> None:
    """Refuse a key, or every key of a run, from its next request on, in every proxy process."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.vault_actions import revoke_keys

        asyncio.run(revoke_keys(output, key_id=key_id, run_id=run, reason=reason))


@vault_app.command(
    "rotate",
    epilog=examples(
        "vault rotate billing-run/acct_1/2031-03 --reason 'it leaked'",
        "vault rotate --account acct_1 --use reading --reason 'it leaked'",
    ),
)
def rotate(
    reason: Reason,
    run: Annotated[str | None, typer.Argument(metavar="[RUN]")] = None,
    *,
    account: Annotated[
        str | None, typer.Option(help="In place of a run: an account, whose own keys only read.")
    ] = None,
    use: Annotated[
        str | None,
        typer.Option(
            help="What it is for. Of a run: charging (if not set), planning, reconciling; of an account: "
            "reading (if not set), previewing."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a run, or an account, another key in place of all that it had. The cap stays what it was."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.vault_actions import rotate_key

        asyncio.run(rotate_key(output, run, account=account, use=use, reason=reason))


def audit(
    *,
    run: Run = None,
    key_id: Annotated[str | None, typer.Option("--key", help="A key's public id.")] = None,
    since: Annotated[
        str | None, typer.Option(help="An age such as 2h, or a time such as 2031-03-01T08:00.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many, newest first.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show every call through the proxy: who, what, how much, what was decided, what Stripe said."""
    output = Output(as_json=as_json)
    with reported(output):
        from worker.audit_read import show_audit

        asyncio.run(show_audit(output, run_id=run, key_id=key_id, since=since, limit=limit))
