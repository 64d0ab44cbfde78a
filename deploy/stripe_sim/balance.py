"""/v1/balance_transactions and /v1/balance."""

from deploy.stripe_sim.errors import missing_object
from deploy.stripe_sim.forms import take_text
from deploy.stripe_sim.ledger import Entry
from deploy.stripe_sim.numbered_lists import take_numbered_page
from deploy.stripe_sim.paging import show_list
from deploy.stripe_sim.shapes import Json
from deploy.stripe_sim.shapes_of_money import show_transaction
from deploy.stripe_sim.simulator import Call


def retrieve_transaction(call: Call) -> Json:
    """GET /v1/balance_transactions/{id}."""
    entry = call.account.ledger.find(call.ids[0])
    if entry is None:
        raise missing_object("balance_transaction", call.ids[0], param="id")
    return show_transaction(entry, call.now)


def list_transactions(call: Call) -> Json:
    """GET /v1/balance_transactions."""
    ledger = call.account.ledger
    wanted = {name: take_text(call.params, name) for name in ("type", "source", "currency", "payout")}

    def read(number: int) -> Entry | None:
        entry = ledger.read(number)
        found = {"type": entry.kind, "source": entry.source, "currency": entry.currency, "payout": None}
        matches = all(text is None or found[name] == text for name, text in wanted.items())
        return entry if matches else None

    page, has_more = take_numbered_page(
        call.params,
        len(ledger),
        find=lambda cursor: None if (entry := ledger.find(cursor)) is None else entry.number,
        read=read,
        created=lambda entry: entry.created,
        noun="balance_transaction",
    )
    shown = [show_transaction(entry, call.now) for entry in page]
    return show_list("/v1/balance_transactions", shown, has_more=has_more)


def retrieve_balance(call: Call) -> Json:
    """GET /v1/balance: everything that ever moved, since nothing is ever paid out."""
    now = call.now
    sums: dict[str, dict[str, int]] = {"available": {}, "pending": {}}
    for number in range(len(call.account.ledger)):
        entry = call.account.ledger.read(number)
        part = sums["available" if entry.available_on <= now else "pending"]
        part[entry.currency] = part.get(entry.currency, 0) + entry.amount - entry.fee
    shown = {
        part: [
            {"amount": amount, "currency": currency, "source_types": {"card": amount}}
            for currency, amount in sorted(by_currency.items())
        ]
        or [{"amount": 0, "currency": "usd", "source_types": {"card": 0}}]
        for part, by_currency in sums.items()
    }
    return {"object": "balance", "livemode": False, **shown}
