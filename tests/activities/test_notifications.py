import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.ledger.closing import close_charging_with_report
from activities.ledger.control import ControlLedger
from activities.ledger.database import open_pool
from activities.ledger.follow_ups import FollowUpLedger
from activities.ledger.notifications import NotificationLedger
from activities.notifiers.destination import Destination
from activities.notifiers.slack import SlackChannel
from activities.notifiers.webhook import Webhook
from activities.notify import NotificationActivities
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, PERIOD, RUN, Books
from tests.activities.receivers import web_receiver
from tests.activities.test_notifiers import SECRET, signature_of
from tests.ledger.planting import close_run, run_as_owner
from workflows.contracts import RunKey
from workflows.domain.errors import StaleWrite
from workflows.domain.follow_up import Kind, Wait
from workflows.notify_contracts import Claim, Claimed, Waiting

KEY = RunKey(run_id=RUN, account=ACCOUNT)
NOON = 1_930_132_800.0
DELIVERER = f"notify/{RUN}/1"


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """A run of two lines, in the ledger of a process that can notify two destinations."""
    async with open_pool(database.app_url, connections=3, destinations=("webhook", "slack")) as pool:
        books = Books(pool, gateway=None, sim=None)  # type: ignore[arg-type]
        await books.open_run("charging")
        await books.owe("cus_hostile", "succeeded", payment_intent="pi_hostile")
        await books.owe("cus_other", "declined")
        await books.plan_total(database, 2, 2_500, 2_750)
        yield books


def activities(books: Books, *destinations: Destination) -> NotificationActivities:
    """Return the activities of a process that knows these destinations."""
    return NotificationActivities(ledger=NotificationLedger(books.pool), destinations=destinations)


async def claim(books: Books, deliverer: str = DELIVERER) -> dict[str, Waiting]:
    """Take what waits, by destination."""
    claimed: Claimed = await ActivityEnvironment().run(
        activities(books).claim_notifications, Claim(run=KEY, deliverer=deliverer)
    )
    return {one.destination: one for one in claimed.waiting}


async def payloads(books: Books) -> list[dict[str, Any]]:
    """Return what is to be told to the webhook, oldest first."""
    rows = await books.pool.fetch(
        "SELECT payload FROM notifications WHERE destination = 'webhook' ORDER BY notification_id"
    )
    return [row["payload"] for row in rows]


async def tries(books: Books) -> list[tuple[str, str | None]]:
    """Return status and detail of every try in the journal."""
    rows = await books.pool.fetch("SELECT status, detail FROM delivery_attempts ORDER BY at, attempt_no")
    return [(row["status"], row["detail"]) for row in rows]


async def test_a_close_announces_itself_to_everybody_once(books: Books) -> None:
    """The close writes one row per destination, with the same id and counts, and a second close none."""
    await close_run(books.pool, RUN)
    await close_run(books.pool, RUN)
    found = await NotificationLedger(books.pool).newest(run_id=RUN, limit=10)
    assert sorted((one["destination"], one["kind"], one["state"], one["tries"]) for one in found) == [
        ("slack", "run_closed", "waiting", 0),
        ("webhook", "run_closed", "waiting", 0),
    ]
    [payload] = await payloads(books)
    assert payload["counts"] == {"succeeded": 1, "declined": 1}
    assert payload["totals"] == {"usd": {"lines": 2, "amount_minor": 2_500, "cap_minor": 2_750}}
    assert {one["id"] for one in found} == {payload["id"]} == {f"{RUN}/run_closed/closed"}
    assert (payload["run"], payload["account"], payload["period"]) == (RUN, ACCOUNT, PERIOD)


async def test_a_payload_has_no_customer_in_it(books: Books) -> None:
    """Ids, counts and sums: neither customers nor charges, payment methods or anybody's words."""
    control = ControlLedger(books.pool)
    await control.hold(RUN, "breaker", who="rule", reason="No such customer: 'cus_hostile'")
    await control.resume(RUN, who="somebody", reason="cus_hostile is fine")
    await close_run(books.pool, RUN)
    for payload in await payloads(books):
        text = json.dumps(payload)
        assert not any(word in text for word in ("cus_", "pi_", "pm_", "somebody", "No such"))


async def test_a_close_that_fails_announces_nothing(books: Books) -> None:
    """The rows are in the transaction of the close: where it does not commit, there are none."""
    await books.pool.execute("UPDATE charges SET state = 'canceling' WHERE customer = 'cus_other'")
    with pytest.raises(StaleWrite):
        await close_run(books.pool, RUN)
    async with books.pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(
            "INSERT INTO run_events (run_id, at, action, who, reason) VALUES ($1, ledger_now(), $2, $2, $2)",
            RUN, "closed",
        )  # fmt: skip
        assert await connection.fetchval("SELECT count(*) FROM notifications") == 2
        await transaction.rollback()
    assert await payloads(books) == []


