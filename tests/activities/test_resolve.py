import asyncio
from collections.abc import AsyncIterator

import pytest

from activities.accounts import AccountParts
from activities.gateway.requests import StripeAccount
from activities.ledger.charges import ChargeLedger
from activities.ledger.review import ReviewLedger
from activities.resolve import Reviewer
from activities.send import Sender
from activities.skew_watch import SkewWatch
from activities.stripe_pages import Unreadable
from activities.verify import verify_run
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, RUN, Books, open_books
from tests.activities.local_limiter import LocalLimiter
from workflows.contracts import Decision
from workflows.domain.charge import Charge
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.review import Resolution
from workflows.domain.states import State

PAID, UNPAID, CANCELED = Resolution.PAID, Resolution.UNPAID, Resolution.CANCELED
UNANSWERED_CREATE = """
WITH sent AS (UPDATE charges SET create_version = 1 WHERE charge_id = $1),
frozen AS (
    INSERT INTO keys (key, charge_id, operation, version, path, parameters, fingerprint, first_intended_at,
                      reason)
    VALUES ($2, $1, 'create', 1, '/v1/payment_intents', '{}', 'ab', ledger_now(), 'planted')
)
INSERT INTO attempts (key, send_no, fence, reason, intended_at) VALUES ($2, 1, 1, 'planted', ledger_now())
"""
BECAUSE = Decision(who="tester", reason="looked at both books")


class Desk:
    """Somebody who decides about charges in review."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.charges = ChargeLedger(books.pool)
        account = StripeAccount(ACCOUNT, connected=False)
        places = asyncio.Semaphore(8)
        self.parts = AccountParts(
            account=account,
            gateway=books.gateway,
            limiter=LocalLimiter(10_000.0),
            places=places,
            requests_at_once=8,
            slices=asyncio.Semaphore(1),
        )
        self.reviewer = Reviewer(self.parts, self.charges, ReviewLedger(books.pool))
        self.sender = Sender(
            ledger=self.charges,
            gateway=books.gateway,
            limiter=self.parts.limiter,
            account=account,
            places=places,
            skew=SkewWatch(),
        )

    async def resolve(self, charge_id: str, resolution: Resolution) -> Charge:
        """Decide."""
        return await self.reviewer.resolve(charge_id, resolution, BECAUSE, sender=self.sender)

    async def allowed(self, charge_id: str) -> set[Resolution]:
        """Return what may be decided, having seen each other choice refused and nothing changed by that."""
        before = await self.charges.read(charge_id)
        rulings = (await self.reviewer.look(charge_id)).rulings
        for resolution in set(Resolution) - {r for r, ruling in rulings.items() if hasattr(ruling, "state")}:
            with pytest.raises(RefusedToStart, match=f"can't be resolved as {resolution}"):
                await self.resolve(charge_id, resolution)
        assert await self.charges.read(charge_id) == before
        return {resolution for resolution, ruling in rulings.items() if hasattr(ruling, "state")}


@pytest.fixture
async def desk(database: Database) -> AsyncIterator[Desk]:
    """A closed run's books, and somebody at a desk."""
    async with open_books(database) as books:
        await books.open_run("closed")
        yield Desk(books)


async def is_clean(books: Books) -> bool:
    """Return whether the books agree."""
    return (await verify_run(books.pool, books.gateway, RUN)).clean


async def test_what_was_paid_is_resolved_as_paid_and_as_nothing_else(desk: Desk) -> None:
    """The one payment of the right amount ends the review; who, why and what was shown stay on record."""
    paid = await desk.books.pay("cus_1")
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=paid)
    assert not await is_clean(desk.books)
    assert await desk.allowed(charge_id) == {PAID}
    charge = await desk.resolve(charge_id, PAID)
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, paid)
    assert await is_clean(desk.books)
    [evidence] = await desk.books.pool.fetch(
        "SELECT evidence FROM decisions WHERE decision = 'resolved' AND charge_id = $1", charge_id
    )
    assert evidence["evidence"]["who"] == "tester"
    assert evidence["evidence"]["shown"][0]["payment_intent"] == paid


async def test_a_payment_by_another_payment_intent_counts_once_the_own_one_is_canceled(desk: Desk) -> None:
    """While the charge's own PaymentIntent can be paid as well, nobody may call the charge paid."""
    own = await desk.books.prepare("cus_1")
    other = await desk.books.pay("cus_1", version=2)
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    assert await desk.allowed(charge_id) == set()
    await desk.books.cancel(own)
    assert await desk.allowed(charge_id) == {PAID}
    charge = await desk.resolve(charge_id, PAID)
    assert (charge.state, charge.payment_intent) == (State.SUCCEEDED, other)
    assert await is_clean(desk.books)


async def test_two_payments_are_resolved_after_one_went_back(desk: Desk) -> None:
    """A duplicate is refunded first; then the remaining payment is the charge's."""
    own = await desk.books.pay("cus_1")
    second = await desk.books.pay("cus_1", version=2)
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    assert await desk.allowed(charge_id) == set()
    await desk.books.refund(second, 1_250)
    await desk.books.note_refund(charge_id, second, 1_250)
    assert await desk.allowed(charge_id) == {PAID}
    await desk.resolve(charge_id, PAID)
    assert await is_clean(desk.books)


