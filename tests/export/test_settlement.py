"""What Stripe's balance shows of a run, and what a pack says where it does not show it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from activities.accounts import AccountParts, Accounts
from activities.export.pack import write_pack
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import open_pool
from activities.ledger.limits import LimitLedger
from activities.limiter import Endpoint, SharedLimiter
from activities.vault import READING
from tests.activities.dashboard import post
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import ACCOUNT, API_KEY, GOOD_CARD, RUN_ID, fault
from tests.export.office import LINES, Office, findings, read_table
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart

BALANCE = {"path": "^/v1/balance_transactions", "method": "GET"}
PAYOUTS = {"path": "^/v1/payouts", "method": "GET"}


async def test_stripe_is_asked_once_a_page_and_never_for_a_charge(office: Office) -> None:
    """130 paid charges take two pages of transactions and one of payouts, whoever else has paid what."""
    await office.run([(GOOD_CARD, 4_200, "usd", None)] * 130)
    asked = office.scene.lookups
    pack = await office.export()
    assert office.scene.lookups - asked == 3 + 1  # and whose key it is
    assert pack.manifest["settlement"]["requests"] == 3
    assert pack.manifest["settlement"]["rows_by_standing"] == {"settled": 130}


async def test_each_request_waits_for_its_turn(office: Office) -> None:
    """The lists of the balance go out under the account's limit, like all lists."""
    await office.run(LINES[:2])
    turns: list[Endpoint] = []

    class Counted(LocalLimiter):
        async def acquire(self, endpoint: Endpoint) -> None:
            turns.append(endpoint)

    accounts = office.mail.accounts
    accounts._limiter_of = lambda _: Counted(1_000.0)
    accounts._bounds.clear()
    await office.export()
    assert turns == [Endpoint.LIST] * 2


async def test_strangers_on_the_balance_are_left_out(office: Office) -> None:
    """A payment that is not the run's moves the balance, and not the pack."""
    await office.run(LINES[:1])
    office.scene.sim.seed("cus_stranger", "pm_card_visa_stranger")
    await post(
        office.scene.sim.url, "/v1/payment_intents", amount=999, currency="usd", customer="cus_stranger",
        payment_method="pm_card_visa_stranger", confirm="true", off_session="true",
    )  # fmt: skip
    pack = await office.export()
    assert pack.manifest["settlement"]["totals"]["usd"]["gross_minor"] == 4_200


async def test_what_stripe_does_not_show_yet_is_empty_and_counted(office: Office) -> None:
    """A charge that the ledger has as paid and Stripe's balance does not have is a row of its own."""
    paid, other = await office.run(LINES[:2])
    await office.scene.owner.execute("ALTER TABLE charges DISABLE TRIGGER USER")
    await office.scene.owner.execute(
        "UPDATE charges SET payment_intent = 'pi_unheard_of' WHERE charge_id = $1", paid
    )
    await office.scene.owner.execute("UPDATE charges SET amount_minor = 501 WHERE charge_id = $1", other)
    await office.scene.owner.execute("ALTER TABLE charges ENABLE TRIGGER USER")
    pack = await office.export()
    rows = read_table(pack.folder, "settlement")
    standings = [(row["standing"], row["gross_minor"]) for row in rows]
    assert standings == [("other_payment_intent", "4200"), ("not_shown", ""), ("other_amount", "500")]
    assert pack.complete
    assert pack.manifest["settlement"]["without_transaction"] == {"usd": {"lines": 1, "amount_minor": 4_200}}
    assert findings(pack.folder) == []


async def test_a_second_payment_of_one_identity_is_shown(office: Office) -> None:
    """Somebody's copy of a PaymentIntent, and the refund of it, stand with the charge that they copied."""
    [charge_id] = await office.run(LINES[:1])
    charge = await office.scene.charge(charge_id)
    copied = await post(
        office.scene.sim.url, "/v1/payment_intents", amount=4_200, currency="usd", customer=charge.customer,
        payment_method=charge.payment_method, confirm="true", off_session="true",
        **{"metadata[chargeonce_charge]": charge_id},
    )  # fmt: skip
    await post(office.scene.sim.url, "/v1/refunds", payment_intent=copied["id"])
    pack = await office.export()
    rows = read_table(pack.folder, "settlement")
    assert sorted((row["standing"], row["type"]) for row in rows) == [
        ("other_payment_intent", "charge"), ("other_payment_intent", "refund"), ("settled", "charge"),
    ]  # fmt: skip


