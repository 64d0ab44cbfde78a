"""`chargeonce refund` and `refunds`: what would go back, the approval, what became of it."""

import asyncio
import sys
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from activities.explain import explain_charge
from activities.ledger.database import open_pool
from activities.ledger.refunds import RefundLedger, RefundRequest
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_FAILED, EXIT_USAGE, CommandFailed
from worker.reasons import read_reason
from worker.refunds import (
    Refundable,
    RefundHandle,
    approve_key,
    look_at_refundable,
    request_refund,
    start_refund,
)
from worker.temporal_client import connect_temporal, read_trouble
from worker.waiting import result_of
from worker.whoami import who as user_at_host
from worker.wiring import open_accounts
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money, parse_major
from workflows.domain.refund import RequestState
from workflows.refund_contracts import RefundStep

if TYPE_CHECKING:
    from rich.console import RenderableType

LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RefundCommand:
    """What was typed: a charge, or the id of a request that was interrupted."""

    charge: str | None
    request_id: str | None
    run_id: str | None
    payment_intent: str | None
    amount: str | None
    reason: str | None
    who: str | None
    yes: bool
    wait: bool


async def refund(output: Output, command: RefundCommand) -> None:
    """Give money of a charge back, once, and print what became of it.

    Raises:
        InvalidInput: It is not clear which charge is meant, or the amount can't be.
        CommandFailed: 2: nobody confirmed; 1: Stripe refused it, or people have to decide.
        RefusedToStart: Stripe shows nothing that could go back, or did not answer; nothing was sent.
    """
    settings = load_settings()
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(
            open_pool(settings.database_url.get_secret_value(), connections=2)
        )
        if command.request_id is not None:
            request = await RefundLedger(pool).read(command.request_id)
            if request.state is RequestState.REQUESTED:
                await approve_key(pool, settings, request)
        else:
            accounts = await stack.enter_async_context(open_accounts(settings, pool))
            story = await explain_charge(pool, command.charge or "", run_id=command.run_id)
            found = await look_at_refundable(pool, accounts, story.charge_id, command.payment_intent)
            amount_minor = _amount(command, found)
            await _confirm(output, command, found, amount_minor)
            request = await request_refund(
                pool,
                settings,
                found,
                amount_minor=amount_minor,
                who=command.who or user_at_host(),
                reason=read_reason(command.reason or ""),
            )
        handle = await start_refund(await connect_temporal(), settings, request)
        if not command.wait:
            text = f"refund request {request.request_id} is under way: chargeonce refunds"
            output.result(_document(request, None), lambda: [text])
            return
        step = await _await_step(output, handle, request)
        ended = await RefundLedger(pool).read(request.request_id)
    _print(output, ended, step)


def _amount(command: RefundCommand, found: Refundable) -> int | None:
    if command.amount is not None:
        return parse_major(command.amount, found.intent.currency)
    if not found.is_own:
        left = format_money(found.left_minor, found.intent.currency)
        raise InvalidInput(
            f"{found.intent.id} is not the charge's own PaymentIntent, so its refund is approved by amount: "
            f"{left} of it has not gone back yet; say --amount"
        )
    return None


async def _confirm(
    output: Output, command: RefundCommand, found: Refundable, amount_minor: int | None
) -> None:
    currency = found.intent.currency
    amount = format_money(found.left_minor if amount_minor is None else amount_minor, currency)
    back = format_money(found.returned_minor, currency)
    question = (
        f"refund {amount} to {found.charge.customer} by {found.intent.id} "
        f"({format_money(found.intent.amount_minor, currency)} paid, {back} went back before)"
    )
    output.notice(question)
    if command.yes:
        return
    if not sys.stdin.isatty():
        raise CommandFailed(
            "nobody is there to confirm, so nothing was asked of Stripe: say --yes", exit_code=EXIT_USAGE
        )
    if not await asyncio.to_thread(typer.confirm, "Go on?", err=True):
        raise CommandFailed("not confirmed: nothing was asked of Stripe", exit_code=EXIT_USAGE)


async def _await_step(output: Output, handle: RefundHandle, request: RefundRequest) -> RefundStep:
    """Return how it ended; say once each what keeps it meanwhile. Ctrl-C ends the waiting alone."""
    result, said = asyncio.ensure_future(result_of(handle)), set[str]()
    try:
        while not result.done():
            await asyncio.wait({result}, timeout=LOOK_SECONDS)
            trouble = None if result.done() else await read_trouble(handle)
            if trouble is not None and trouble not in said:
                said.add(trouble)
                output.notice(f"tried again until it works: {trouble}")
        return RefundStep.model_validate(result.result())
    except asyncio.CancelledError:
        output.notice(f"refund request {request.request_id} goes on without this command: chargeonce refunds")
        raise
    finally:
        result.cancel()
        await asyncio.gather(result, return_exceptions=True)


def _print(output: Output, request: RefundRequest, step: RefundStep) -> None:
    amount = format_money(request.amount_minor, request.currency)
    what = f"{amount} of {request.payment_intent}"
    if request.state is RequestState.MADE:
        output.result(
            _document(request, step), lambda: [f"refunded {what}: {request.refund_id} ({request.detail})"]
        )
        return
    message = {
        RequestState.REFUSED: f"Stripe refused to refund {what}, so nothing went back: {request.detail}",
        RequestState.REVIEW: (
            f"whether {what} went back is not known, and it is never sent again by itself: {request.detail}; "
            "look at Stripe's Dashboard, then ask for a new refund if it is not there"
        ),
    }.get(request.state, f"the refund of {what} is {request.state}: {step.reason}")
    raise CommandFailed(message, exit_code=EXIT_FAILED, details=_document(request, step))


async def list_refunds(output: Output, *, charge: str | None, run_id: str | None, limit: int) -> None:
    """Print requests, newest first. Raises InvalidInput where `charge` names none, or several."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        charge_id = None
        if charge is not None:
            charge_id = (await explain_charge(pool, charge, run_id=run_id)).charge_id
        found = await RefundLedger(pool).newest(charge_id=charge_id, run_id=run_id, limit=limit)
    output.result({"refunds": found}, lambda: _render(found))


def _render(found: list[dict[str, Any]]) -> Iterable["RenderableType"]:
    if not found:
        yield "no refund was asked for"
        return
    rows = [
        (
            row["request_id"],
            row["charge_id"],
            row["payment_intent"],
            format_money(row["amount_minor"], row["currency"]),
            ", ".join(word for word in (row["state"], row["status"]) if word),
            f"{row['requested_at']:%Y-%m-%d %H:%M}",
            row["who"],
            row["reason"],
        )
        for row in found
    ]
    yield table(("request", "charge", "PaymentIntent", "amount", "state", "since", "who", "why"), rows)
    if any(row["state"] in {"requested", "sending"} for row in found):
        yield "One that is under way and should not be: chargeonce refund --request REQUEST carries it on"


def _document(request: RefundRequest, step: RefundStep | None) -> dict[str, Any]:
    return {
        "request": request.request_id,
        "charge_id": request.charge_id,
        "run": request.run_id,
        "payment_intent": request.payment_intent,
        "amount_minor": request.amount_minor,
        "currency": request.currency,
        "kind": request.kind,
        "state": request.state,
        "refund_id": request.refund_id,
        "detail": request.detail if step is None else step.reason,
    }
