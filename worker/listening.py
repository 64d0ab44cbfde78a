"""Listening for HTTP, as proxy and webhook receiver do: what a client sent is neither repeated nor logged.

The server of aiohttp answers what is no HTTP with a text that repeats it, and logs a traceback that does so
too: a whole key may stand in both. Here each such request is one line of a log and one answer, both ours.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from aiohttp import web

from workflows.domain.errors import RefusedToStart

KEEPALIVE_SECONDS = 75.0
DRAIN_SECONDS = 10.0
BACKLOG = 1_024

AnswerFailure = Callable[[int], web.Response]
"""Says a status of the server's own (400 for what is no HTTP, 404, 417, 500) in its application's words."""


class _Connection(web.RequestHandler):
    """One connection. The names of its methods are aiohttp's."""

    def __init__(self, *args: Any, answer: AnswerFailure, log: logging.Logger, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answer = answer
        self._log = log

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it repeats what came
    ) -> web.StreamResponse:
        """Answer what is no HTTP, or what the application failed at. Closes the connection."""
        self._tell("request_failed" if status >= 500 else "request_malformed", exc, status=status)
        if request.writer.output_size > 0:
            raise ConnectionError("the head of another answer has gone out")
        response = self._answer(status)
        response.force_close()
        return response

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; those that aiohttp makes itself (no route, too long) are said in other words."""
        if isinstance(resp, web.HTTPException):
            resp = self._answer(resp.status)
            resp.force_close()
        return await super().finish_response(request, resp, start_time)

    def log_exception(self, *_args: Any, **options: Any) -> None:
        """Log that something failed, and nothing of what it was about."""
        exc = options.get("exc_info")
        self._tell("connection_failed", exc if isinstance(exc, BaseException) else None)

    def _tell(self, event: str, exc: BaseException | None, **fields: object) -> None:
        entry = {"event": event, "error": type(exc).__name__ if exc else None, "at": _place_of(exc), **fields}
        self._log.warning(json.dumps(entry))


def _place_of(exc: BaseException | None) -> str | None:
    """Return file and line where an exception was raised: its text may repeat what came."""
    traceback: TracebackType | None = exc.__traceback__ if exc is not None else None
    place = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place


@asynccontextmanager
async def listening(
    app: web.Application, name: str, host: str, port: int, *, answer: AnswerFailure, log: logging.Logger
) -> AsyncIterator[str]:
    """Yield the URL at which `app` is served; in the end what has been read is answered.

    Raises:
        RefusedToStart: The port is taken, or the host is none of this machine's. Names `name`.
    """
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(app, shutdown_timeout=DRAIN_SECONDS)
    await runner.setup()

    def connect() -> _Connection:
        return _Connection(
            runner.server,
            loop=loop,
            access_log=None,
            keepalive_timeout=KEEPALIVE_SECONDS,
            answer=answer,
            log=log,
        )

    try:
        try:
            listener = await loop.create_server(connect, host, port, backlog=BACKLOG)
        except OSError as error:
            raise RefusedToStart(f"{name} can't listen on {host}:{port}: {error.strerror}") from None
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.sockets[0].getsockname()[1]}"
        finally:
            listener.close()
    finally:
        await runner.cleanup()