async def test_a_wrong_amount_goes_back_before_anything_is_decided(desk: Desk) -> None:
    """What was paid is not what is owed: nobody may call that paid, and after its refund it is canceled."""
    own = await desk.books.pay("cus_1", amount_minor=1_300)
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    assert await desk.allowed(charge_id) == set()
    await desk.books.refund(own, 1_300)
    await desk.books.note_refund(charge_id, own, 1_300)
    assert await desk.allowed(charge_id) == {CANCELED}
    assert (await desk.resolve(charge_id, CANCELED)).state is State.CANCELED
    assert await is_clean(desk.books)


async def test_a_decline_is_resolved_as_unpaid(desk: Desk) -> None:
    """A card that was declined leaves a PaymentIntent that nobody has paid."""
    own = await desk.books.pay("cus_1", card="pm_card_chargeCustomerFail")
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    assert await desk.allowed(charge_id) == {UNPAID, CANCELED}
    assert (await desk.resolve(charge_id, UNPAID)).state is State.DECLINED
    assert await is_clean(desk.books)


async def test_what_is_open_at_stripe_is_canceled_there_first(desk: Desk) -> None:
    """The charge is canceled by Stripe's answer, not by somebody's word."""
    own = await desk.books.prepare("cus_1")
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    assert await desk.allowed(charge_id) == {CANCELED}
    charge = await desk.resolve(charge_id, CANCELED)
    assert (charge.state, charge.cancel_version) == (State.CANCELED, 1)
    shown = await desk.parts.gateway.retrieve_payment_intent(desk.parts.account, own, started_epoch_seconds=0)
    assert shown.payment_intents[0].status == "canceled"
    with pytest.raises(RefusedToStart, match="not in review"):
        await desk.resolve(charge_id, CANCELED)


async def test_a_leftover_that_can_be_paid_stands_in_the_way(desk: Desk) -> None:
    """Nothing is called canceled while another PaymentIntent of the same identity is open."""
    await desk.books.prepare("cus_1")
    charge_id = await desk.books.owe("cus_1", "review")
    assert await desk.allowed(charge_id) == set()


async def test_a_request_that_may_still_run_forbids_to_call_it_unpaid(desk: Desk) -> None:
    """Until its window has passed, a create without an answer may yet make what is then paid (I12)."""
    charge_id = await desk.books.owe("cus_1", "review")
    await desk.books.pool.execute(UNANSWERED_CREATE, charge_id, f"create_{charge_id}_v1")
    assert await desk.allowed(charge_id) == set()
    await desk.books.pool.execute(
        "UPDATE keys SET first_intended_at = first_intended_at - interval '24 hours' WHERE charge_id = $1",
        charge_id,
    )
    assert await desk.allowed(charge_id) == {CANCELED}


async def test_without_a_whole_answer_of_stripes_nothing_is_decided(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that fails is no evidence, neither of a payment nor of its absence."""
    monkeypatch.setattr("activities.stripe_pages.FIRST_PAUSE_SECONDS", 0.01)
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=await desk.books.pay("cus_1"))
    down = {"effect": {"kind": "error", "status": 500}, "match": {"method": "GET", "path": "payment_intents"}}
    desk.books.sim.set_faults({"name": "down", **down})
    with pytest.raises(Unreadable):
        await desk.resolve(charge_id, PAID)
    assert (await desk.charges.read(charge_id)).state is State.REVIEW


async def test_a_charge_that_moves_meanwhile_is_looked_at_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Stripe showed of the row as it was says nothing about the row as it is (I14)."""
    paid = await desk.books.pay("cus_1")
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=paid)
    claim = ReviewLedger.claim

    async def claim_late(ledger: ReviewLedger, charge: Charge) -> Charge:
        await desk.charges.settle(
            charge, State.SUCCEEDED, payment_intent=paid, latest_charge=None, reason="a webhook was first"
        )
        return await claim(ledger, charge)

    monkeypatch.setattr(ReviewLedger, "claim", claim_late)
    with pytest.raises(StaleWrite, match="moved on"):
        await desk.resolve(charge_id, PAID)


async def test_the_list_names_what_contradicts_what(desk: Desk) -> None:
    """Charges in review are listed by account and run, longest there first."""
    await desk.books.owe("cus_1", "review")
    await desk.books.owe("cus_2", "succeeded")
    reviews = ReviewLedger(desk.books.pool)
    [row] = await reviews.in_review(limit=10)
    assert (row["customer"], row["reason"], row["run_id"]) == ("cus_1", "as written", RUN)
    assert await reviews.in_review(account="acct_other", limit=10) == []
    assert await reviews.in_review(run_id=RUN, limit=10) == [row]


async def test_a_payment_by_another_customer_keeps_a_charge_from_being_called_unpaid(desk: Desk) -> None:
    """No list of the charge's customer shows it, but an event named it: a later run would charge it again."""
    own = await desk.books.pay("cus_1", card="pm_card_visa_chargeDeclined")
    charge_id = await desk.books.owe("cus_1", "review", payment_intent=own)
    paid = await desk.books.pay("cus_2", identity=charge_id)
    assert UNPAID in await desk.allowed(charge_id)
    await desk.books.pool.execute(
        "INSERT INTO inbox_events (event_id, account, type, created_at, received_at, payment_intent, "
        "charge_id, due_at) VALUES ('evt_1', $1, 'payment_intent.succeeded', now(), now(), $2, $3, now())",
        ACCOUNT, paid, charge_id,
    )  # fmt: skip
    assert UNPAID not in await desk.allowed(charge_id)
    evidence = (await desk.reviewer.look(charge_id)).evidence
    assert {one.id for one in evidence.payment_intents} == {own, paid}
