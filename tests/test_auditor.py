from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from deploy.postgres import Database
from tests.activities.books import Books, charge_id_of, open_books
from tests.activities.till_of_books import carry_due
from tests.auditor import audit
from tests.ledger.planting import run_as_owner

CUSTOMERS = ("cus_1", "cus_2", "cus_3")
CONFIRM = f"confirm_{charge_id_of('cus_1')}_v1"

Act = Callable[[Books], Awaitable[object]]


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """Books of a run that charged three customers properly, one of them after a lost answer."""
    async with open_books(database) as opened:
        await opened.open_run()
        opened.sim.set_faults(
            {"name": "drop", "match": {"only": [2]}, "place": "after", "effect": {"kind": "drop"}}
        )
        for customer in CUSTOMERS:
            opened.sim.seed(customer, f"pm_card_visa_{customer}")
            await opened.owe(customer, "planned", payment_method=f"pm_card_visa_{customer}")
        await carry_due(opened)
        yield opened


async def test_a_proper_run_has_no_accusations(database: Database, books: Books) -> None:
    """Three lines charged once each, with a lost answer in between, pass, and the numbers are told."""
    summary = await audit(books.sim.url, database.app_url)
    assert (summary.lines, summary.succeeded, summary.double_charges, summary.open_charges) == (3, 3, 0, 0)
    assert summary.money_moved == {"usd": 3_750}
    assert summary.requests >= 6


@pytest.mark.parametrize(
    ("act", "accusation"),
    [
        (lambda books: books.pay("cus_1", version=2), "DOUBLE CHARGE"),
        (lambda books: books.pay("cus_9", identity="0" * 32), "which is in no run"),
        (lambda books: books.owe("cus_9", "succeeded"), "the book has no money of it"),
        (lambda books: books.prepare("cus_1"), "was on the wire, but is not in the ledger"),
    ],
)
async def test_money_and_requests_beside_the_ledger_are_accused(
    database: Database, books: Books, act: Act, accusation: str
) -> None:
    """What happened at Stripe alone, or in the ledger alone, is told by name."""
    await act(books)
    with pytest.raises(AssertionError, match=accusation):
        await audit(books.sim.url, database.app_url)


_EARLY = f"""
INSERT INTO keys SELECT 'early', charge_id, operation, 2, payment_intent, path, parameters, fingerprint,
                        first_intended_at + interval '23:59:59', NULL, false, 'too early'
  FROM keys WHERE key = '{CONFIRM}'
"""
_LATE = f"""
INSERT INTO attempts (key, send_no, fence, reason, intended_at)
SELECT key, 9, fence, reason, intended_at + interval '23:46' FROM attempts WHERE key = '{CONFIRM}'
"""


@pytest.mark.parametrize(
    ("tampering", "accusation"),
    [
        ("UPDATE charges SET amount_minor = 1", "owed 1 usd, but paid"),
        ("UPDATE charges SET customer = customer || '0'", "somebody else"),
        ("UPDATE billing_runs SET selected = 4", "selected 4 lines, but 3"),
        (f"UPDATE keys SET path = '/v1/x' WHERE key = '{CONFIRM}'", "was frozen for /v1/x"),
        (f"UPDATE keys SET version = 3 WHERE key = '{CONFIRM}'", r"has the versions \[3\] \(I4\)"),
        (_EARLY, r"was only 23:59:59 old \(I4\)"),
        (_LATE, r"sent again when it was 23:46:.*\(I5\)"),
    ],
)
async def test_a_ledger_that_was_tampered_with_is_accused(
    database: Database, books: Books, tampering: str, accusation: str
) -> None:
    """Each invariant that the ledger's rows can break has its own accusation."""
    # The ledger would not let a charge have another amount than the PaymentIntent that pays it.
    await run_as_owner(database, "ALTER TABLE charges DISABLE TRIGGER charges_check_body")
    await books.pool.execute(tampering)
    with pytest.raises(AssertionError, match=accusation):
        await audit(books.sim.url, database.app_url)


async def test_a_key_with_two_bodies_or_a_send_without_intent_is_accused(
    database: Database, books: Books
) -> None:
    """I3 and I7 are judged by the journal of the wire, not by what the ledger claims."""
    requests = [request for request in books.sim.requests if request.key == CONFIRM]
    requests[0].body_sha256 = "another"
    books.sim.requests.append(requests[0])
    with pytest.raises(AssertionError, match=r"in the ledger \d+ \(I7\)"):
        await audit(books.sim.url, database.app_url)
    requests[0].path = "/v1/elsewhere"
    with pytest.raises(AssertionError, match=r"\(I3\)"):
        await audit(books.sim.url, database.app_url)


async def test_an_unrecorded_success_is_forgiven_only_while_running(database: Database, books: Books) -> None:
    """A paid charge may be in flight while the run goes on, and not after."""
    await books.owe("cus_4", "creating")
    paid = await books.pay("cus_4")
    for request in books.sim.requests:
        if request.key and ("cus_4" in request.key or paid in request.key):
            request.method = "GET"  # only the money is looked at here
    assert (await audit(books.sim.url, database.app_url, while_running=True)).open_charges == 1
    with pytest.raises(AssertionError, match="is creating, says the ledger, but was paid"):
        await audit(books.sim.url, database.app_url)
