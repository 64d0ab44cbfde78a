"""`chargeonce codec-server`: lets Temporal's UI and command line read encrypted payloads."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.help_examples import examples

# ruff: noqa: PLC0415 - heavy modules are imported by the command that needs them


def add_codec_commands(app: typer.Typer) -> None:
    """Add the command to the production commands."""
    app.command("codec-server", epilog=examples("codec-server", "codec-server --listen 127.0.0.1:12114"))(
        codec_server
    )


def codec_server(
    *,
    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help="Where to listen; port 0 takes a free one.")
    ] = None,
    ready_file: Annotated[Path | None, typer.Option(help='Write {"url": ...} here once it listens.')] = None,
) -> None:
    """Decrypt payloads for Temporal's UI and command line until SIGTERM or Ctrl-C.

    Needs CHARGEONCE_PAYLOAD_KEYS or CHARGEONCE_PAYLOAD_KEYS_FILE, and for the UI CHARGEONCE_CODEC_UI_ORIGIN
    (such as http://127.0.0.1:8233). With CHARGEONCE_CODEC_TOKEN only who sends it as a bearer token is
    answered; without, it listens on this machine alone. No database, no Stripe key, no Temporal.
    """
    with reported(Output(as_json=False)):
        import uvloop

        from worker.codec_server.server import log_to_stderr, run_codec_server
        from worker.codec_server.settings import load_codec_settings
        from worker.typed_settings import type_over

        settings = type_over(load_codec_settings(), listen=listen, ready_file=ready_file)
        log_to_stderr()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run_codec_server(settings))