async def test_the_end_of_the_charging_is_announced_with_what_is_waited_for(books: Books) -> None:
    """A run that goes on for days says how it stands once, and again when it closes."""
    wait = Wait(Kind.RETRY, "otherwise", 0, NOON, NOON, NOON, "insufficient_funds")
    await books.pool.execute("UPDATE charges SET payment_intent = 'pi_declined' WHERE customer = 'cus_other'")
    follow_ups = FollowUpLedger(books.pool)
    [candidate] = await follow_ups.candidates(RUN, 0)
    assert await follow_ups.open(RUN, [(candidate.charge, wait)]) == 1
    report = {"waiting": {"retry": {"lines": 1}}, "totals": {"usd": {"moved_minor": 1_250}}}
    for _ in range(2):
        assert await close_charging_with_report(books.pool, RUN, lambda _facts: report)
    with pytest.raises(StaleWrite):
        await close_run(books.pool, RUN)
    [payload] = await payloads(books)
    assert (payload["kind"], payload["id"]) == ("charging_closed", f"{RUN}/charging_closed/charging-closed")
    assert (payload["waiting"], payload["moved_minor"]) == (report["waiting"], {"usd": 1_250})
    assert payload["counts"] == {"succeeded": 1, "declined": 1}
    await books.pool.execute("UPDATE follow_ups SET closed_at = ledger_now(), outcome = 'retries_used_up'")
    await close_run(books.pool, RUN)
    assert [one["kind"] for one in await payloads(books)] == ["charging_closed", "run_closed"]


async def test_a_hand_over_names_payment_intents_and_nobody(books: Books) -> None:
    """Whoever gets it finds the customer at Stripe: no secret, no customer and no amount travels."""
    await books.owe("cus_away", "needs_customer", payment_intent="pi_3ds")
    wait = Wait(Kind.CUSTOMER, "needs_customer", 0, NOON, NOON, NOON, "authentication_required")
    follow_ups = FollowUpLedger(books.pool)
    candidates = await follow_ups.candidates(RUN, 0)
    [candidate] = [one for one in candidates if one.charge.customer == "cus_away"]
    for _ in range(2):
        await follow_ups.open(RUN, [(candidate.charge, wait)])
    [payload] = await payloads(books)
    assert (payload["kind"], payload["payment_intents"], payload["customers"]) == (
        "customer_needed", ["pi_3ds"], 1,
    )  # fmt: skip
    assert not any(word in json.dumps(payload) for word in ("cus_", "secret", "pm_"))


@pytest.mark.parametrize("hold", ["canary", "breaker", "cap"])
async def test_a_hold_by_a_rule_announces_itself_each_time(books: Books, hold: str) -> None:
    """Somebody must look whenever a rule holds a run; a repeated call tells nobody anything new."""
    control = ControlLedger(books.pool)
    for _ in range(2):
        await control.hold(RUN, hold, who="rule", reason="it is so")
        await control.hold(RUN, hold, who="rule", reason="it is so")
        await control.resume(RUN, who="somebody", reason="go on")
    told = await payloads(books)
    assert [(one["kind"], one["hold"]) for one in told] == [("run_held", hold)] * 2
    assert len({one["id"] for one in told}) == 2


async def test_what_a_person_did_is_announced_to_nobody(books: Books) -> None:
    """Whoever pauses, resumes or cancels knows it already."""
    control = ControlLedger(books.pool)
    await control.hold(RUN, "paused", who="somebody", reason="lunch")
    await control.resume(RUN, who="somebody", reason="lunch is over")
    await control.request_cancel(RUN, who="somebody", reason="wrong file")
    assert await payloads(books) == []


@pytest.mark.parametrize(("phase", "told"), [("planned", ["run_waits_for_approval"]), ("charging", [])])
async def test_a_plan_that_waits_announces_itself(books: Books, phase: str, told: list[str]) -> None:
    """A plan that needs a person's yes tells its hash; one that was approved beforehand tells nothing."""
    await books.pool.execute("UPDATE billing_runs SET phase = $1", phase)
    await books.pool.execute(
        "INSERT INTO run_events (run_id, at, action, who, reason) VALUES ($1, ledger_now(), $2, $2, $2)",
        RUN, "planned",
    )  # fmt: skip
    found = await payloads(books)
    assert [one["kind"] for one in found] == told
    assert all(one["plan_hash"] == "planted" for one in found)


async def test_with_nobody_to_tell_there_are_no_rows(database: Database) -> None:
    """A process without destinations leaves the outbox empty."""
    async with open_pool(database.app_url, connections=2) as pool:
        books = Books(pool, gateway=None, sim=None)  # type: ignore[arg-type]
        await books.open_run("charging")
        await close_run(pool, RUN)
        assert await pool.fetchval("SELECT count(*) FROM run_events") == 1
        assert await pool.fetchval("SELECT count(*) FROM notifications") == 0


async def test_what_is_taken_belongs_to_its_deliverer(books: Books) -> None:
    """A deliverer finds its own again after a lost answer; another gets only what nobody has taken."""
    await close_run(books.pool, RUN)
    taken = await claim(books)
    assert sorted(taken) == ["slack", "webhook"]
    assert await claim(books) == taken
    assert await claim(books, "notify/another") == {}


