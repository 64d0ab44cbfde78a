"""Two months of billing with moved clocks: what is due when, and what becomes of what is not paid at once."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy

from activities.ledger.database import open_pool
from deploy.devstack import DevStack, StackOptions, running_stack
from deploy.stripe_sim.client import call_sim
from tests.forking import Nursery
from tests.stories.narrator import Document, Narrator
from tests.stories.shop import pay_on_session
from worker.schedules.temporal_schedules import schedule_id_of
from worker.temporal_client import connect_temporal

pytestmark = pytest.mark.timeout(300)

ZONE = ZoneInfo("Europe/Berlin")
FEBRUARY, MARCH, APRIL = (f"billing-run/acct_sim/2031-{month:02d}" for month in (2, 3, 4))
MARCH_AGAIN = f"{MARCH}/r2"
GOOD, BROKE = "visa", "chargeDeclinedInsufficientFunds"
ASKS, LOST = "authenticationRequired", "chargeDeclinedLostCard"
CARDS = dict.fromkeys(range(1, 7), GOOD) | {7: BROKE, 8: BROKE, 9: BROKE, 10: ASKS, 11: LOST, 12: BROKE}
DAY_SECONDS = 86_400
SCHEDULES = """
[[schedule]]
name = "monthly"
account = "acct_sim"
zone = "Europe/Berlin"
every = "month"
since = "2031-03"
at = "06:00"
source = "{period}.csv"
approve = "any"
"""
KEYS_AFTER_THE_FIRST = """
SELECT k.operation, k.version, d.decision, d.reason,
       (d.evidence->>'age_seconds')::double precision AS age_seconds, d.evidence->'requests' AS requests
  FROM keys k
  LEFT JOIN decisions d
         ON d.charge_id = k.charge_id AND d.evidence->>'operation' = k.operation
        AND (d.evidence->>'version')::integer = k.version
 WHERE k.version > 1
 ORDER BY d.decision_id
"""


async def test_two_months(tmp_path: Path, nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries, a missed month, a backfill and a correction over two months: every line is charged once."""
    options = StackOptions(
        durable=False,
        headless=True,
        restarts=False,
        postgres_port=None,
        temporal_port=None,
        temporal_ui_port=None,
        simulator_port=None,
        proxy_port=None,
        settings={"timing": "tests", "rate_per_second": "100"},
    )
    home = tmp_path / "home"
    async with running_stack(home, options) as stack:
        for name, value in stack.info.environment().items():
            monkeypatch.setenv(name, value)
        narrator = Narrator(home, stack.info.database_url, nursery)
        write_sources(tmp_path)
        await narrator.types(f"sim seed {tmp_path / 'known.csv'}")
        await travel_to(narrator, datetime(2031, 4, 1, 6, 0, 10, tzinfo=ZONE))
        await bill_march_by_schedule(narrator, tmp_path)
        await retry_for_a_week(narrator, stack)
        await wait_for_whoever_pays_in_the_shop(narrator, stack)
        await catch_up_april(narrator, tmp_path)
        await bill_what_is_missing_of_older_months(narrator, stack, tmp_path)
        await finish_april(narrator, stack)
        await prove_it(narrator, stack)


def write_sources(folder: Path) -> None:
    """Write whom Stripe knows, and what is due: March for eleven, April for one more, February for five."""
    known = [f"cus_story_{n},pm_card_{card}_story_{n}" for n, card in CARDS.items()]
    (folder / "known.csv").write_text("\n".join(["customer,payment_method", *known]) + "\n")
    write_month(folder, "2031-02", dict.fromkeys(range(1, 6), 0))
    write_month(folder, "2031-03", dict.fromkeys(range(1, 12), 0))
    write_month(folder, "2031-04", dict.fromkeys([*range(1, 11), 12], 0))


def write_month(folder: Path, label: str, off_by_cents: dict[int, int]) -> None:
    """Write a month's file: customer n owes n dollars, some of them a few cents less."""
    rows = [f"cus_story_{n},usd,{n * 100 - cents}" for n, cents in off_by_cents.items()]
    (folder / f"{label}.csv").write_text("\n".join(["customer,currency,amount_minor", *rows]) + "\n")


async def travel_to(narrator: Narrator, wanted: datetime) -> None:
    """Move the clocks of ledger and simulator to a moment that is still to come."""
    now = datetime.fromisoformat((await narrator.types("clock show"))["ledger"])
    await narrator.types(f"clock advance {round((wanted - now).total_seconds())}s")


