"""Stripe, as the rest of the project sees it: plain values in, plain values out, nothing raised by the wire.

No call decides anything: what an answer proves is the business of `workflows.domain.verdict`, and what a
lookup means that of `workflows.domain.recovery`. No SDK object leaves this folder: those carry the API key
when pickled.
"""

import asyncio
import copy
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Self

from activities.gateway.balance import StripeBalance
from activities.gateway.calls import CallStyle, Reply, StripeCalls
from activities.gateway.events import list_events
from activities.gateway.findings import EventPage, Page, PaymentMethodFinding, RefundPage
from activities.gateway.money_back import list_disputes, list_refunds, read_refund, scan_refunds
from activities.gateway.payment_methods import attached_method, payment_method_of
from activities.gateway.replies import describe, items_of, refusal_of
from activities.gateway.requests import (
    PAYMENT_INTENTS_PATH,
    StripeAccount,
    payment_intent_path,
)
from workflows.domain.answer import Answer, Lookup, PaymentIntent, Transport
from workflows.domain.errors import CredentialsRefused, RefusedToStart, invariant
from workflows.domain.keys import KEY_LENGTH_MAX, IdempotencyKey, Operation
from workflows.domain.money_back import Dispute, Found, Refund

PAGE_SIZE_MAX = 100
PAGES_PER_LOOKUP_MAX = 100
ACCOUNT_PATH = "/v1/account"
ACCOUNT_PAUSES_SECONDS = (0.2, 0.5, 1.0)

_KEY = re.compile(rf"[!-~]{{1,{KEY_LENGTH_MAX}}}")  # printable ASCII without space: a header's value


def _check_key(operation: Operation, path: str, key: IdempotencyKey) -> None:
    invariant(_KEY.fullmatch(key or ""), f"every POST needs a key of 1 to {KEY_LENGTH_MAX} characters")
    invariant(key.startswith(f"{operation.value}_"), f"the key of another operation than {operation}")
    invariant(path.startswith("/v1/"), "only v1 keeps the promise that the window rests on")


