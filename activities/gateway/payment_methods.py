"""How a customer can be charged: what Stripe says about their payment methods."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from activities.gateway.calls import StripeCalls
from activities.gateway.findings import PaymentMethodFinding, PaymentMethodKind
from activities.gateway.replies import describe, items_of, refusal_of
from activities.gateway.requests import StripeAccount, customer_method_path, customer_path
from workflows.domain.answer import Answer, Transport

# What is wrong with a question itself, and will be as long as it is asked: not credentials, locks or limits.
_WRONG_QUESTION = frozenset({400, 402, 404, 405, 410, 414, 422})


async def payment_method_of(
    calls: StripeCalls,
    account: StripeAccount,
    customer: str,
    *,
    turn: Callable[[], AbstractAsyncContextManager[None]],
) -> PaymentMethodFinding:
    """Return how a customer can be charged: by the invoice default, else by the only card attached.

    Takes one or two requests; each waits for a `turn` of its own and holds it until its answer is here.
    """
    kind = PaymentMethodKind
    async with turn():
        reply = await calls.get(customer_path(customer), {}, account)
    if reply.answer.http_status == 404 and reply.answer.code == "resource_missing":
        return PaymentMethodFinding(kind.CUSTOMER_MISSING, None, "no such customer in this account")
    if not reply.answer.succeeded or reply.body is None:
        return _unknown_method(reply.answer)
    if reply.body.get("id") != customer:
        return PaymentMethodFinding(kind.REFUSED, None, "what was answered is not this customer")
    if reply.body.get("deleted") is True:
        return PaymentMethodFinding(kind.CUSTOMER_DELETED, None, "the customer was deleted")
    default = _default_payment_method(reply.body)
    if default is not None:
        return PaymentMethodFinding(kind.DEFAULT, default, "the customer's invoice default")
    async with turn():
        cards = await calls.get(
            f"{customer_path(customer)}/payment_methods", {"type": "card", "limit": 2}, account
        )
    items = items_of(cards)
    if items is None:
        return _unknown_method(cards.answer)
    if not items:
        return PaymentMethodFinding(kind.NONE, None, "no default payment method and no card")
    if len(items) > 1:
        return PaymentMethodFinding(kind.SEVERAL, None, "several cards, and none is the default")
    return PaymentMethodFinding(kind.ONLY_CARD, str(items[0].get("id")), "the only card")


async def attached_method(
    calls: StripeCalls,
    account: StripeAccount,
    customer: str,
    payment_method: str,
    *,
    turn: Callable[[], AbstractAsyncContextManager[None]],
) -> PaymentMethodFinding:
    """Return whether a payment method of whatever type is attached to a customer: ATTACHED, or NONE."""
    async with turn():
        reply = await calls.get(customer_method_path(customer, payment_method), {}, account)
    if reply.answer.http_status == 404 and reply.answer.code == "resource_missing":
        return PaymentMethodFinding(PaymentMethodKind.NONE, None, "the customer does not have it any more")
    if not reply.answer.succeeded or reply.body is None:
        return _unknown_method(reply.answer)
    if reply.body.get("id") != payment_method:
        return PaymentMethodFinding(PaymentMethodKind.REFUSED, None, "what was answered is another one")
    return PaymentMethodFinding(PaymentMethodKind.ATTACHED, payment_method, "the customer has it")


def _unknown_method(answer: Answer) -> PaymentMethodFinding:
    is_readable = answer.transport is Transport.ANSWERED
    is_wrong = is_readable and answer.http_status in _WRONG_QUESTION
    return PaymentMethodFinding(
        PaymentMethodKind.REFUSED if is_wrong else PaymentMethodKind.UNKNOWN,
        None,
        describe(answer),
        rate_limited=answer.http_status == 429,
        rate_limited_reason=answer.rate_limited_reason or answer.code,
        retry_after_seconds=answer.retry_after_seconds,
        refusal=refusal_of(answer),
    )


def _default_payment_method(customer: Mapping[str, Any]) -> str | None:
    settings = customer.get("invoice_settings")
    default = settings.get("default_payment_method") if isinstance(settings, dict) else None
    default = default.get("id") if isinstance(default, dict) else default
    return default if isinstance(default, str) and default else None
