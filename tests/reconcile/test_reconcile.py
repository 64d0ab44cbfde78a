import asyncio
import json
from collections.abc import Awaitable, Callable
from uuid import uuid4

import pytest

from activities import reconcile_scan, stripe_pages
from activities.ledger.charges import ChargeLedger
from activities.verify import verify_run
from tests.activities.dashboard import post
from tests.activities.scene import (
    ACCOUNT,
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    DECLINING_CARD,
    GOOD_CARD,
    RUN_ID,
    START,
    Scene,
    create_body,
)
from tests.reconcile.office import Office, alter
from tests.reconcile.orphans import leave_orphan
from tests.web.mailroom import Mailroom
from workflows.domain.charge import Charge
from workflows.domain.drift import RepairState
from workflows.domain.keys import IdempotencyKey
from workflows.domain.states import State
from workflows.domain.window import WINDOW_SECONDS

Plant = Callable[[Scene, Charge], Awaitable[object]]


@pytest.fixture
def office(mail: Mailroom) -> Office:
    """Whoever reconciles the scene."""
    return Office(mail)


async def charged(scene: Scene, cards: int = 3) -> list[str]:
    """Charge a few customers."""
    charge_ids = await scene.plan([GOOD_CARD] * cards)
    await scene.worker().work_at_once()
    return charge_ids


async def make(scene: Scene, charge: Charge, *, identity: str | None = None) -> str:
    """Let somebody make a PaymentIntent for a charge's customer by hand; return its id."""
    body = create_body(charge, amount_minor=charge.amount_minor, version=9)
    parameters = json.loads(body.replace(charge.charge_id, identity or charge.charge_id))
    key = IdempotencyKey(f"create_by_hand_{uuid4().hex}")
    path = "/v1/payment_intents"
    gateway = scene.worker().gateway
    answer = await gateway.post(CREATE, account=ACCOUNT, path=path, parameters=parameters, key=key)
    assert answer.payment_intent is not None, answer
    return answer.payment_intent.id


async def pay_again(scene: Scene, charge: Charge, *, identity: str | None = None) -> str:
    """Let somebody charge the same line by hand; return the PaymentIntent."""
    payment_intent = await make(scene, charge, identity=identity)
    path = f"/v1/payment_intents/{payment_intent}/confirm"
    await post(scene.sim.url, path, payment_method=charge.payment_method or "", off_session="true")
    return payment_intent


async def is_clean(scene: Scene) -> bool:
    """Return whether the auditor agrees that ledger and Stripe say the same."""
    return (await verify_run(scene.pool, scene.worker().gateway, RUN_ID)).clean


async def test_books_that_agree_take_pages_alone(scene: Scene, office: Office) -> None:
    """Nothing is asked about a single charge where a page shows all of it."""
    await charged(scene, 120)
    before = scene.lookups
    report = await office.reconcile()
    assert (report.is_clean, report.charges, report.suspects) == (True, 120, 0), report
    assert report.requests["pages"] == 2
    assert report.bound == 2
    # Besides, it is asked once whose key this is, and for a page of refunds, of which there are none.
    assert scene.lookups - before == 4
    assert await office.findings() == []


async def paid_unknown_to_the_ledger(scene: Scene, charge: Charge) -> None:
    """The ledger says declined, and Stripe has the money."""
    await alter(scene, f"UPDATE charges SET state = 'declined' WHERE charge_id = '{charge.charge_id}'")


async def another_amount(scene: Scene, charge: Charge) -> None:
    """The ledger's amount was altered."""
    await alter(scene, f"UPDATE charges SET amount_minor = 4199 WHERE charge_id = '{charge.charge_id}'")


async def another_currency(scene: Scene, charge: Charge) -> None:
    """The ledger's currency was altered."""
    await alter(scene, f"UPDATE charges SET currency = 'eur' WHERE charge_id = '{charge.charge_id}'")


async def a_refund_at_stripe(scene: Scene, charge: Charge) -> None:
    """Somebody refunded a part at Stripe's Dashboard."""
    await post(scene.sim.url, "/v1/refunds", payment_intent=charge.payment_intent, amount=100)


async def a_duplicate(scene: Scene, charge: Charge) -> None:
    """Somebody charged the line by hand."""
    await pay_again(scene, charge)


async def gone_at_stripe(scene: Scene, charge: Charge) -> None:
    """The ledger names a PaymentIntent that does not exist."""
    await alter(
        scene, f"UPDATE charges SET payment_intent = 'pi_never' WHERE charge_id = '{charge.charge_id}'"
    )


async def an_unknown_line(scene: Scene, charge: Charge) -> None:
    """A payment names a charge that this ledger does not have."""
    await pay_again(scene, charge, identity="0" * 32)


