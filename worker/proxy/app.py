"""One request through the proxy: read, decide and commit, send once, reply, record.

Nothing leaves before its reservation and its row of the audit are committed, and no transaction is open while
Stripe is asked. The answer is recorded behind the reply; a proxy that dies before leaves it unknown, which
holds the money.
"""

import asyncio
import json
import logging
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import aiohttp
from aiohttp import web

from activities.crash_points import ProxyPoint, reach
from activities.ledger.cap import ASK_FIRST, FORWARD, Admission, Ask, Told
from worker.proxy.answers import (
    ACCOUNT_BUSY,
    AMBIGUOUS_REQUEST,
    PROXY_FAILED,
    UPSTREAM_NO_ANSWER,
    OwnAnswer,
    Refusal,
    own_answer,
)
from worker.proxy.describing import describe
from worker.proxy.evidence import Answered, tell, tell_silence
from worker.proxy.looking import AskedInVain, complete
from worker.proxy.parts import Parts
from worker.proxy.reading import NOT_AFTER, SENT_ON, Incoming, read_ask
from worker.proxy.real_keys import RealKey
from worker.proxy.upstream import NoAnswer, NoPlace, NotReached, headers_to_pass_on, read_whole
from workflows.domain.cap import Outcome
from workflows.domain.errors import NothingWasSent
from workflows.domain.vault import Effect
from workflows.domain.verdict import UPSTREAM_NOT_REACHED

REQUEST_BYTES_MAX: Final = 1024 * 1024
LEAVE_WITHIN_SECONDS: Final = 5.0  # I6: a request leaves this soon after its commit, or not at all
STREAMED_ABOVE_BYTES: Final = 64 * 1024
RECORD_FIRST_SECONDS: Final = 2.0

_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_LOG = logging.getLogger("chargeonce.proxy")


PARTS: Final = web.AppKey("parts", Parts)


def build_app(parts: Parts) -> web.Application:
    """Return the web application: one handler for everything, and a health check."""
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    app[PARTS] = parts
    app.router.add_get("/_proxy/health", _show_health)
    app.router.add_route("*", "/{anything:.*}", _relay)
    return app


def answer_failure(status: int) -> web.Response:
    """Return what a request gets that never came to a handler, or that the proxy failed at itself."""
    code = PROXY_FAILED if status >= 500 else AMBIGUOUS_REQUEST
    return _reply(own_answer(code, "" if status >= 500 else "it is no request of HTTP that Stripe takes"))


