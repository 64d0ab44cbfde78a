"""Temporal's codec server protocol: POST /encode and /decode, each with payloads in JSON and the same back.

Protocol: https://docs.temporal.io/codec-server. Bytes are base64, as proto3 JSON has them. Whoever is
answered reads what is encrypted at Temporal, so one page may ask (by its origin), with the token where there
is one. Nothing that came is logged or repeated, but the id of a key that is missing.
"""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from aiohttp import hdrs, web
from pydantic import BaseModel, BeforeValidator, PlainSerializer, ValidationError
from temporalio.api.common.v1 import Payload

from worker.codec_server.settings import CodecSettings
from worker.payload_codec import EncryptingCodec, PayloadUnreadable

ENCODE_PATH, DECODE_PATH, HEALTH_PATH = "/encode", "/decode", "/health"
READ_SECONDS = 10.0  # for a body: who sends more slowly holds a connection and nothing else
_HEADERS_ALLOWED = "Authorization, Content-Type, X-Namespace"  # what the UI sends
_PREFLIGHT_SECONDS = 600

Translate = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def _read_base64(value: object) -> bytes:
    if value is None:
        return b""  # proto3 JSON for a field that is not set
    if not isinstance(value, str):
        raise ValueError("not a string")  # noqa: TRY004 - pydantic takes this one for a fault of the input
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None


Base64 = Annotated[
    bytes, BeforeValidator(_read_base64), PlainSerializer(lambda value: base64.b64encode(value).decode())
]


class PayloadDocument(BaseModel):
    """One payload, as proto3 JSON has it."""

    metadata: dict[str, Base64] = {}
    data: Base64 = b""


class PayloadsDocument(BaseModel):
    """The body of a request and of its answer."""

    payloads: list[PayloadDocument] = []


@dataclass(frozen=True)
class CodecServer:
    """Answers for one codec."""

    codec: EncryptingCodec
    settings: CodecSettings

    async def encode(self, request: web.Request) -> web.Response:
        """Encrypt payloads."""
        return await self._answer(request, self.codec.encode)

    async def decode(self, request: web.Request) -> web.Response:
        """Decrypt payloads; what is not encrypted comes back as it is."""
        return await self._answer(request, self.codec.decode)

    async def preflight(self, request: web.Request) -> web.Response:
        """Tell a browser whether a page may ask. It sends no token yet."""
        if self._is_foreign(request):
            return web.Response(status=403)
        return self._shared(
            web.Response(
                status=204,
                headers={
                    hdrs.ACCESS_CONTROL_ALLOW_METHODS: "POST",
                    hdrs.ACCESS_CONTROL_ALLOW_HEADERS: _HEADERS_ALLOWED,
                    hdrs.ACCESS_CONTROL_MAX_AGE: str(_PREFLIGHT_SECONDS),
                },
            )
        )

    async def _answer(self, request: web.Request, translate: Translate) -> web.Response:
        if self._is_foreign(request):
            return web.Response(status=403)
        if not self._is_known(request):
            return self._shared(web.Response(status=401, headers={hdrs.WWW_AUTHENTICATE: "Bearer"}))
        try:
            async with asyncio.timeout(READ_SECONDS):
                body = await request.read()
            asked = PayloadsDocument.model_validate_json(body)
            given = [Payload(metadata=one.metadata, data=one.data) for one in asked.payloads]
            translated = await translate(given)
        except TimeoutError:
            return web.Response(status=408)
        except ValidationError:  # whose text repeats what came
            return self._shared(web.Response(status=400, text="no payloads in JSON with base64"))
        except PayloadUnreadable as failure:
            return self._shared(web.Response(status=400, text=str(failure)))
        answer = PayloadsDocument(
            payloads=[
                PayloadDocument.model_construct(metadata=dict(one.metadata), data=one.data)
                for one in translated
            ]
        )
        return self._shared(web.Response(text=answer.model_dump_json(), content_type="application/json"))

    def _is_foreign(self, request: web.Request) -> bool:
        """Whether a browser asks for another page than the UI; also one that names this server as its own."""
        origin = request.headers.get(hdrs.ORIGIN)
        return origin is not None and origin != self.settings.ui_origin

    def _is_known(self, request: web.Request) -> bool:
        if self.settings.token is None:
            return True
        wanted = f"Bearer {self.settings.token.get_secret_value()}".encode()
        said = request.headers.get(hdrs.AUTHORIZATION, "").encode(errors="surrogateescape")
        return hmac.compare_digest(said, wanted)

    def _shared(self, response: web.Response) -> web.Response:
        if self.settings.ui_origin is not None:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = self.settings.ui_origin
            response.headers[hdrs.VARY] = hdrs.ORIGIN
        response.headers[hdrs.CACHE_CONTROL] = "no-store"
        return response


def build_app(server: CodecServer) -> web.Application:
    """Return the server as an application. Bodies above the limit are 413 before they are read whole."""
    app = web.Application(client_max_size=server.settings.body_bytes_max)
    for path, handler in ((ENCODE_PATH, server.encode), (DECODE_PATH, server.decode)):
        app.router.add_post(path, handler)
        app.router.add_options(path, server.preflight)
    app.router.add_get(HEALTH_PATH, _say_alive)
    return app


def answer_failure(status: int) -> web.Response:
    """Return what a request gets that never came to a handler, or that the server failed at itself."""
    return web.Response(status=status)


async def _say_alive(_request: web.Request) -> web.Response:
    return web.json_response({"alive": True})