@pytest.mark.parametrize(
    ("plant", "kinds", "mended"),
    [
        (paid_unknown_to_the_ledger, [("status", "merge")], "mended"),
        (another_amount, [("amount", "restore")], "mended"),
        (another_currency, [("currency", "restore")], "mended"),
        (a_refund_at_stripe, [("refund", "save_refunds")], "mended"),
        (a_duplicate, [("duplicate", "refund")], "stays"),
        (gone_at_stripe, [("missing_at_stripe", "none"), ("status", "resolve")], "stays"),
        (an_unknown_line, [("missing_in_ledger", "none")], "stays"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_each_difference_is_found_once_and_mended_where_no_money_moves(
    scene: Scene, office: Office, plant: Plant, kinds: list[tuple[str, str]], mended: str
) -> None:
    """A report names what was planted and nothing else; `--repair` ends what needs no approval."""
    charge_ids = await charged(scene)
    await plant(scene, await scene.charge(charge_ids[1]))
    report = await office.reconcile()
    assert await office.kinds() == kinds
    assert sum(report.found.values()) == len(kinds)
    assert not await is_clean(scene)
    [first, *_] = await office.findings()
    await scene.set_age(3_600)
    report = await office.reconcile(repair=True)
    ends = {"mended": RepairState.REPAIRED, "stays": RepairState.PROPOSED}
    assert report.is_clean is (mended == "mended"), report
    assert await is_clean(scene) is (mended == "mended")
    assert {row.repair_state for row in await office.findings(open_only=False)} == {ends[mended]}
    [again, *_] = await office.findings(open_only=False)
    assert (again.first_seen_at, again.drift_id) == (first.first_seen_at, first.drift_id)
    assert again.last_seen_at > first.last_seen_at


async def test_a_duplicate_names_what_to_refund_and_is_gone_once_it_went_back(
    scene: Scene, office: Office
) -> None:
    """The PaymentIntent that is not the charge's own is named with its amount; refunded, it is gone."""
    charge_ids = await charged(scene)
    second = await pay_again(scene, await scene.charge(charge_ids[0]))
    await office.reconcile()
    [row] = await office.findings()
    assert (row.subject, row.amount_minor, row.currency) == (second, AMOUNT_MINOR, "usd")
    await post(scene.sim.url, "/v1/refunds", payment_intent=second)
    await scene.set_age(60)
    report = await office.reconcile(repair=True)
    assert report.is_clean, report
    [duplicate, refund] = await office.findings(open_only=False)
    assert (duplicate.repair_state, refund.repair_state) == (RepairState.GONE, RepairState.REPAIRED)
    assert await is_clean(scene)


async def test_an_orphan_is_canceled_and_nothing_else_is(scene: Scene, office: Office) -> None:
    """A leftover of a known charge moves no money: it is named first, and canceled with `--repair`."""
    left = await leave_orphan(scene)
    await office.reconcile()
    assert ("orphan", "cancel") in await office.kinds()
    report = await office.reconcile(repair=True)
    assert report.repaired == {"orphan": 1}
    assert await scene.open_at_stripe() == [left.charge.payment_intent]


@pytest.mark.parametrize("reached", ["reached Stripe", "never left"])
async def test_what_a_dead_worker_left_in_flight_is_settled(
    scene: Scene, office: Office, reached: str
) -> None:
    """Its confirm is recorded as paid if it reached Stripe, and sent again under its key if it did not."""
    worker = scene.worker()
    prepared = await scene.prepare(worker)
    intent = await worker.intend(prepared, CONFIRM)
    if reached == "reached Stripe":
        await worker.transmit(intent)
    await scene.set_age(600)
    report = await office.reconcile()
    assert (report.found, report.settled, report.in_flight) == ({}, 1, 0), report
    assert (await scene.charge()).state is State.SUCCEEDED
    assert scene.wire == ["create v1", "confirm v1"]
    assert await is_clean(scene)


async def test_lists_of_customers_find_the_same_as_a_scan(
    scene: Scene, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever way takes fewer requests is gone, and what is found does not depend on it."""
    charge_ids = await charged(scene)
    await pay_again(scene, await scene.charge(charge_ids[0]))
    await another_amount(scene, await scene.charge(charge_ids[1]))
    scanned = await office.reconcile()
    found = [(row.kind, row.subject) for row in await office.findings()]
    monkeypatch.setattr(reconcile_scan, "PAGE_SIZE", 0.5)
    listed = await office.reconcile()
    assert (scanned.how, listed.how) == ("scan", "customers")
    assert [(row.kind, row.subject) for row in await office.findings()] == found
    assert scanned.found == listed.found


async def test_other_business_of_the_account_makes_it_list_customers(
    scene: Scene, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that takes more pages than there are customers to list is given up for the lists."""
    monkeypatch.setattr(reconcile_scan, "PAGES_MIN", -2)
    await charged(scene)
    for _ in range(220):
        await post(scene.sim.url, "/v1/payment_intents", amount=500, currency="usd")
    report = await office.reconcile()
    assert (report.how, report.suspects, report.is_clean) == ("customers", 3, True), report


async def test_every_step_can_be_repeated(scene: Scene, mail: Mailroom) -> None:
    """Killed after each of its steps and done again, it finds the same, and nothing twice."""
    charge_ids = await charged(scene)
    await pay_again(scene, await scene.charge(charge_ids[0]))
    await paid_unknown_to_the_ledger(scene, await scene.charge(charge_ids[1]))
    report = await Office(mail, times=3).reconcile(repair=True)
    assert (report.open, report.repaired) == ({"duplicate": 1}, {"status": 1})
    assert len(await Office(mail).findings(open_only=False)) == 2


async def test_a_page_that_fails_leaves_a_gap_that_is_said(
    scene: Scene, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever could not be read proves nothing: the report says so, and ends no earlier finding."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    charge_ids = await charged(scene)
    await pay_again(scene, await scene.charge(charge_ids[0]))
    await office.reconcile()
    scene.fault("error", status=500, match={"method": "GET", "path": "payment_intents$"})
    await scene.set_age(60)
    report = await office.reconcile()
    assert not report.is_clean
    assert any("slice 0" in gap and "500" in gap for gap in report.incomplete), report.incomplete
    assert await office.kinds() == [("duplicate", "refund")]


async def test_a_run_at_work_gives_no_finding(scene: Scene, office: Office) -> None:
    """Charges that are planned, prepared or in flight while the books are compared are no difference."""
    await scene.plan([GOOD_CARD, GOOD_CARD, DECLINING_CARD])
    worker = scene.worker()
    [one, two, _] = await worker.claim()
    prepared = (await worker.sender.send_first(one, CREATE, reason="planned")).charge
    intent = await worker.intend(prepared, CONFIRM)
    await worker.transmit(intent)
    await worker.transmit(await worker.intend(two, CREATE))
    report = await office.reconcile(repair=True)
    assert (report.found, report.settled) == ({}, 0), report
    assert (await scene.charge(one.charge_id)).state is State.CONFIRMING
    assert (await scene.charge(two.charge_id)).state is State.CREATING


async def test_a_span_of_an_account_is_compared_over_its_runs(scene: Scene, office: Office) -> None:
    """What was first sent in the span is compared; what was before or after is not."""
    charge_ids = await charged(scene)
    await another_amount(scene, await scene.charge(charge_ids[0]))
    await scene.set_age(2 * WINDOW_SECONDS)
    later = await office.reconcile(since=START + WINDOW_SECONDS)
    assert (later.charges, later.found) == (0, {})
    whole = await office.reconcile(since=START - 60, until=START + 60)
    assert (whole.charges, whole.found) == (3, {"amount": 1})


async def test_missed_events_are_found_and_put_into_the_inbox(
    scene: Scene, mail: Mailroom, office: Office
) -> None:
    """A third of the events is lost: exactly these are named, with their distance to Stripe's 30 days."""
    await charged(scene, 4)
    bodies = mail.bodies()
    await mail.deliver(*[body for number, body in enumerate(bodies) if number % 4])
    await scene.set_age(3_600)
    report = await office.reconcile()
    rows = [row for row in await office.findings() if row.kind == "event_gap"]
    assert len(rows) == report.found["event_gap"] > 0
    assert all("for another 30.0 days" in row.stripe_says for row in rows)
    report = await office.reconcile(repair=True)
    assert report.repaired == {"event_gap": len(rows)}
    assert (await office.reconcile()).is_clean


async def test_without_a_receiver_no_event_was_missed(scene: Scene, office: Office) -> None:
    """Where no event has ever come in, nobody subscribes to any: the report says that it did not look."""
    await charged(scene)
    await scene.set_age(3_600)
    report = await office.reconcile()
    assert (report.events_looked_for, report.found) == (False, {})


async def test_two_reconciliations_of_one_scope_do_no_harm(scene: Scene, mail: Mailroom) -> None:
    """Side by side, both find the same difference, and one row stands for it."""
    charge_ids = await charged(scene)
    await paid_unknown_to_the_ledger(scene, await scene.charge(charge_ids[0]))
    reports = await asyncio.gather(Office(mail).reconcile(repair=True), Office(mail).reconcile(repair=True))
    assert all(not report.open for report in reports), reports
    assert (await ChargeLedger(scene.pool).read(charge_ids[0])).state is State.SUCCEEDED
    assert len(await Office(mail).findings(open_only=False)) == 1
