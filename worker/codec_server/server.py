"""The codec server's process: listens until it is told to stop, and answers what has been read."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from worker.codec_server.app import CodecServer, answer_failure, build_app
from worker.codec_server.settings import CodecSettings
from worker.listening import listening
from worker.payload_codec import EncryptingCodec
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE, load_payload_keys
from worker.serving import log_lines_to_stderr, stop_on_signal, tell_ready
from workflows.domain.errors import RefusedToStart

_LOG = logging.getLogger("chargeonce.codec")


async def run_codec_server(settings: CodecSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        RefusedToStart: No key, no token though others reach it, or the port is taken.
    """
    stop = stop_on_signal()
    async with open_codec_server(settings) as url:
        tell_ready(_LOG, "codec_server_ready", url, settings.ready_file)
        await stop.wait()


@asynccontextmanager
async def open_codec_server(settings: CodecSettings) -> AsyncIterator[str]:
    """Yield the URL of a codec server with the keys of the environment. Raises as `run_codec_server`."""
    settings.refuse_open_door()
    keys = load_payload_keys()
    if keys is None:
        raise RefusedToStart(f"there is no key to decrypt with: set {KEYS_VARIABLE} or {FILE_VARIABLE}")
    app = build_app(CodecServer(EncryptingCodec(keys), settings))
    async with listening(
        app, "the codec server", settings.host, settings.port, answer=answer_failure, log=_LOG
    ) as url:
        yield url


def log_to_stderr() -> None:
    """Write the server's log, JSON lines, to standard error."""
    log_lines_to_stderr(_LOG)