async def next_day(narrator: Narrator, days: int, run: str) -> None:
    """Let some days pass, and wake a run that waits for them."""
    await narrator.types(f"clock advance {days * DAY_SECONDS}s")
    await narrator.types(f"run tick {run}")


async def bill_march_by_schedule(narrator: Narrator, folder: Path) -> None:
    """Let the schedule fire for March, and see the charging closed for people with five lines unpaid."""
    narrator.tell("A file says what is billed when. Whatever it names is the same on both sides of a sync.")
    file = folder / "schedules.toml"
    file.write_text(SCHEDULES)
    assert (await narrator.types(f"schedule sync --file {file}"))["changed"] == 1
    assert (await narrator.types(f"schedule sync --file {file}"))["changed"] == 0
    previewed = await narrator.types(f"schedule preview --file {file} --count 1 --after 2031-04-01")
    [monthly] = previewed["schedules"]
    [firing] = monthly["firings"]
    assert (firing["period"], firing["utc_offset"]) == ("2031-03", "+02:00")

    narrator.tell("On the first of April, at six, it fires for March.")
    handle = (await connect_temporal()).get_schedule_handle(schedule_id_of("monthly"))
    at = datetime(2031, 4, 1, 6, 0, tzinfo=ZONE).astimezone(UTC)
    # The nominal time is what is moved here: Temporal's own clock is the real one.
    await handle.backfill(
        ScheduleBackfill(
            start_at=at, end_at=at + timedelta(seconds=1), overlap=ScheduleOverlapPolicy.BUFFER_ALL
        )
    )
    shown = await narrator.waits_until(
        MARCH, "its charging closes", lambda shown: shown["phase"] == "retrying"
    )
    assert (shown["succeeded"], shown["declined"], shown["needs_customer"]) == (6, 4, 1)
    assert (await narrator.looks_at(MARCH))["started_by"] == "schedule monthly"


async def retry_for_a_week(narrator: Narrator, stack: DevStack) -> None:
    """Customers replace their cards before days 3, 5 and 7; a lost card is never tried again."""
    for days, customer, paid in ((3, 7, 7), (2, 8, 8), (2, 9, 9)):
        narrator.tell(f"cus_story_{customer} replaces the card, and the retry that comes next finds it.")
        replace_card(stack, customer)
        await next_day(narrator, days, MARCH)
        await narrator.waits_until(MARCH, "the retries are through", has_paid(paid))
    declined = await narrator.looks_at(MARCH)
    assert (declined["declined"], declined["needs_customer"], declined["phase"]) == (1, 1, "retrying")


def has_paid(lines: int) -> Callable[[Document], bool]:
    """Return what holds once so many lines are paid and nothing is in flight."""
    return lambda shown: shown["succeeded"] == lines and not shown["unknown"]


def replace_card(stack: DevStack, customer: int) -> None:
    """Give a customer a card that works, as the default."""
    card = f"pm_card_{GOOD}_new_{customer}"
    known = {
        "id": f"cus_story_{customer}",
        "payment_methods": [{"id": card}],
        "default_payment_method": card,
    }
    call_sim(stack.info.stripe_sim_url, "POST", "/_sim/seed", {"account": None, "customers": [known]})


async def wait_for_whoever_pays_in_the_shop(narrator: Narrator, stack: DevStack) -> None:
    """One was asked for a challenge: nothing is sent for them until they come and pay it themselves."""
    narrator.tell("cus_story_10 was asked to come by, once, and pays that very PaymentIntent in the shop.")
    events = (await narrator.types(f"run events {MARCH}"))["events"]
    handed_over = [event for event in events if event["action"] == "customer_needed"]
    assert len(handed_over) == 1
    payment_intent = await pay_what_waits_for_the_customer(stack, MARCH)
    assert payment_intent in str(handed_over[0])
    await next_day(narrator, 1, MARCH)
    closed = await narrator.waits_until(MARCH, "it closes", lambda shown: shown["phase"] == "closed")
    assert (closed["succeeded"], closed["declined"]) == (10, 1)


async def pay_what_waits_for_the_customer(stack: DevStack, run: str) -> str:
    """Have cus_story_10 pay in the shop what a run asked of them, and return the PaymentIntent."""
    async with open_pool(stack.info.database_url, connections=1) as pool:
        payment_intent: str = await pool.fetchval(
            "SELECT payment_intent FROM charges WHERE run_id = $1 AND state = 'needs_customer'", run
        )
    await pay_on_session(stack.info.stripe_sim_url, stack.info.stripe_secret_key, payment_intent)
    return payment_intent


