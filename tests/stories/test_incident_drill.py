"""The incident drill: everything dies in the middle, hands do harm, and one command tells what is wrong."""

import shlex
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from activities.ledger.database import open_pool
from activities.missed_events import ON_ITS_WAY_SECONDS
from deploy.devstack import StackOptions, running_stack
from deploy.postgres import DATABASE
from tests import secret_watch
from tests.forking import Nursery
from tests.stories.incident import (
    ALTERED_AMOUNT,
    ALTERED_STATE,
    CHARGE,
    EVERY_NTH_CONFIRM_IS_LATE,
    SOME_PAID,
    Incident,
    incident,
    write_source,
)
from tests.stories.narrator import Document, Narrator, until

pytestmark = [pytest.mark.timeout(900), pytest.mark.proof]

RUN = "billing-run/acct_sim/2031-03"
LINES = 2_000
KILLED_AT = 700
LATER = "2h"  # later than Stripe rolls forward, and than an event may be on its way
LEASES_SECONDS = 240.0
OPEN_EVENTS = "SELECT count(*) FROM inbox_events WHERE state = 'waiting'"
IN_FLIGHT = "SELECT count(*) FROM charges WHERE state IN ('creating', 'confirming', 'canceling')"


async def test_an_incident_is_told_and_mended(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery
) -> None:
    """After a kill of everything and three harms done by hand, reconcile finds these and nothing else."""
    options = StackOptions(
        durable=False,
        headless=True,
        restarts=False,
        postgres_port=None,
        temporal_port=None,
        temporal_ui_port=None,
        simulator_port=None,
        proxy_port=None,
        web=True,
        web_port=None,
        settings={"timing": "tests", "rate_per_second": "200"},
    )
    folder = tmp_path_factory.mktemp("drill")
    home = folder / "home"
    async with running_stack(home, options) as stack, incident(stack) as happening:
        narrator = Narrator(home, stack.info.database_url, nursery)
        source = write_source(folder, LINES)
        await narrator.types(f"sim seed {source}")
        await bill_and_die(narrator, happening, source)
        duplicate = await do_harm(narrator, happening)
        report = await find_it(narrator, happening, duplicate)
        await mend_it(narrator, report)
        await prove_it(narrator, duplicate)
        await close_the_books(narrator, folder / "pack", money_of(report))
        assert pages_and_looks(report) <= report["report"]["bound"]
        await secret_watch.refuse_secrets_in_database(stack.postgres, DATABASE)
        await secret_watch.refuse_secrets_in_histories(stack.temporal.address)
    # The raw pages were just looked through as rows: in the file one column runs into the next.
    secret_watch.refuse_secrets_in_files(folder, passed_over=frozenset({"data", "simulator"}))


async def bill_and_die(narrator: Narrator, happening: Incident, source: Path) -> None:
    """Bill everyone; kill worker and receiver in the middle; let both go on."""
    narrator.tell(f"{LINES} customers are billed. Stripe loses a third of its webhooks on the way.")
    await narrator.types(f"run start --period 2031-03 --source {source} --yes")
    await narrator.waits_until(RUN, "it charges", lambda shown: shown["succeeded"] >= KILLED_AT)
    worker, web = happening.kill_both()
    narrator.tell(f"kill -9 {worker} {web}: the worker and the webhook receiver, at once.")
    died = await narrator.looks_at(RUN)
    assert died["not_started"] + died["unknown"] > 0
    await happening.start_both()
    await narrator.waits_until(
        RUN, "both are started again, and all is charged", lambda shown: not shown["not_started"]
    )


async def do_harm(narrator: Narrator, happening: Incident) -> str:
    """Pay one twice, and alter two rows; return the PaymentIntent that is one too many."""
    async with open_pool(happening.stack.info.database_url, connections=1) as pool:
        happening.paid = [dict(row) for row in await pool.fetch(SOME_PAID, RUN)]
        twice, altered, undone = happening.paid
        narrator.tell("Somebody pays one by hand that is paid already.")
        duplicate = await happening.pay_twice(twice)
        narrator.tell(f"{LATER} go by; Stripe rolls forward some requests that it had answered with 500.")
        await narrator.types(f"clock advance {LATER}")

        async def all_delivered() -> Document | None:
            waiting = happening.pending_deliveries() + await pool.fetchval(OPEN_EVENTS)
            return None if waiting else {"waiting": 0}

        # What the killed worker had taken out of the inbox is another's once its lease is over.
        await until(
            all_delivered, "every webhook that was not lost is worked through", within_seconds=LEASES_SECONDS
        )
    narrator.tell("And somebody with the superuser's password alters two charges of the ledger.")
    await happening.alter(ALTERED_AMOUNT, altered["charge_id"])
    await happening.alter(ALTERED_STATE, undone["charge_id"])
    return duplicate


