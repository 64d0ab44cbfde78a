import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import activities.verify as verify_module
from activities import stripe_pages
from activities.differences import Kind, compare
from activities.ledger.audit import AuditedLine
from activities.verify import VerifyReport, verify_account, verify_run
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, RUN, Books, charge_id_of, open_books
from workflows.domain.errors import RefusedToStart

Arrange = Callable[[Books], Awaitable[object]]


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """Empty books."""
    async with open_books(database) as opened:
        yield opened


async def verify(books: Books) -> VerifyReport:
    """Compare the books."""
    return await verify_run(books.pool, books.gateway, RUN)


async def test_books_that_agree_are_clean(books: Books) -> None:
    """Paid, declined, skipped and canceled lines that Stripe knows as such are no difference."""
    await books.open_run("closed")
    await books.owe("cus_paid", "succeeded", payment_intent=await books.pay("cus_paid"))
    debit = await books.pay("cus_debit", card="pm_usBankAccount_success")
    await books.owe("cus_debit", "processing", payment_intent=debit)
    declined = await books.pay("cus_declined", card="pm_card_chargeCustomerFail")
    await books.owe("cus_declined", "declined", payment_intent=declined)
    await books.owe("cus_skipped", "skipped")
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.verdict == "clean"
    assert (report.lines_compared, report.payment_intents_read, report.pages_read) == (4, 3, 1)
    assert (report.succeeded_at_stripe, report.processing_at_stripe) == (1, 1)
    assert report.money_ledger == report.money_stripe == {"usd": 2_500}
    assert (report.lines_paid, report.lines_processing, report.payment_intents_of_run) == (1, 1, 3)
    assert {row["standing"]: row["lines"] for row in report.not_paid} == {"declined": 1, "skipped": 1}
    for told in ("lines paid               1, 1 on the way", "lines not paid           2", "25.00 USD"):
        assert told in report.as_text()
    assert json.loads(json.dumps(report.as_json()))["verify"] == "clean"


async def duplicate(books: Books) -> None:
    """Two PaymentIntents of one identity are paid."""
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
    await books.pay("cus_1", version=2)


async def paid_not_in_ledger(books: Books) -> None:
    """Stripe has the money of a charge that was never confirmed, says the ledger."""
    await books.owe("cus_1", "prepared", payment_intent=await books.pay("cus_1"))


async def declined_but_paid(books: Books) -> None:
    """The ledger's decline is paid at Stripe."""
    await books.owe("cus_1", "declined", payment_intent=await books.pay("cus_1"))


async def canceled_but_paid_by_another(books: Books) -> None:
    """A canceled line is paid by a PaymentIntent that the ledger never heard of."""
    await books.pay("cus_1")
    await books.owe("cus_1", "canceled")


async def not_at_stripe(books: Books) -> None:
    """The ledger's PaymentIntent does not exist."""
    await books.owe("cus_1", "succeeded", payment_intent="pi_neverThere")


async def unpaid_at_stripe(books: Books) -> None:
    """The ledger's success was never confirmed."""
    await books.owe("cus_1", "succeeded", payment_intent=await books.prepare("cus_1"))


async def still_processing_at_stripe(books: Books) -> None:
    """The ledger's success is a debit that has not settled."""
    debit = await books.pay("cus_1", card="pm_usBankAccount_success")
    await books.owe("cus_1", "succeeded", payment_intent=debit)


async def paid_for_another_identity(books: Books) -> None:
    """The row names a PaymentIntent that was made for another line."""
    await books.owe("cus_2", "succeeded", payment_intent=await books.pay("cus_2"))
    other = await books.pay("cus_1", identity=charge_id_of("cus_2"))
    await books.owe("cus_1", "succeeded", payment_intent=other)


async def amount(books: Books) -> None:
    """One cent too much was paid."""
    paid = await books.pay("cus_1", amount_minor=1_251)
    await books.owe("cus_1", "succeeded", payment_intent=paid)


async def currency(books: Books) -> None:
    """It was paid in euros."""
    paid = await books.pay("cus_1", currency="eur")
    await books.owe("cus_1", "succeeded", payment_intent=paid)


async def customer(books: Books) -> None:
    """Somebody else paid."""
    paid = await books.pay("cus_2", identity=charge_id_of("cus_1"))
    await books.owe("cus_1", "succeeded", payment_intent=paid)


async def stranger(books: Books) -> None:
    """A paid PaymentIntent with our mark belongs to no line of any run."""
    await books.pay("cus_1", identity="0" * 32)


async def forgotten(books: Books) -> None:
    """The run closed over a line that was never charged."""
    await books.owe("cus_1", "planned")


async def counts(books: Books) -> None:
    """A selected line is nowhere."""
    await books.owe("cus_1", "skipped")
    await books.pool.execute("UPDATE billing_runs SET selected = 2 WHERE run_id = $1", RUN)