class StripeGateway:
    """The one door to Stripe. Belongs to the event loop of its first call; close it there."""

    def __init__(
        self,
        *,
        api_key: str,
        api_base: str | None,
        connections: int = 100,
        timeout_seconds: float = 15.0,
        call_style: CallStyle = "raw",
    ) -> None:
        """Prepare a pool; nothing is sent.

        Args:
            api_key: A secret or restricted key, or a vault key of the spend-cap proxy.
            api_base: Where Stripe is, such as the proxy or the simulator; None is Stripe itself.
            connections: Requests in flight at most; more wait their turn, unsent.
            timeout_seconds: From a free connection to the complete answer, in all. A third of it may go on
                connecting; that failing means that nothing was sent.
            call_style: `raw` skips the SDK's typed objects, `typed` goes through them. Same answers.
        """
        self._calls = StripeCalls(
            api_key=api_key,
            api_base=api_base,
            connections=connections,
            timeout_seconds=timeout_seconds,
            call_style=call_style,
        )

    def under(self, api_key: str) -> "StripeGateway":
        """Return a gateway by another key through the same connections: closing one closes both.

        It costs next to nothing, so each run may have its own; connections are shared by all.
        """
        gateway = copy.copy(self)
        gateway._calls = self._calls.under(api_key)  # noqa: SLF001 - of this class
        return gateway

    async def __aenter__(self) -> Self:
        """Return the gateway; connections open when they are needed."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.close()

    async def close(self) -> None:
        """Close the connections. Sends after this answer NOT_SENT."""
        await self._calls.close()

    async def post(
        self,
        operation: Operation,
        *,
        account: StripeAccount,
        path: str,
        parameters: Mapping[str, object],
        key: IdempotencyKey,
        leave_by_boottime_seconds: float | None = None,
    ) -> Answer:
        """Send one operation once and return what came back, or the fact that nothing did.

        Args:
            operation: What is asked, which the path and the key must agree with.
            account: Whose money.
            path: The frozen path.
            parameters: The frozen parameters, sent as they are.
            key: The committed key. An empty one would make the SDK invent a random one: a second charge.
            leave_by_boottime_seconds: The `boottime_seconds` after which the request must not leave any more
                (invariant I6), looked at when a connection is free; None is no limit.

        Raises:
            InvariantViolation: The key is missing, too long, no header value, or another operation's.
            asyncio.CancelledError: The outcome is as unknown as after a timeout.
        """
        _check_key(operation, path, key)
        reply = await self._calls.post(path, parameters, account, key, leave_by_boottime_seconds)
        return reply.answer

    async def post_refund(
        self,
        *,
        account: StripeAccount,
        path: str,
        parameters: Mapping[str, object],
        key: IdempotencyKey,
        leave_by_boottime_seconds: float | None = None,
    ) -> tuple[Answer, Refund | None]:
        """Send a refund once, as `post` does; return what came back, and the refund that could be read."""
        _check_key(Operation.REFUND, path, key)
        reply = await self._calls.post(path, parameters, account, key, leave_by_boottime_seconds)
        refund = read_refund(self._calls.reader, reply.body) if reply.answer.succeeded else None
        # A refund of another PaymentIntent is not an answer to this.
        asked = parameters.get("payment_intent")
        return reply.answer, refund if refund is not None and refund.payment_intent == asked else None

    async def retrieve_payment_intent(
        self, account: StripeAccount, payment_intent_id: str, *, started_epoch_seconds: float
    ) -> Lookup:
        """Return one PaymentIntent as Stripe states it now.

        Incomplete where no readable PaymentIntent came back: a 404 may only mean the wrong account.
        `started_epoch_seconds` is the ledger's clock just before this call.
        """
        began = time.monotonic()
        reply = await self._calls.get(payment_intent_path(payment_intent_id), {}, account)
        intent = reply.answer.payment_intent if reply.answer.succeeded else None
        found = intent is not None and intent.id == payment_intent_id
        return Lookup(
            payment_intents=(intent,) if intent is not None and found else (),
            complete=found,
            started_epoch_seconds=started_epoch_seconds,
            skew_seconds=_skew_seconds(started_epoch_seconds, began, reply.answer.stripe_epoch_seconds),
            request_ids=_present(reply.answer.request_id),
            failure=None if found else describe(reply.answer),
            refusal=refusal_of(reply.answer),
        )

    async def list_payment_intents(
        self,
        account: StripeAccount,
        *,
        customer: str | None,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
        started_epoch_seconds: float,
    ) -> Lookup:
        """Return all PaymentIntents of a customer (or of the account) created in a span, bounds included.

        Stops, incomplete, after 100 pages of 100; larger spans go through `scan_payment_intents`.
        """
        began = time.monotonic()
        intents: list[PaymentIntent] = []
        request_ids: list[str] = []
        skew_seconds: float | None = None
        failure: str | None = "nothing was listed"
        refusal: str | None = None
        pages = 0
        async for page in self.scan_payment_intents(
            account,
            customer=customer,
            created_from_epoch_seconds=created_from_epoch_seconds,
            created_to_epoch_seconds=created_to_epoch_seconds,
        ):
            if pages == 0:
                skew_seconds = _skew_seconds(started_epoch_seconds, began, page.stripe_epoch_seconds)
            pages += 1
            intents.extend(page.payment_intents)
            request_ids.extend(_present(page.request_id))
            failure, refusal = page.failure, page.refusal
            if page.has_more and pages == PAGES_PER_LOOKUP_MAX:
                failure = f"more than {PAGES_PER_LOOKUP_MAX} pages"
                break
        return Lookup(
            payment_intents=tuple(intents),
            complete=failure is None,
            started_epoch_seconds=started_epoch_seconds,
            skew_seconds=skew_seconds,
            request_ids=tuple(request_ids),
            failure=failure,
            refusal=refusal,
        )

    async def scan_payment_intents(
        self,
        account: StripeAccount,
        *,
        customer: str | None,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[Page]:
        """Yield pages of PaymentIntents created in a span, newest first, until the last or a failed one.

        Without a customer Stripe leaves out objects of test clocks. What is created while the scan runs is
        not shown, so evidence of absence speaks of the time before the first page.
        """
        created = {"gte": created_from_epoch_seconds}
        if created_to_epoch_seconds is not None:
            created["lte"] = created_to_epoch_seconds
        parameters: dict[str, object] = {"created": created, "limit": PAGE_SIZE_MAX}
        if customer is not None:
            parameters["customer"] = customer
        while True:
            page, last_id = self._read_page(await self._calls.get(PAYMENT_INTENTS_PATH, parameters, account))
            yield page
            if not page.has_more:
                return
            parameters["starting_after"] = last_id

    def _read_page(self, reply: Reply) -> tuple[Page, str | None]:
        answer, items, has_more = reply.answer, items_of(reply), False
        intents = [self._calls.reader.payment_intent(item) for item in items or ()]
        known = tuple(intent for intent in intents if intent is not None)
        last_id = known[-1].id if known else None
        failure: str | None = None
        if items is None:
            failure = describe(answer)
        elif len(known) < len(intents):
            failure = "an item of the list can't be read"
        elif reply.body is not None and reply.body.get("has_more") is not False:
            has_more = last_id is not None
            failure = None if has_more else "an empty page that says there is more"
        page = Page(
            payment_intents=known,
            complete=failure is None,
            has_more=has_more,
            request_id=answer.request_id,
            stripe_epoch_seconds=answer.stripe_epoch_seconds,
            failure=failure,
            retry_after_seconds=answer.retry_after_seconds,
            refusal=refusal_of(answer),
        )
        return page, last_id

    async def list_refunds(self, account: StripeAccount, payment_intent_id: str) -> Found[Refund]:
        """Return all refunds of a PaymentIntent."""
        return await list_refunds(self._calls, account, payment_intent_id)

    def scan_refunds(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[RefundPage]:
        """Yield pages of the account's refunds of a span, newest first, until the last or a failed one."""
        return scan_refunds(
            self._calls,
            account,
            created_from_epoch_seconds=created_from_epoch_seconds,
            created_to_epoch_seconds=created_to_epoch_seconds,
        )

    def list_events(
        self,
        account: StripeAccount,
        *,
        types: Sequence[str],
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[EventPage]:
        """Yield pages of the account's events of a span, newest first, until the last or a failed one."""
        return list_events(
            self._calls,
            account,
            types=types,
            created_from_epoch_seconds=created_from_epoch_seconds,
            created_to_epoch_seconds=created_to_epoch_seconds,
        )

    async def list_disputes(self, account: StripeAccount, payment_intent_id: str) -> Found[Dispute]:
        """Return all disputes of a PaymentIntent."""
        return await list_disputes(self._calls, account, payment_intent_id)

    @property
    def balance(self) -> StripeBalance:
        """What moved on an account's balance, and its payouts."""
        return StripeBalance(self._calls)

    async def retrieve_account(self) -> str:
        """Return the id of the account that the API key belongs to; no answer is asked for again, briefly.

        Raises:
            CredentialsRefused: Stripe refuses the key.
            RefusedToStart: Stripe did not say, with what it said instead.
        """
        reply = await self._calls.get(ACCOUNT_PATH, {}, None)
        for pause_seconds in ACCOUNT_PAUSES_SECONDS:
            if not _may_answer_later(reply.answer):
                break
            await asyncio.sleep(pause_seconds)
            reply = await self._calls.get(ACCOUNT_PATH, {}, None)
        account_id = self._calls.reader.word(reply.body.get("id")) if reply.body else None
        if reply.answer.succeeded and account_id:
            return account_id
        refusal = CredentialsRefused if refusal_of(reply.answer) is not None else RefusedToStart
        raise refusal(f"Stripe does not say whose API key this is: {describe(reply.answer)}")

    async def payment_method_of(
        self,
        account: StripeAccount,
        customer: str,
        *,
        turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> PaymentMethodFinding:
        """Return how a customer can be charged: by the invoice default, else by the only card attached.

        Takes one or two requests; each waits for a `turn` of its own and holds it until its answer is here.
        """
        return await payment_method_of(self._calls, account, customer, turn=turn)

    async def attached_method(
        self,
        account: StripeAccount,
        customer: str,
        payment_method: str,
        *,
        turn: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> PaymentMethodFinding:
        """Return whether a payment method of whatever type is attached to a customer: ATTACHED, or NONE."""
        return await attached_method(self._calls, account, customer, payment_method, turn=turn)


def _may_answer_later(answer: Answer) -> bool:
    if answer.transport is not Transport.ANSWERED or answer.http_status is None:
        return True
    return answer.http_status == 429 or answer.http_status >= 500


def _skew_seconds(started: float, began_monotonic: float, stripe_epoch_seconds: float | None) -> float | None:
    """Ledger's clock minus Stripe's, good to half the call's duration and the one-second grain of `Date`."""
    if stripe_epoch_seconds is None:
        return None
    return started + (time.monotonic() - began_monotonic) / 2 - stripe_epoch_seconds


def _present(request_id: str | None) -> tuple[str, ...]:
    return (request_id,) if request_id else ()