async def find_it(narrator: Narrator, happening: Incident, duplicate: str) -> Document:
    """Verify says that something is wrong; reconcile says what, and settles what was open."""
    now = datetime.fromisoformat((await narrator.types("clock show"))["ledger"])
    lost = await happening.lost_events(before=now - timedelta(seconds=ON_ITS_WAY_SECONDS))
    narrator.tell("Is all well?")
    assert (await narrator.types(f"verify {RUN}", exit_code=3))["verify"] == "differences"
    narrator.tell("No. What is wrong, and since when?")
    report = await narrator.types(f"reconcile --run {RUN} --reason 'the drill'", exit_code=3)
    tell_numbers(report, lost=len(lost))
    twice, altered, undone = happening.paid
    found = {(one["kind"], one["subject"]) for one in report["drift"] if one["kind"] != "event_gap"}
    assert found == {
        ("duplicate", duplicate),
        ("amount", altered["charge_id"]),
        ("status", undone["charge_id"]),
    }
    money = money_of(report)
    assert (money["charge_id"], money["amount_minor"]) == (twice["charge_id"], twice["amount_minor"])
    assert {one["subject"] for one in report["drift"] if one["kind"] == "event_gap"} == lost
    totals = report["report"]
    assert (totals["charges"], totals["in_flight"], totals["incomplete"]) == (LINES, 0, [])
    assert totals["settled"] > 0, "of what was rolled forward, some was told by no webhook"
    async with open_pool(happening.stack.info.database_url, connections=1) as pool:
        assert await pool.fetchval(IN_FLIGHT) == 0
    return report


def tell_numbers(report: Document, *, lost: int) -> None:
    """Print what was found, and what it took against what is allowed."""
    totals, kinds = report["report"], Counter(one["kind"] for one in report["drift"])
    told = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
    print(f"    found: {told}; webhooks that were lost: {lost}")
    print(
        f"    {totals['charges']} charges, {totals['differing']} differ, {totals['settled']} settled by it"
        f" (of every {EVERY_NTH_CONFIRM_IS_LATE} confirms one was answered 500, and rolled forward)"
    )
    used, bound = pages_and_looks(report), totals["bound"]
    print(f"    requests: {used} for pages and looks, bound {bound}; all: {totals['requests']}")


def money_of(report: Document) -> Document:
    """Return the one difference that is money."""
    [money] = [one for one in report["drift"] if one["kind"] == "duplicate"]
    return dict(money)


def pages_and_looks(report: Document) -> int:
    """Return how many requests the comparison took, of those that the bound speaks of."""
    requests: dict[str, int] = report["report"]["requests"]
    return requests["pages"] + requests["looks"]


async def mend_it(narrator: Narrator, report: Document) -> None:
    """Repair what moves no money; then refund the duplicate by the very command that the report names."""
    narrator.tell("What moves no money is repaired on the spot. The duplicate is not: it is money.")
    repaired = await narrator.types(f"reconcile --run {RUN} --repair --reason 'the drill'", exit_code=3)
    left = [one for one in repaired["drift"] if one["repair_state"] in {"proposed", "failed"}]
    assert [one["kind"] for one in left] == ["duplicate"], left
    [money] = left
    narrator.tell("Somebody approves the refund, naming PaymentIntent and amount, as the report says it.")
    assert money["command"] == money_of(report)["command"]
    [_, *words] = shlex.split(money["command"])
    await narrator.types(shlex.join([*words, "--yes", "--wait"]))


async def prove_it(narrator: Narrator, duplicate: str) -> None:
    """Nothing is open any more: by reconcile, by verify, by the run, and by the simulator's own book."""
    narrator.tell("And now?")
    again = await narrator.types(f"reconcile --run {RUN} --reason 'the drill'")
    assert (again["verdict"], again["open"]) == ("clean", 0)
    assert (await narrator.types(f"verify {RUN}"))["verify"] == "clean"
    await narrator.types(f"run tick {RUN}")
    closed = await narrator.waits_until(RUN, "it closes", lambda shown: shown["phase"] == "closed")
    assert (closed["succeeded"], closed["lines"]) == (LINES, LINES)
    book = await narrator.types(f"sim book --identity {CHARGE}", exit_code=3)
    doubles = [one for one in book["double_charges"] if duplicate not in str(one)]
    assert doubles == [], "the only customer who paid twice is the one who was made to by hand"
    assert book["identities"] == LINES


async def close_the_books(narrator: Narrator, pack: Path, money: Document) -> None:
    """Write the closing pack: it is what its manifest says, and its totals are those of Stripe's book."""
    narrator.tell("The books of the month are closed, and whoever gets them can check them.")
    written = await narrator.types(f"export {RUN} --out {pack}")
    checked = await narrator.types(f"export --check {pack}")
    assert (written["complete"], checked["good"], checked["findings"]) == (True, True, [])
    moved = (await narrator.types(f"sim book --identity {CHARGE}", exit_code=3))["money_moved"]
    moved[money["currency"]] -= money["amount_minor"]  # paid by hand, and given back
    assert {currency: total["paid_minor"] for currency, total in written["totals"].items()} == moved
    print(f"    paid, in minor units, by the pack and by the book: {moved}")