@pytest.mark.parametrize("after", [0, 1])
async def test_a_partial_failure_leaves_the_file_honest_and_the_manifest_incomplete(
    office: Office, after: int
) -> None:
    """What was read before Stripe went away is there; the rest is said not to have been read."""
    await office.run([(GOOD_CARD, 4_200, "usd", None)] * 130)
    office.scene.sim.set_faults(fault("error", status=500, match=BALANCE | {"from_request": after + 1}))
    pack = await office.export()
    rows = read_table(pack.folder, "settlement")
    assert len(rows) == 130
    assert not pack.complete
    assert "a page of balance transactions" in pack.manifest["incomplete"][0]
    standings = pack.manifest["settlement"]["rows_by_standing"]
    assert standings == ({"not_read": 30, "settled": 100} if after else {"not_read": 130})
    assert findings(pack.folder) == []


async def test_payouts_that_can_not_be_read_leave_the_amounts(office: Office) -> None:
    """Gross, fee and net are there; the column of payouts is empty, and the manifest says why."""
    await office.run(LINES[:2])
    office.scene.sim.set_faults(fault("error", status=500, match=PAYOUTS))
    pack = await office.export()
    assert [row["standing"] for row in read_table(pack.folder, "settlement")] == ["settled"] * 2
    assert not pack.complete
    assert pack.manifest["incomplete"][0].startswith("payouts in settlement: a page of payouts")


class NoAccounts(Accounts):
    """Accounts of a process that may ask nobody."""

    def __init__(self) -> None:
        pass

    async def of(self, run: RunKey, use: object = READING) -> AccountParts:
        """Refuse."""
        assert (run.run_id, use) == (RUN_ID, READING)
        raise RefusedToStart("its reading key was revoked")


async def test_without_credentials_the_ledgers_part_is_there(office: Office) -> None:
    """A revoked reading key keeps nobody from the ledger's books."""
    await office.run()
    pack = await write_pack(office.scene.pool, NoAccounts(), RUN_ID, office.folder / "pack")
    assert pack.manifest["incomplete"] == [
        "settlement: its reading key was revoked", "payouts in settlement: its reading key was revoked",
    ]  # fmt: skip
    assert len(read_table(pack.folder, "charges")) == len(LINES)
    assert findings(pack.folder) == []


async def test_an_auditor_who_may_not_take_turns_gets_the_ledgers_part(office: Office) -> None:
    """A role that only reads can't use the limiter: the pack says so instead of going past the limit."""
    await office.run(LINES[:2])
    async with open_pool(office.scene.database.auditor_url, connections=2) as pool:
        accounts = office.mail.accounts
        accounts._limiter_of = lambda account: SharedLimiter(LimitLedger(pool), account, rate_per_second=25)
        accounts._bounds.clear()
        pack = await write_pack(pool, accounts, RUN_ID, office.folder / "pack")
    assert not pack.complete
    assert "limits" in pack.manifest["incomplete"][0]
    assert findings(pack.folder) == []


