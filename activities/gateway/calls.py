"""One call through the stripe SDK, and every way it can end turned into a value.

The SDK is told not to retry, not to report telemetry and not to print. Its logger passes warnings only, since
at DEBUG it prints whole requests and answers.
"""

import asyncio
import copy
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import stripe
from stripe import _api_requestor, _util

from activities.gateway.classify import NO_HEADERS, AnswerReader
from activities.gateway.requests import PAYMENT_INTENTS_PATH, StripeAccount
from activities.gateway.single_send import CURRENT_EXCHANGE, NEVER_SENT, Exchange, SingleSendSession
from workflows.domain.answer import Answer, Transport
from workflows.domain.errors import invariant
from workflows.domain.keys import IdempotencyKey

STRIPE_VERSION = "2026-10-28.endive"  # pinned here, not by the SDK: an upgrade of the SDK must not change it
NOT_AFTER_HEADER = "Chargeonce-Not-After"  # seconds since the epoch, real time; the proxy sends no later (I6)

CallStyle = Literal["raw", "typed"]

# Names that the SDK takes out of the parameters of a raw request, and would not send.
_SDK_WORDS = frozenset(
    {"api_key", "base", "content_type", "headers", "idempotency_key", "max_network_retries", "method_"}
    | {"stripe_account", "stripe_context", "stripe_version", "url_", "usage"}
)
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Reply:
    """An Answer, and the JSON object it was read from where there was one."""

    answer: Answer
    body: Mapping[str, Any] | None


def boottime_seconds() -> float:
    """Return the clock that `leave_by` is compared with; it counts suspend where a system has such."""
    return time.clock_gettime(_BOOT_CLOCK)


def silence_sdk() -> None:
    """Make the SDK keep requests and answers to itself: no telemetry, no console, no log below WARNING."""
    stripe.enable_telemetry = False
    stripe.log = None
    _util.STRIPE_LOG = None
    for owner, name, silent in _DEAR_WORDS:
        setattr(owner, name, silent)
    stripe_logger = logging.getLogger("stripe")
    stripe_logger.setLevel(logging.WARNING)
    if _is_warning not in stripe_logger.filters:
        stripe_logger.addFilter(_is_warning)  # holds even if somebody sets the level back to DEBUG


def _say_nothing(_message: object, **_parameters: object) -> None:
    return


def _detect_nobody(_environ: Mapping[str, str]) -> str:
    return ""


# Whatever the log's level, the SDK first writes every request and every body into a text, five times a call.
# And in every call it looks up a dozen variables of the environment, to tell Stripe who started the process.
_DEAR_WORDS: tuple[tuple[object, str, object], ...] = (
    (_util, "log_debug", _say_nothing),
    (_util, "log_info", _say_nothing),
    (_api_requestor, "log_debug", _say_nothing),
    (_api_requestor, "log_info", _say_nothing),
    (_api_requestor._APIRequestor, "_detect_ai_agent", staticmethod(_detect_nobody)),  # noqa: SLF001
)


