"""/v1/balance_transactions, /v1/balance and /v1/payouts."""

from deploy.stripe_sim.errors import missing_object
from deploy.stripe_sim.forms import take_text
from deploy.stripe_sim.ledger import Entry
from deploy.stripe_sim.numbered_lists import take_numbered_page
from deploy.stripe_sim.paging import show_list
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.shapes_of_money import show_transaction
from deploy.stripe_sim.simulator import Call
from deploy.stripe_sim.store import AccountData


def retrieve_transaction(call: Call) -> Json:
    """GET /v1/balance_transactions/{id}."""
    entry = call.account.ledger.find(call.ids[0])
    if entry is None:
        raise missing_object("balance_transaction", call.ids[0], param="id")
    return show_transaction(entry, call.now)


def list_transactions(call: Call) -> Json:
    """GET /v1/balance_transactions."""
    ledger = call.account.ledger
    kind, currency = take_text(call.params, "type"), take_text(call.params, "currency")
    source, payout = take_text(call.params, "source"), take_text(call.params, "payout")
    numbers = None if source is None else _numbers_of(call.account, source)

    def read(number: int) -> Entry | None:
        if payout is not None or (numbers is not None and number not in numbers):
            return None
        entry = ledger.read(number)
        return entry if kind in {None, entry.kind} and currency in {None, entry.currency} else None

    page, has_more = take_numbered_page(
        call.params,
        ledger.created,
        monotone=ledger.monotone,
        since=float("-inf"),
        find=lambda cursor: None if (entry := ledger.find(cursor)) is None else entry.number,
        read=read,
        noun="balance_transaction",
    )
    shown = [show_transaction(entry, call.now) for entry in page]
    return show_list("/v1/balance_transactions", shown, has_more=has_more)


def retrieve_balance(call: Call) -> Json:
    """GET /v1/balance: everything that ever moved, since nothing is ever paid out."""
    available, pending = call.account.ledger.add_up(call.now)
    return {
        "object": "balance",
        "available": _show_sums(available),
        "livemode": False,
        "pending": _show_sums(pending),
    }


def list_payouts(_call: Call) -> Json:
    """GET /v1/payouts: none, since nothing is ever paid out."""
    return show_list("/v1/payouts", [], has_more=False)


def _show_sums(sums: dict[str, int]) -> list[Json]:
    return [
        {"amount": amount, "currency": currency, "source_types": {"card": amount}}
        for currency, amount in sorted((sums or {"usd": 0}).items())
    ]


def _numbers_of(account: AccountData, source: str) -> set[int]:
    transactions: list[str | None] = []
    charge, refund = account.charges.by_id.get(source), account.refunds.by_id.get(source)
    dispute = account.disputes.by_id.get(source)
    if charge is not None:
        transactions.append(charge.transaction)
    elif refund is not None:
        transactions += [refund.transaction, refund.failure_transaction]
    elif dispute is not None:
        transactions += dispute.transactions
    entries = [account.ledger.find(transaction) for transaction in transactions if transaction is not None]
    return {entry.number for entry in entries if entry is not None}
