"""One refund request, carried one step: sent on the path of all sends, or asked what became of it.

The same persisted key as everything that is sent, frozen with its body before the first send, and never
another one: a refund that no list shows after the window is for people to decide.
"""

import json
import time

from temporalio import activity

from activities.accounts import AccountParts, Accounts
from activities.crash_points import RefundPoint, reach
from activities.gateway.calls import boottime_seconds
from activities.gateway.requests import refund_request
from activities.heartbeat import heartbeats
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.money_back import MoneyBackLedger
from activities.ledger.refunds import RefundLedger, RefundRequest
from activities.limiter import Endpoint
from activities.send import LEAVE_WITHIN_SECONDS
from activities.vault import refunding
from workflows import refund_contracts as contracts
from workflows.contracts import RunKey
from workflows.domain.errors import StaleWrite
from workflows.domain.keys import canonical_parameters, fingerprint
from workflows.domain.refund import (
    RefundVerdict,
    RequestState,
    find_refund,
    judge_refund,
    made,
    rule_on_refund,
)
from workflows.domain.verdict import Cause
from workflows.refund_contracts import RefundOrder, RefundStep

BACKOFF_SECONDS = 5.0


class RefundActivities(contracts.RefundActivities):
    """Carries refund requests, for every account that this process has credentials for."""

    def __init__(self, pool: Pool, accounts: Accounts) -> None:
        self._pool = pool
        self._accounts = accounts
        self._refunds = RefundLedger(pool)

    @activity.defn(name="carry_refund")
    async def carry_refund(self, order: RefundOrder) -> RefundStep:
        """Take one step: send it, or find out what an earlier send did. Repeatable at any point."""
        async with heartbeats():
            request = await self._refunds.read(order.request_id)
            if request.state in {RequestState.REQUESTED, RequestState.SENDING}:
                run = RunKey(run_id=order.run_id, account=order.account)
                parts = await self._accounts.of(run, refunding(order.request_id))
                carrier = _Carrier(self._pool, self._refunds, parts)
                return await carrier.carry(request)
            return _step(request)