async def catch_up_april(narrator: Narrator, folder: Path) -> None:
    """Find the firing that never came, look at it, and decide."""
    narrator.tell("On the first of May nothing fires: Temporal was away. The sweep finds the month.")
    await travel_to(narrator, datetime(2031, 5, 1, 12, 0, tzinfo=ZONE))
    sweep = f"schedule sweep --file {folder / 'schedules.toml'}"
    found = await narrator.types(sweep, exit_code=1)
    [missed] = found["missed"]
    assert (missed["period"], missed["outcome"]) == ("2031-04", "undecided")
    assert {one["customer"]: one["amount_minor"] for one in found["customers"]}["cus_story_12"] == 1_200

    narrator.tell("Somebody has looked at the amounts, and says yes to that plan.")
    decided = await narrator.types(f"{sweep} --yes 2031-04={missed['plan_hash']}")
    assert [(one["period"], one["outcome"]) for one in decided["missed"]] == [("2031-04", "started")]
    shown = await narrator.waits_until(
        APRIL, "its charging closes", lambda shown: shown["phase"] == "retrying"
    )
    assert (shown["succeeded"], shown["declined"], shown["needs_customer"]) == (9, 1, 1)


async def bill_what_is_missing_of_older_months(narrator: Narrator, stack: DevStack, folder: Path) -> None:
    """Backfill February and March while April waits: March for the one line alone, corrected."""
    narrator.tell("February was never billed, and March was wrong for cus_story_11, who has a new card now.")
    replace_card(stack, 11)
    write_month(folder, "2031-03", dict.fromkeys(range(1, 11), 0) | {11: 250})
    backfill = f"backfill --from 2031-02 --to 2031-03 --source '{folder}/{{period}}.csv'"
    preview = await narrator.types(f"{backfill} --preview")
    by_customer = {one["customer"]: one["periods"] for one in preview["customers"]}
    assert by_customer["cus_story_11"] == {"2031-03": 850}
    assert by_customer["cus_story_1"] == {"2031-02": 100}
    narrator.tell("Nobody is charged again, so what is approved is February, and one line of March.")
    done = await narrator.types(f"{backfill} --approve {preview['hash']}")
    assert [(run["run"], run["phase"], run["succeeded"]) for run in done["runs"]] == [
        (FEBRUARY, "closed", 5),
        (MARCH_AGAIN, "closed", 1),
    ]
    narrator.tell("The line was taken over: its PaymentIntent was canceled before another one was made.")
    story = await narrator.types(f"explain cus_story_11/base --run {MARCH_AGAIN}")
    told = json.dumps(story)
    assert all(key in told for key in ("create_", "cancel_pi_", "_v2", f"taken over from {MARCH}"))
    before = await narrator.looks_at(MARCH)
    assert (before["taken_over"], before["declined"]) == (1, 0)


async def finish_april(narrator: Narrator, stack: DevStack) -> None:
    """April has waited for its retries all the while."""
    narrator.tell("April still waits. cus_story_12 has a new card, and the retry of day 3 ends the month.")
    replace_card(stack, 12)
    shown = await narrator.looks_at(APRIL)
    assert shown["phase"] == "retrying"
    await pay_what_waits_for_the_customer(stack, APRIL)
    await next_day(narrator, 3, APRIL)
    closed = await narrator.waits_until(APRIL, "it closes", lambda shown: shown["phase"] == "closed")
    assert closed["succeeded"] == 11


async def prove_it(narrator: Narrator, stack: DevStack) -> None:
    """Each line once by the simulator's book, and every new key with its age, its lookup and its reason."""
    narrator.tell("Against Stripe's own books, run by run, and by the simulator's:")
    for run in (MARCH, APRIL, FEBRUARY, MARCH_AGAIN):
        assert (await narrator.types(f"verify {run}"))["verify"] == "clean"
    book = await narrator.types("sim book --identity chargeonce_charge")
    assert (book["succeeded"], book["identities"], book["double_charges"]) == (27, 27, [])

    narrator.tell("Every key that is not a first version says how old the one before was, and what was seen.")
    async with open_pool(stack.info.database_url, connections=1) as pool:
        rows = await pool.fetch(KEYS_AFTER_THE_FIRST)
    for row in rows:
        print(
            f"    {row['operation']} v{row['version']}: {row['decision']} after {row['age_seconds']:.0f} s: "
            f"{row['reason']}"
        )
        assert row["age_seconds"] >= DAY_SECONDS
        assert row["requests"]
        assert row["reason"]
    # March: 7 once, 8 twice, 9 three times; 11 taken over by create and confirm; April: 12 once.
    assert len(rows) == 1 + 2 + 3 + 2 + 1