@dataclass
class Bank:
    """A Stripe with payouts: what it answers to each list, and what it was asked."""

    transactions: list[dict[str, Any]]
    payouts: list[dict[str, Any]]
    paid: Mapping[str, list[str]]
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer a list in pages of two."""
        self.asked.append(request.path_qs)
        items = self.payouts if request.path == "/v1/payouts" else self.transactions
        if (payout := request.query.get("payout")) is not None:
            items = [item for item in self.transactions if item["id"] in self.paid[payout]]
            items = [{**item, "source": item["source"]["id"]} for item in items]
        else:
            assert request.path == "/v1/payouts" or request.query["expand[0]"] == "data.source"
        after = request.query.get("starting_after")
        begin = 0 if after is None else [item["id"] for item in items].index(after) + 1
        page = items[begin : begin + 2]
        return web.json_response({"object": "list", "data": page, "has_more": begin + 2 < len(items)})


def _transaction(number: int, **source: Any) -> dict[str, Any]:
    return {
        "id": f"txn_{number}", "object": "balance_transaction", "type": "charge", "status": "available",
        "reporting_category": "charge", "currency": "usd", "created": 1_000 - number, "available_on": 2_000,
        "amount": 1_000, "fee": 59, "net": 941, "exchange_rate": 1.25,
        "source": {"id": f"ch_{number}", "object": "charge", "payment_intent": f"pi_{number}", **source},
    }  # fmt: skip


@pytest.fixture
async def bank() -> AsyncIterator[tuple[Bank, StripeGateway]]:
    """A Stripe that pays out, over a socket, and the gateway to it."""
    payout = {"object": "payout", "arrival_date": 5_000}
    transactions = [_transaction(number) for number in range(1, 4)]
    transactions.insert(
        1, {**_transaction(9), "source": {"id": "po_1", "object": "payout"}, "type": "payout"}
    )
    shown = Bank(
        transactions,
        [
            {**payout, "id": "po_2", "automatic": True, "created": 3_000},
            {**payout, "id": "po_hand", "automatic": False, "created": 2_900},
            {**payout, "id": "po_1", "automatic": True, "created": 2_800},
        ],
        {"po_1": ["txn_1", "txn_9", "txn_2"], "po_2": ["txn_3"]},
    )
    app = web.Application()
    app.router.add_get("/v1/{list}", shown.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with StripeGateway(api_key=API_KEY, api_base=f"http://127.0.0.1:{port}") as gateway:
            yield shown, gateway
    finally:
        await runner.cleanup()


async def test_a_payout_is_found_by_the_transactions_that_it_has(
    bank: tuple[Bank, StripeGateway], office: Office
) -> None:
    """Automatic payouts are listed with what is in them; those made by hand say nothing of that."""
    from activities.export.settlement import read_settlement
    from activities.ledger.export import SettlementWindow
    from activities.ledger.settlement_spool import open_spool

    shown, gateway = bank
    now = await office.scene.now()
    parts = await office.mail.accounts.of(RunKey(run_id=RUN_ID, account=ACCOUNT.id), READING)

    class OneBank(NoAccounts):
        async def of(self, run: RunKey, use: object = READING) -> AccountParts:
            assert use is READING
            return AccountParts(
                StripeAccount(run.account, connected=False),
                gateway,
                parts.limiter,
                parts.places,
                1,
                parts.slices,
            )

    with open_spool(office.folder / "spool") as spool:
        run = RunKey(run_id=RUN_ID, account=ACCOUNT.id)
        reading = await read_settlement(OneBank(), run, SettlementWindow(ACCOUNT.id, now, now), spool)
        assert (reading.gaps, len(spool)) == ([], 3)
        found = {number: spool.find(f"pi_{number}", "none") for number in (1, 2, 3)}
    assert {number: kept[0][1:] for number, kept in found.items()} == {
        1: ("po_1", 5_000), 2: ("po_1", 5_000), 3: ("po_2", 5_000),
    }  # fmt: skip
    assert found[1][0][0].exchange_rate == 1.25
    pages = {"balance_transactions": 2, "payouts": 2, "of po_1": 2, "of po_2": 1}
    assert reading.requests == len(shown.asked) == sum(pages.values())


async def test_an_item_that_can_not_be_read_spoils_its_page(bank: tuple[Bank, StripeGateway]) -> None:
    """A transaction without an amount is no transaction of nothing: its page is incomplete."""
    shown, gateway = bank
    del shown.transactions[0]["amount"]
    account = StripeAccount(ACCOUNT.id, connected=False)
    pages = [
        page
        async for page in gateway.balance.scan_transactions(
            account, created_from_epoch_seconds=0, created_to_epoch_seconds=None
        )
    ]
    assert [page.complete for page in pages] == [False]
    assert pages[0].failure == "/v1/balance_transactions: an item of the list can't be read"