def _is_warning(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


class StripeCalls:
    """A pool of connections to Stripe, and calls through it that never raise what Stripe or the wire did."""

    def __init__(
        self,
        *,
        api_key: str,
        api_base: str | None,
        connections: int,
        timeout_seconds: float,
        call_style: CallStyle,
    ) -> None:
        invariant(api_key, "no API key")
        invariant(connections >= 1, "at least one connection is needed")
        invariant(timeout_seconds > 0, "the timeout must be above 0 s")
        silence_sdk()
        self._typed = call_style == "typed"
        self._api_base = api_base
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(connections)
        self._session = SingleSendSession(
            connections=connections, timeout_seconds=timeout_seconds, ca_bundle_path=stripe.ca_bundle_path
        )
        self._take_key(api_key)

    def under(self, api_key: str) -> "StripeCalls":
        """Return calls by another key through the same connections: closing one closes both."""
        calls = copy.copy(self)
        calls._take_key(api_key)  # noqa: SLF001 - of this class
        return calls

    def _take_key(self, api_key: str) -> None:
        self.reader = AnswerReader(api_key)
        self._through_proxy = api_key.startswith("vk_")
        self._client = stripe.StripeClient(
            api_key,
            base_addresses={"api": self._api_base.rstrip("/")} if self._api_base else {},
            http_client=stripe.AIOHTTPClient(session=self._session),
            max_network_retries=0,
            stripe_version=STRIPE_VERSION,
        )

    async def close(self) -> None:
        """Close the connections. Later calls answer NOT_SENT."""
        await self._session.close()

    async def get(self, path: str, parameters: Mapping[str, object], account: StripeAccount | None) -> Reply:
        """Ask once. `account` is None only where the question is whose key this is."""
        return await self._call("get", path, parameters, account=account, key=None, leave_by=None)

    async def post(
        self,
        path: str,
        parameters: Mapping[str, object],
        account: StripeAccount,
        key: IdempotencyKey,
        leave_by: float | None,
    ) -> Reply:
        """Send once, or not at all if `boottime_seconds` is past `leave_by` when a connection is free."""
        return await self._call("post", path, parameters, account=account, key=key, leave_by=leave_by)

    async def _call(
        self,
        method: Literal["get", "post"],
        path: str,
        parameters: Mapping[str, object],
        *,
        account: StripeAccount | None,
        key: IdempotencyKey | None,
        leave_by: float | None,
    ) -> Reply:
        invariant(not parameters.keys() & _SDK_WORDS, "a parameter has the name of an SDK option")
        async with self._slots:  # waiting for a connection is ours, so it is outside the timeout
            if self._session.closed:
                return self._silence(Transport.NOT_SENT, "the gateway is closed")
            if leave_by is not None and boottime_seconds() > leave_by:
                return self._silence(Transport.NOT_SENT, "too late: the time to send had passed")
            exchange = Exchange(sent_headers=self._not_after(leave_by))
            CURRENT_EXCHANGE.set(exchange)
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    response = await self._request(method, path, parameters, account=account, key=key)
            except TimeoutError:
                reason = f"no complete answer within {self._timeout_seconds:g} s"
                return self._silence(Transport.NO_ANSWER, reason, exchange)
            except stripe.StripeError as error:
                return self._read_error(error, exchange)
            except Exception as error:  # noqa: BLE001 - whatever it was, the request may have been executed
                return self._read_failure(error, exchange)
            return self._read(response.code, response.headers, response.data, exchange)

    def _not_after(self, leave_by: float | None) -> Mapping[str, str]:
        if leave_by is None or not self._through_proxy:
            return NO_HEADERS
        return {NOT_AFTER_HEADER: f"{time.time() + leave_by - boottime_seconds():.3f}"}

    async def _request(
        self,
        method: Literal["get", "post"],
        path: str,
        parameters: Mapping[str, object],
        *,
        account: StripeAccount | None,
        key: IdempotencyKey | None,
    ) -> stripe.StripeResponse:
        options: dict[str, str] = {}
        if key is not None:
            options["idempotency_key"] = key
        if account is not None and account.connected:
            options["stripe_account"] = account.id
        if self._typed and method == "post":
            return await _post_typed(self._client, path, parameters, options)
        raw: Any = await self._client.raw_request_async(method, path, **parameters, **options)
        return cast("stripe.StripeResponse", raw)

    def _read_error(self, error: stripe.StripeError, exchange: Exchange) -> Reply:
        if isinstance(error, stripe.APIConnectionError):
            return self._read_failure(error.__cause__ or error, exchange)
        body = error.json_body
        if error.http_status is not None and isinstance(body, dict) and isinstance(body.get("error"), dict):
            return self._read(error.http_status, exchange.headers, body, exchange)
        return self._silence(Transport.UNREADABLE, _describe_body(exchange), exchange)

    def _read(self, status: int, headers: Mapping[str, str], body: object, exchange: Exchange) -> Reply:
        if not isinstance(body, dict):
            return self._silence(Transport.UNREADABLE, _describe_body(exchange), exchange)
        try:
            return Reply(self.reader.answer(status, headers, body), body)
        except Exception as error:  # noqa: BLE001 - a body that trips our reader is one that can't be read
            reason = f"unreadable: {type(error).__name__}"
            return self._silence(Transport.UNREADABLE, reason, exchange)

    def _read_failure(self, error: BaseException, exchange: Exchange) -> Reply:
        reason = f"{type(error).__name__}: {error}"
        if exchange.status is not None:
            return self._silence(Transport.UNREADABLE, reason, exchange)
        if isinstance(error, NEVER_SENT):
            return self._silence(Transport.NOT_SENT, reason)
        return self._silence(Transport.NO_ANSWER, reason)

    def _silence(self, transport: Transport, reason: str, exchange: Exchange | None = None) -> Reply:
        status = exchange.status if exchange else None
        headers = exchange.headers if exchange else NO_HEADERS
        return Reply(self.reader.no_answer(transport, reason, status=status, headers=headers), None)


def _describe_body(exchange: Exchange) -> str:
    """Never the body itself: it may hold a client secret or personal data."""
    kind = exchange.headers.get("Content-Type", "no content type")
    return f"HTTP {exchange.status} with a body that is not Stripe's JSON ({kind})"


async def _post_typed(
    client: stripe.StripeClient, path: str, parameters: Mapping[str, object], options: Mapping[str, str]
) -> stripe.StripeResponse:
    """Send through the SDK's typed services, which build a StripeObject; only its raw answer is kept."""
    service: Any = client.v1.payment_intents
    tail = path.removeprefix(PAYMENT_INTENTS_PATH).strip("/").split("/")
    match tail:
        case [""]:
            made = await service.create_async(parameters, options)
        case [payment_intent_id, "confirm"]:
            made = await service.confirm_async(payment_intent_id, parameters, options)
        case [payment_intent_id, "cancel"]:
            made = await service.cancel_async(payment_intent_id, parameters, options)
        case _:
            raw: Any = await client.raw_request_async("post", path, **parameters, **options)
            return cast("stripe.StripeResponse", raw)
    return cast("stripe.StripeResponse", made.last_response)
