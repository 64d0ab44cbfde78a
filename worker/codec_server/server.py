"""The codec server's process: listens until it is told to stop, and answers what has been read."""

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from worker.codec_server.app import CodecServer, answer_failure, build_app
from worker.codec_server.settings import CodecSettings
from worker.listening import listening
from worker.payload_codec import EncryptingCodec
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE, load_payload_keys
from workflows.domain.errors import RefusedToStart

_LOG = logging.getLogger("chargeonce.codec")


async def run_codec_server(settings: CodecSettings) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        RefusedToStart: No key, no token though others reach it, or the port is taken.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with open_codec_server(settings) as url:
        if settings.ready_file is not None:
            settings.ready_file.write_text(json.dumps({"pid": os.getpid(), "url": url}))
        _LOG.info(json.dumps({"event": "codec_server_ready", "url": url}))
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
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOG.addHandler(handler)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False
