"""The lists of what moved on an account's balance, and of its payouts, read into plain values.

A balance transaction does not say which payout has it. Stripe lists the transactions of a payout, of those
that it made by itself (https://docs.stripe.com/api/balance_transactions/list).
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

from activities.gateway.balance_findings import BalancePage, PayoutPage
from activities.gateway.calls import StripeCalls
from activities.gateway.classify import AnswerReader
from activities.gateway.money_back import said
from activities.gateway.requests import StripeAccount
from workflows.domain.answer import METADATA_CHARGE
from workflows.domain.balance import BalanceTransaction, Payout

BALANCE_TRANSACTIONS_PATH = "/v1/balance_transactions"
PAYOUTS_PATH = "/v1/payouts"
PAGE_SIZE_MAX = 100

PageT = TypeVar("PageT", BalancePage, PayoutPage)
Item = Mapping[str, Any]


class StripeBalance:
    """What moved on an account's balance, and its payouts."""

    def __init__(self, calls: StripeCalls) -> None:
        self._calls = calls

    async def scan_transactions(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int | None,
        created_to_epoch_seconds: int | None,
        payout: str | None = None,
    ) -> AsyncIterator[BalancePage]:
        """Yield pages of what moved in a span, or of a payout, newest first, until the last or a failed one.

        What is behind each comes with it, so there is one request a page and none a transaction; but not for
        those of a payout, whose ids are enough.
        """
        parameters = _parameters(created_from_epoch_seconds, created_to_epoch_seconds)
        if payout is None:
            parameters["expand"] = ["data.source"]
        else:
            parameters["payout"] = payout
        scan = _scan(self._calls, account, BALANCE_TRANSACTIONS_PATH, parameters, _read_balance_page)
        async for page in scan:
            yield page

    async def scan_payouts(
        self,
        account: StripeAccount,
        *,
        created_from_epoch_seconds: int,
        created_to_epoch_seconds: int | None,
    ) -> AsyncIterator[PayoutPage]:
        """Yield pages of payouts made in a span, newest first, until the last or a failed one."""
        parameters = _parameters(created_from_epoch_seconds, created_to_epoch_seconds)
        async for page in _scan(self._calls, account, PAYOUTS_PATH, parameters, _read_payout_page):
            yield page


def _parameters(since: int | None, until: int | None) -> dict[str, object]:
    created = {"gte": since, "lte": until}
    bounds = {name: second for name, second in created.items() if second is not None}
    return {"limit": PAGE_SIZE_MAX, **({"created": bounds} if bounds else {})}


async def _scan(
    calls: StripeCalls,
    account: StripeAccount,
    path: str,
    parameters: dict[str, object],
    read: Callable[..., PageT],
) -> AsyncIterator[PageT]:
    while True:
        reply = await calls.get(path, parameters, account)
        body, answer = reply.body or {}, reply.answer
        items = body.get("data") if answer.succeeded else None
        if not isinstance(items, list):
            yield read(calls.reader, [], said(path, answer), retry_after_seconds=answer.retry_after_seconds)
            return
        page = read(calls.reader, items, None, has_more=body.get("has_more") is not False and bool(items))
        yield page
        if not page.has_more:
            return
        parameters["starting_after"] = page.created[-1][0]


def _read_balance_page(
    reader: AnswerReader,
    items: list[Any],
    failure: str | None,
    *,
    has_more: bool = False,
    retry_after_seconds: float | None = None,
) -> BalancePage:
    created = _read_created(reader, items)
    ours = [item for item in items if isinstance(item, dict) and _payment_intent(reader, item) is not None]
    known = [one for one in (_read_transaction(reader, item) for item in ours) if one is not None]
    if failure is None and (len(created) < len(items) or len(known) < len(ours)):
        failure = f"{BALANCE_TRANSACTIONS_PATH}: an item of the list can't be read"
    return BalancePage(
        tuple(known),
        created,
        complete=failure is None,
        has_more=has_more and failure is None,
        failure=failure,
        retry_after_seconds=retry_after_seconds,
    )


def _read_payout_page(
    reader: AnswerReader,
    items: list[Any],
    failure: str | None,
    *,
    has_more: bool = False,
    retry_after_seconds: float | None = None,
) -> PayoutPage:
    created = _read_created(reader, items)
    made = dict(created)
    payouts = [
        Payout(str(item["id"]), made[item["id"]], item["arrival_date"])
        for item in items
        if isinstance(item, dict)
        and item.get("automatic") is True
        and item.get("id") in made
        and isinstance(item.get("arrival_date"), int)
    ]
    if failure is None and len(created) < len(items):
        failure = f"{PAYOUTS_PATH}: an item of the list can't be read"
    return PayoutPage(
        tuple(payouts),
        created,
        complete=failure is None,
        has_more=has_more and failure is None,
        failure=failure,
        retry_after_seconds=retry_after_seconds,
    )


def _read_created(reader: AnswerReader, items: list[Any]) -> tuple[tuple[str, int], ...]:
    named = [
        (reader.word(item.get("id")), item.get("created")) if isinstance(item, dict) else (None, None)
        for item in items
    ]
    return tuple((name, second) for name, second in named if name is not None and isinstance(second, int))


def _payment_intent(reader: AnswerReader, item: Item) -> str | None:
    source = item.get("source")
    return reader.word(source.get("payment_intent")) if isinstance(source, dict) else None


def _read_transaction(reader: AnswerReader, item: Item) -> BalanceTransaction | None:
    source, payment_intent = item["source"], _payment_intent(reader, item)
    words = [reader.word(item.get(name)) for name in ("id", "type", "status", "currency")]
    numbers = [item.get(name) for name in ("created", "available_on", "amount", "fee", "net")]
    source_id = reader.word(source.get("id"))
    metadata, rate = source.get("metadata"), item.get("exchange_rate")
    if None in words or source_id is None or payment_intent is None:
        return None
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
        return None
    transaction_id, kind, status, currency = (str(word) for word in words)
    created, available, gross, fee, net = (int(str(number)) for number in numbers)
    return BalanceTransaction(
        transaction_id=transaction_id,
        payment_intent=payment_intent,
        charge_id=reader.word(metadata.get(METADATA_CHARGE)) if isinstance(metadata, dict) else None,
        type=kind,
        reporting_category=reader.word(item.get("reporting_category")),
        source=source_id,
        created_epoch_seconds=created,
        available_epoch_seconds=available,
        status=status,
        currency=currency,
        gross_minor=gross,
        fee_minor=fee,
        net_minor=net,
        exchange_rate=float(rate) if isinstance(rate, int | float) else None,
    )