async def test_what_a_lost_deliverer_took_is_taken_over(database: Database, books: Books) -> None:
    """One that was terminated begins no try any more; one that still tries keeps what it has."""
    await close_run(books.pool, RUN)
    taken = await claim(books)
    await run_as_owner(database, "UPDATE notifications SET claimed_at = claimed_at - interval '2 hours'")
    assert await NotificationLedger(books.pool).begin(taken["slack"].notification_id) is not None
    assert list(await claim(books, "notify/another")) == ["webhook"]


async def test_failures_and_the_success_are_in_the_journal(books: Books) -> None:
    """Two tries fail and the third is taken: three rows, one id, and a signature that holds each time."""
    await close_run(books.pool, RUN)
    waiting = (await claim(books))["webhook"]
    async with web_receiver(503, 500) as receiver:
        deliver = activities(books, Webhook(f"{receiver.url}/hush-hush", SECRET)).deliver_notification
        for _ in range(2):
            with pytest.raises(ApplicationError, match="webhook: HTTP 5") as failed:
                await ActivityEnvironment().run(deliver, waiting)
            assert "hush-hush" not in repr(failed.value)
        await ActivityEnvironment().run(deliver, waiting)
        await ActivityEnvironment().run(deliver, waiting)
    assert await tries(books) == [("failed", "HTTP 503"), ("failed", "HTTP 500"), ("delivered", "HTTP 200")]
    assert len(receiver.deliveries) == 3
    for delivery in receiver.deliveries:
        assert signature_of(delivery.headers["Chargeonce-Signature"], delivery.body)
    assert {json.loads(one.body)["id"] for one in receiver.deliveries} == {f"{RUN}/run_closed/closed"}
    [webhook, slack] = sorted(
        await NotificationLedger(books.pool).newest(run_id=None, limit=10),
        key=lambda one: one["destination"],
        reverse=True,
    )
    assert (webhook["state"], webhook["tries"], webhook["detail"]) == ("delivered", 3, "HTTP 200")
    assert (slack["state"], slack["tries"]) == ("waiting", 0)


async def test_a_try_whose_process_died_is_repeated(books: Books) -> None:
    """What was sent and not recorded is sent again with the same id, and the journal says so."""
    await close_run(books.pool, RUN)
    waiting = (await claim(books))["webhook"]
    async with web_receiver() as receiver:
        webhook = Webhook(receiver.url, SECRET)
        lost = await NotificationLedger(books.pool).begin(waiting.notification_id)
        assert lost is not None
        await webhook.deliver(lost.payload)
        await ActivityEnvironment().run(activities(books, webhook).deliver_notification, waiting)
    first, second = (json.loads(one.body) for one in receiver.deliveries)
    assert first == second
    assert await tries(books) == [("sending", None), ("delivered", "HTTP 200")]


async def test_giving_up_raises_an_alarm_once(books: Books) -> None:
    """The audit trail of the run says what was not delivered, after how many tries, and what came last."""
    await close_run(books.pool, RUN)
    waiting = (await claim(books))["slack"]
    async with web_receiver(410) as receiver:
        channel = activities(books, SlackChannel(receiver.url))
        with pytest.raises(ApplicationError):
            await ActivityEnvironment().run(channel.deliver_notification, waiting)
    for _ in range(2):
        await ActivityEnvironment().run(channel.give_up_notification, waiting)
    events = [event for event in await ControlLedger(books.pool).events(RUN) if event.action != "closed"]
    assert [(event.action, event.reason) for event in events] == [
        ("notification_given_up", "run_closed could not be delivered to slack in 1 tries: HTTP 410")
    ]
    assert events[0].detail["alarm"] is True
    assert list(await claim(books)) == ["webhook"]


async def test_a_success_that_comes_late_is_one(books: Books) -> None:
    """A try that was given up while it was on its way, and then taken, counts as delivered."""
    await close_run(books.pool, RUN)
    waiting = (await claim(books))["slack"]
    ledger = NotificationLedger(books.pool)
    one_try = await ledger.begin(waiting.notification_id)
    assert one_try is not None
    await ledger.give_up(waiting.notification_id)
    assert await ledger.begin(waiting.notification_id) is None
    await ledger.end(one_try, delivered=True, detail="HTTP 200")
    states = {one["destination"]: one["state"] for one in await ledger.newest(run_id=RUN, limit=10)}
    assert states == {"slack": "delivered", "webhook": "waiting"}


async def test_a_worker_without_the_destination_says_so(books: Books) -> None:
    """A worker that was given other destinations fails the try, and another may succeed."""
    await close_run(books.pool, RUN)
    waiting = (await claim(books))["slack"]
    with pytest.raises(ApplicationError, match="knows no such destination"):
        await ActivityEnvironment().run(activities(books).deliver_notification, waiting)


async def test_nobody_rewrites_what_was_to_be_told(books: Books) -> None:
    """Workers may end a notification, but neither change nor remove what it says."""
    await close_run(books.pool, RUN)
    for statement in (
        "UPDATE notifications SET payload = '{}'",
        "DELETE FROM notifications",
        "DELETE FROM delivery_attempts",
    ):
        with pytest.raises(Exception, match="permission denied"):
            await books.pool.execute(statement)