async def _show_health(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    account, modes = parts.keys.own_account, parts.keys.modes
    return web.json_response(
        {
            "ok": True,
            "account": account,
            "accounts": sorted(modes),
            "mode": modes.get(account or ""),
            "modes": modes,
            "unrecorded": parts.ledger.unrecorded,
        }
    )


async def _relay(request: web.Request) -> web.StreamResponse:
    parts, began = request.app[PARTS], time.monotonic()
    body = await _read_body(request)
    if body is None:
        return _reply(own_answer(AMBIGUOUS_REQUEST, "the body is too long, compressed or broken"))
    incoming = Incoming(request.method, request.raw_path, request.headers, body)
    try:
        ask = read_ask(incoming, time.time())
    except Refusal as refusal:
        _log(None, refusal.code, began)
        return _reply(own_answer(refusal.code, refusal.detail))
    return await _Relay(parts, request, incoming, ask, began).run()


async def _read_body(request: web.Request) -> bytes | None:
    if "Content-Encoding" in request.headers:  # aiohttp would unpack it
        return None
    try:
        return await request.read()
    except (web.HTTPRequestEntityTooLarge, web.RequestPayloadError, aiohttp.ClientPayloadError):
        return None


class _Relay:
    """The way of one request."""

    def __init__(
        self, parts: Parts, request: web.Request, incoming: Incoming, ask: Ask, began: float
    ) -> None:
        self._parts = parts
        self._request = request
        self._incoming = incoming
        self._ask = ask
        self._began = began

    async def run(self) -> web.StreamResponse:
        """Return the reply to the caller, which may have been sent already."""
        leave_by = boottime_seconds() + LEAVE_WITHIN_SECONDS
        reach(ProxyPoint.BEFORE_ADMIT)
        try:
            admission = await self._admit()
        except NothingWasSent as failure:
            return self._refuse(UPSTREAM_NOT_REACHED, str(failure))
        except AskedInVain as vain:
            return (
                self._pass_on(vain.answered)
                if vain.answered
                else self._refuse(UPSTREAM_NOT_REACHED, str(vain))
            )
        reach(ProxyPoint.AFTER_ADMIT)
        if admission.decision != FORWARD:
            return self._refuse(
                admission.decision, describe(self._ask, admission, self._parts.keys.modes), admission
            )
        key = self._parts.keys.of(admission.account or "")
        if key is None:
            return await self._take_back("the account's key has gone")
        if boottime_seconds() > leave_by or self._is_late():
            return await self._take_back("the time to send had passed")
        reach(ProxyPoint.BEFORE_REQUEST)
        return await self._send(key, admission)

    async def _admit(self) -> Admission:
        ledger = self._parts.ledger
        admission = await ledger.admit(self._ask)
        if admission.decision == ASK_FIRST:
            self._ask = await complete(self._parts, self._ask, self._incoming, admission.account or "")
            admission = await ledger.admit(self._ask)
        if admission.decision == ASK_FIRST:
            raise AskedInVain("what the request would move can't be known")
        return admission

    async def _send(self, key: RealKey, admission: Admission) -> web.StreamResponse:
        method, target, body = self._incoming.method, self._incoming.target, self._incoming.body
        headers = {name: self._incoming.headers[name] for name in SENT_ON if name in self._incoming.headers}
        headers |= key.headers(admission.account or "")
        try:
            async with self._parts.upstream.open(
                method, target, headers, body, account=admission.account or ""
            ) as response:
                if self._may_stream(response):
                    return await self._stream(response, admission)
                answered = await read_whole(response)
        except NoPlace:
            return await self._take_back("", code=ACCOUNT_BUSY)
        except NotReached as failure:
            return await self._take_back(f"Stripe can't be reached ({failure})")
        except NoAnswer as failure:
            reach(ProxyPoint.AFTER_REQUEST)
            told = tell_silence(self._ask, self._elapsed_ms())
            self._parts.ledger.record(told, asked_for=self._ask.intent)
            return self._refuse(UPSTREAM_NO_ANSWER, str(failure), admission)
        reach(ProxyPoint.AFTER_REQUEST)
        if answered.status == 401:
            self._parts.refresh_keys()
        if answered.status < 400:  # runs once the reply is out, and before the next request is read
            asyncio.get_running_loop().call_soon(self._note_behind, answered, admission)
        else:
            await self._wait_for_record(self._note(answered, admission))
        return self._pass_on(answered)

    def _note_behind(self, answered: Answered, admission: Admission) -> None:
        try:
            self._note(answered, admission)
        except Exception as error:  # noqa: BLE001 - asyncio would log the whole answer
            entry = {"event": "answer_not_noted", "call": self._ask.call_id, "error": type(error).__name__}
            _LOG.error(json.dumps(entry))

    def _note(self, answered: Answered, admission: Admission) -> Told:
        told = tell(self._ask, answered, self._elapsed_ms())
        self._parts.ledger.record(told, asked_for=self._ask.intent)
        _log(
            self._ask,
            FORWARD,
            self._began,
            status=answered.status,
            key_id=admission.key_id,
            request_id=told.request_id,
        )
        return told

    def _may_stream(self, response: aiohttp.ClientResponse) -> bool:
        if self._ask.effect != Effect.READ or self._ask.intent is not None or response.status >= 400:
            return False
        length = response.content_length
        return length is None or length > STREAMED_ABOVE_BYTES

    async def _stream(self, response: aiohttp.ClientResponse, admission: Admission) -> web.StreamResponse:
        reply = web.StreamResponse(status=response.status, headers=headers_to_pass_on(response.headers))
        if response.content_length is not None:
            reply.content_length = response.content_length
        await reply.prepare(self._request)
        try:
            async for chunk in response.content.iter_any():
                await reply.write(chunk)
            await reply.write_eof()
        except (aiohttp.ClientError, TimeoutError, OSError):
            # The head has gone out: all that can still be said is that the body ends too early.
            if self._request.transport is not None:
                self._request.transport.abort()
        answered = Answered(response.status, response.headers, b"")
        self._parts.ledger.record(tell(self._ask, answered, self._elapsed_ms()))
        _log(self._ask, FORWARD, self._began, status=response.status, key_id=admission.key_id)
        return reply

    async def _wait_for_record(self, told: Told) -> None:
        """Wait for the record of an answer, unless Stripe can be asked for it again.

        Of a request that was not executed Stripe shows nothing later. Had its caller been told before the row
        was committed, and the proxy died in between, the money would be held until somebody cancels.
        """
        if told.outcome is Outcome.NOT_EXECUTED and told.counts:
            with suppress(TimeoutError):
                async with asyncio.timeout(RECORD_FIRST_SECONDS):
                    await self._parts.ledger.recorded(told.call_id)

    async def _take_back(self, why: str, *, code: str = UPSTREAM_NOT_REACHED) -> web.Response:
        """It was admitted and has not left: give back what was held for it."""
        told = tell_silence(self._ask, self._elapsed_ms())
        told = replace(told, outcome=Outcome.NOT_EXECUTED, code=code)
        self._parts.ledger.record(told, asked_for=self._ask.intent)
        await self._wait_for_record(told)
        return self._refuse(code, why)

    def _refuse(self, code: str, detail: str, admission: Admission | None = None) -> web.Response:
        answer = own_answer(code, detail)
        key_id = admission.key_id if admission else None
        _log(self._ask, code, self._began, status=answer.status, key_id=key_id, request_id=answer.request_id)
        return _reply(answer)

    def _pass_on(self, answered: Answered) -> web.Response:
        body = answered.body if answered.status < 400 else self._parts.keys.hide(answered.body)
        return web.Response(status=answered.status, headers=headers_to_pass_on(answered.headers), body=body)

    def _is_late(self) -> bool:
        not_after = self._incoming.headers.get(NOT_AFTER)
        return not_after is not None and time.time() > float(not_after)

    def _elapsed_ms(self) -> float:
        return round((time.monotonic() - self._began) * 1000, 3)


def boottime_seconds() -> float:
    """Return a clock that counts suspend where a system has such."""
    return time.clock_gettime(_BOOT_CLOCK)


def _reply(answer: OwnAnswer) -> web.Response:
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def _log(ask: Ask | None, decision: str, began: float, **fields: Any) -> None:
    if not _LOG.isEnabledFor(logging.INFO):
        return
    entry = {
        "event": "proxy_call",
        "decision": decision,
        "method": ask.method if ask else None,
        "path": ask.path if ask else None,
        "call": ask.call_id if ask else None,
        "ms": round((time.monotonic() - began) * 1000, 1),
        **fields,
    }
    _LOG.info(json.dumps(entry))