class _Carrier:
    """Sends one account's refunds."""

    def __init__(self, pool: Pool, refunds: RefundLedger, parts: AccountParts) -> None:
        self._pool = pool
        self._refunds = refunds
        self._parts = parts

    async def carry(self, request: RefundRequest) -> RefundStep:
        try:
            if request.state is RequestState.REQUESTED:
                return await self._send_first(request)
            return await self._find_out(request)
        except StaleWrite:
            return _step(await self._refunds.read(request.request_id), wait_seconds=BACKOFF_SECONDS)

    async def _send_first(self, request: RefundRequest) -> RefundStep:
        asked = refund_request(
            request.payment_intent,
            amount_minor=request.amount_minor,
            kind=request.kind,
            request_id=request.request_id,
            charge_id=request.charge_id,
        )
        parameters = canonical_parameters(asked.parameters)
        if await self._refunds.may_have_been_forgotten(request):
            made_before = await self._find_forgotten(request, asked.path, parameters)
            if made_before is not None:
                return made_before
        await self._parts.limiter.acquire(Endpoint.REFUND)
        async with self._parts.places:
            leave_by = boottime_seconds() + LEAVE_WITHIN_SECONDS
            reach(RefundPoint.BEFORE_INTENT)
            send_no = await self._refunds.intend_first(
                request,
                path=asked.path,
                parameters=parameters,
                fingerprint=fingerprint(asked.path, parameters),
            )
            return await self._send(request, send_no, asked.path, parameters, leave_by, first_send=True)

    async def _find_forgotten(self, request: RefundRequest, path: str, parameters: str) -> RefundStep | None:
        """Look for what a restored ledger may have sent before: past its window the key would refund twice.

        None where Stripe shows no refund of this request, so that it may be sent.
        """
        await self._parts.limiter.acquire(Endpoint.LIST)
        found = await self._parts.gateway.list_refunds(self._parts.account, request.payment_intent)
        refund = find_refund(found.items, request.request_id)
        if refund is None:
            if found.failure is None:
                return None
            return _step(request, reason=found.failure, wait_seconds=BACKOFF_SECONDS)
        await self._refunds.intend_first(
            request, path=path, parameters=parameters, fingerprint=fingerprint(path, parameters)
        )
        await self._keep(request, made(refund))
        await self._refunds.end(
            request, RequestState.MADE, f"{refund.refund_id} was found", refund_id=refund.refund_id
        )
        return _step(await self._refunds.read(request.request_id))

    async def _find_out(self, request: RefundRequest) -> RefundStep:
        """List the refunds of its PaymentIntent; send its key again only where that decides nothing."""
        await self._parts.limiter.acquire(Endpoint.LIST)
        frozen, now = await self._refunds.frozen_key(request)
        began = time.monotonic()
        found = await self._parts.gateway.list_refunds(self._parts.account, request.payment_intent)
        reach(RefundPoint.AFTER_LOOKUP)
        refund = find_refund(found.items, request.request_id)
        if refund is not None:
            await self._keep(request, made(refund))
            await self._refunds.end(
                request, RequestState.MADE, f"{refund.refund_id} was found", refund_id=refund.refund_id
            )
            return _step(await self._refunds.read(request.request_id))
        took_seconds, theirs = time.monotonic() - began, found.stripe_epoch_seconds
        ruling = rule_on_refund(
            age_seconds=now - frozen.first_intended_epoch_seconds,
            listed_in_full=found.failure is None,
            skew_seconds=None if theirs is None else now + took_seconds - theirs,
            stored_failure=frozen.stored_failure,
        )
        if ruling.review:
            await self._refunds.end(request, RequestState.REVIEW, ruling.reason)
            return _step(await self._refunds.read(request.request_id))
        if not ruling.resend:
            reason = found.failure or ruling.reason
            return _step(request, reason=reason, wait_seconds=ruling.wait_seconds or BACKOFF_SECONDS)
        await self._parts.limiter.acquire(Endpoint.REFUND)
        async with self._parts.places:
            leave_by = boottime_seconds() + LEAVE_WITHIN_SECONDS
            send_no = await self._refunds.intend_again(request, reason=ruling.reason)
            return await self._send(
                request,
                send_no,
                frozen.path,
                frozen.parameters,
                leave_by,
                first_send=frozen.open_sends == 0,
            )

    async def _send(
        self,
        request: RefundRequest,
        send_no: int,
        path: str,
        parameters: str,
        leave_by: float,
        *,
        first_send: bool,
    ) -> RefundStep:
        reach(RefundPoint.AFTER_INTENT)
        answer, refund = await self._parts.gateway.post_refund(
            account=self._parts.account,
            path=path,
            parameters=json.loads(parameters),
            key=request.key,
            leave_by_boottime_seconds=leave_by,
        )
        reach(RefundPoint.AFTER_REQUEST)
        verdict = judge_refund(answer, refund, first_send=first_send)
        if verdict.cause is Cause.RATE_LIMITED:
            self._parts.limiter.slow_down(
                Endpoint.REFUND,
                retry_after_seconds=answer.retry_after_seconds,
                reason=answer.rate_limited_reason or answer.code,
            )
        await self._keep(request, verdict)
        await self._refunds.record(request, send_no, answer, verdict)
        reach(RefundPoint.AFTER_RECORD)
        return _step(
            await self._refunds.read(request.request_id),
            reason=verdict.reason,
            wait_seconds=answer.retry_after_seconds or BACKOFF_SECONDS,
        )

    async def _keep(self, request: RefundRequest, verdict: RefundVerdict) -> None:
        """Keep what was made beside the charge, unless a look that came later has been here."""
        if verdict.refund is not None:
            charge = await ChargeLedger(self._pool).read(request.charge_id)
            money_back = MoneyBackLedger(self._pool)
            await money_back.save_refunds(charge, [verdict.refund], look=await money_back.next_look())


def _step(request: RefundRequest, *, reason: str | None = None, wait_seconds: float = 0.0) -> RefundStep:
    done = request.state not in {RequestState.REQUESTED, RequestState.SENDING}
    return RefundStep(
        state=request.state,
        reason=(request.detail if done else reason) or reason or request.state,
        refund_id=request.refund_id,
        wait_seconds=0.0 if done else max(wait_seconds, 0.5),
    )