@pytest.mark.parametrize(
    ("arrange", "kinds"),
    [
        (duplicate, [Kind.DUPLICATE]),
        (paid_not_in_ledger, [Kind.PAID_AT_STRIPE_NOT_IN_LEDGER, Kind.FORGOTTEN]),
        (declined_but_paid, [Kind.CONTRADICTION]),
        (canceled_but_paid_by_another, [Kind.CONTRADICTION]),
        (not_at_stripe, [Kind.IN_LEDGER_NOT_AT_STRIPE]),
        (unpaid_at_stripe, [Kind.IN_LEDGER_NOT_AT_STRIPE]),
        (still_processing_at_stripe, [Kind.IN_LEDGER_NOT_AT_STRIPE]),
        (paid_for_another_identity, [Kind.DUPLICATE, Kind.IN_LEDGER_NOT_AT_STRIPE, Kind.CUSTOMER_MISMATCH]),
        (amount, [Kind.AMOUNT_MISMATCH]),
        (currency, [Kind.CURRENCY_MISMATCH]),
        (customer, [Kind.CUSTOMER_MISMATCH]),
        (stranger, [Kind.STRANGER]),
        (forgotten, [Kind.FORGOTTEN]),
        (counts, [Kind.COUNTS]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_each_difference_is_named(books: Books, arrange: Arrange, kinds: list[Kind]) -> None:
    """Each way in which a closed run can disagree with Stripe has a name, and the report is not clean."""
    await books.open_run("closed")
    await arrange(books)
    report = await verify(books)
    assert [difference.kind for difference in report.differences] == kinds, report.as_text()
    assert not report.clean
    for difference in report.differences:
        assert difference.what_to_do in report.as_text()
        assert difference.as_json() in report.as_json()["differences"]


async def test_open_charges_are_listed_and_are_no_difference(books: Books) -> None:
    """A charge in flight may be paid already; as long as the run is open, it is only counted."""
    await books.open_run()
    await books.owe("cus_1", "confirming", payment_intent=await books.pay("cus_1"))
    await books.owe("cus_2", "creating")
    await books.owe("cus_3", "planned")
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.open_charges == {"confirming": 1, "creating": 1, "planned": 1}


async def test_leftovers_move_no_money_and_are_counted(books: Books) -> None:
    """An unconfirmed PaymentIntent beside the charge's own is counted, and is no difference."""
    await books.open_run("closed")
    await books.prepare("cus_1")
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1", version=2))
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.leftovers == 1


async def test_a_debit_that_settled_since_is_counted_as_behind(books: Books) -> None:
    """The ledger may hear of a settled debit later; the money is right, so nothing differs."""
    await books.open_run("closed")
    await books.owe("cus_1", "processing", payment_intent=await books.pay("cus_1"))
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.behind == 1


async def test_what_other_runs_own_is_theirs(books: Books) -> None:
    """A PaymentIntent of another run's charge is no stranger."""
    await books.open_run("closed")
    await books.open_run("closed", run_id="billing-run/acct_sim/2031-02")
    paid = await books.pay("cus_1")
    await books.owe("cus_1", "succeeded", payment_intent=paid, run_id="billing-run/acct_sim/2031-02")
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.lines_compared == 0


async def test_a_charge_older_than_its_run_is_looked_up_by_id(books: Books) -> None:
    """A PaymentIntent from before the run's pages is retrieved, and found as the ledger says."""
    await books.open_run("closed")
    books.sim.clock.set_offset(-86_400)
    paid = await books.pay("cus_1")
    books.sim.clock.set_offset(0)
    await books.owe("cus_1", "succeeded", payment_intent=paid)
    report = await verify(books)
    assert report.clean, report.as_text()
    assert (report.payment_intents_read, report.payment_intents_retrieved) == (0, 1)


async def test_many_lines_take_pages_of_100(books: Books) -> None:
    """Every page is read, and progress is told on the way."""
    await books.open_run("closed")
    for number in range(201):
        paid = await books.pay(f"cus_{number}")
        await books.owe(f"cus_{number}", "succeeded", payment_intent=paid)
    told: list[tuple[int, int]] = []
    report = await verify_run(
        books.pool, books.gateway, RUN, on_progress=lambda intents, lines: told.append((intents, lines))
    )
    assert report.clean, report.as_text()
    assert (report.pages_read, report.payment_intents_read, report.lines_compared) == (3, 201, 201)
    assert told[-1] == (201, 201)


async def test_a_page_that_fails_once_is_asked_for_again(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropped connection in the middle costs a repetition, not the proof."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.01)
    await books.open_run("closed")
    for number in range(150):
        paid = await books.pay(f"cus_{number}")
        await books.owe(f"cus_{number}", "succeeded", payment_intent=paid)
    books.sim.set_faults(
        {
            "name": "drop",
            "match": {"method": "GET", "path": "payment_intents$", "only": [2]},
            "effect": {"kind": "drop"},
        }
    )
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.succeeded_at_stripe == 150


@pytest.mark.parametrize("path", ["payment_intents$", "payment_intents/pi_"])
async def test_what_could_not_be_read_is_never_clean(
    books: Books, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Where Stripe keeps failing, the report is incomplete, and accuses nobody of what it did not see."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.01)
    await books.open_run("closed")
    await books.owe("cus_1", "succeeded", payment_intent=await books.prepare("cus_1"))
    fault = {"effect": {"kind": "error", "status": 500}, "match": {"method": "GET", "path": path}}
    lists = {
        "effect": {"kind": "error", "status": 500},
        "match": {"method": "GET", "path": "nts$", "from_request": 2},
    }
    books.sim.set_faults({"name": "down", **fault}, {"name": "lists", **lists})
    report = await verify(books)
    assert (report.verdict, report.clean, report.differences) == ("incomplete", False, ())
    assert "500" in report.as_text()


async def test_a_run_that_is_not_there_is_refused(books: Books) -> None:
    """A mistyped run id proves nothing, and says so."""
    with pytest.raises(RefusedToStart, match="no run"):
        await verify(books)


async def test_many_differences_are_all_in_the_json_and_few_in_the_text(books: Books) -> None:
    """A terminal shows the worst ones, a script gets every one."""
    await books.open_run("closed")
    for number in range(25):
        await books.owe(f"cus_{number}", "planned")
    report = await verify(books)
    assert len(report.as_json()["differences"]) == 25
    assert report.as_text().count("forgotten: ") == 20
    assert "and 5 more" in report.as_text()


def test_the_ledger_knows_a_payment_intent_that_nobody_else_does() -> None:
    """Even an unpaid line is looked at again where Stripe showed nothing of its PaymentIntent."""
    line = AuditedLine("0" * 32, "cus_1", "base", "usd", 1, "declined", "pi_1", RUN)
    assert compare(line, (), closed=True).needs_second_look


def test_verification_shares_no_judgement_with_the_run() -> None:
    """Neither the modules nor the queries of the send path are used to check it."""
    root = Path(verify_module.__file__).parent
    for name in ("verify.py", "differences.py", "stripe_pages.py", "verify_report.py", "ledger/audit.py"):
        source = (root / name).read_text("utf-8")
        for shared in ("domain.verdict", "domain.recovery", "domain.states", "charges.sql", "runs.sql"):
            assert shared not in source


async def test_a_duplicate_that_was_refunded_is_one_no_more(books: Books) -> None:
    """Partly refunded it still is; once all of it went back, and the ledger knows that, nothing differs."""
    await books.open_run("closed")
    own = await books.pay("cus_1")
    charge_id = await books.owe("cus_1", "succeeded", payment_intent=own)
    second = await books.pay("cus_1", version=2)
    await books.refund(second, 1_000)
    await books.note_refund(charge_id, second, 1_000)
    assert [one.kind for one in (await verify(books)).differences] == [Kind.DUPLICATE]
    await books.refund(second, 250)
    await books.note_refund(charge_id, second, 250)
    report = await verify(books)
    assert report.clean, report.as_text()
    assert report.money_ledger == report.money_stripe == {"usd": 1_250}


async def test_a_charge_that_was_refunded_stays_paid(books: Books) -> None:
    """A refund stands beside a success; what the ledger has not heard of is named, by amount."""
    await books.open_run("closed")
    own = await books.pay("cus_1")
    charge_id = await books.owe("cus_1", "succeeded", payment_intent=own)
    await books.refund(own, 1_250)
    report = await verify(books)
    assert [one.kind for one in report.differences] == [Kind.REFUND_MISMATCH], report.as_text()
    assert "(1250 refunded)" in report.differences[0].stripe_says
    await books.note_refund(charge_id, own, 1_250)
    report = await verify(books)
    assert report.clean, report.as_text()
    assert (report.lines_paid, report.refund_pages_read) == (1, 1)


async def test_an_account_is_verified_over_all_its_runs(books: Books) -> None:
    """Every run counts, each by its own phase; what began earlier than asked for is left out."""
    earlier = "billing-run/acct_sim/2031-02"
    await books.open_run("settling", run_id=earlier)
    await books.owe("cus_1", "planned", run_id=earlier)
    await books.open_run("closed")
    await books.owe("cus_2", "succeeded", payment_intent=await books.pay("cus_2"))
    await books.owe("cus_3", "planned")
    report = await verify_account(books.pool, books.gateway, ACCOUNT)
    assert [(one.kind, one.customer) for one in report.differences] == [(Kind.FORGOTTEN, "cus_3")]
    assert (report.lines_selected, report.lines_compared, len(report.runs)) == (3, 3, 2)
    assert f"2 runs of {ACCOUNT}" in report.as_text()
    locked = await books.pool.fetchval("SELECT max(locked_at) FROM billing_runs")
    later = await verify_account(books.pool, books.gateway, ACCOUNT, since=locked)
    assert later.lines_compared == 2
    with pytest.raises(RefusedToStart, match="no run of account 'acct_other'"):
        await verify_account(books.pool, books.gateway, "acct_other")
