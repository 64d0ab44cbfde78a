import json
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.devstack import StackOptions, running_stack
from tests.forking import Nursery
from tests.stories.listener import listening
from tests.stories.narrator import Document, Narrator, until
from tests.stories.new_version import REASON_OF_VERSION_2, build_version_2

pytestmark = pytest.mark.timeout(300)

RUN = "billing-run/acct_sim/2031-03"
SECOND = "billing-run/acct_sim/2031-04"
PAYING = 200
CANARY = 20
RATE_PER_SECOND = 12  # slow enough for decisions to come in the middle


async def test_a_run_that_people_decide(tmp_path: Path, nursery: Nursery) -> None:
    """People preview, approve, hold, mend and cancel a run, and every line ends once with a reason."""
    async with listening(fails=2) as listener:
        options = StackOptions(
            durable=False,
            headless=True,
            restarts=False,
            postgres_port=None,
            temporal_port=None,
            temporal_ui_port=None,
            simulator_port=None,
            proxy_port=None,
            settings={
                "timing": "tests",
                "rate_per_second": str(RATE_PER_SECOND),
                "notify_webhook_url": listener.url,
                "notify_webhook_secret": listener.secret,
            },
        )
        home = tmp_path / "home"
        async with running_stack(home, options) as stack:
            narrator = Narrator(home, stack.info.database_url, nursery)
            known, march, april = write_sources(tmp_path)
            await narrator.types(f"sim seed {known}")
            plan_hash = await preview_and_approve(narrator, march)
            await look_at_the_canary(narrator)
            await pause(narrator)
            await announced(narrator, "run_held")  # while there is a worker to announce it

            narrator.tell("While it is paused, the worker is replaced by a new version of the product.")
            await stack.workers[0].stop()
            stack.options = replace(options, worker_command=build_version_2(tmp_path / "version-2"))
            await stack.add_worker()
            await go_on_with_version_2(narrator)

            await break_and_mend_credentials(narrator, tmp_path)
            await read_the_close(narrator, plan_hash)
            await cancel_another(narrator, april)

        closes = [one for one in listener.taken if one["kind"] == "run_closed"]
        assert {listener.tries[one["id"]] for one in closes} == {3}


def write_sources(folder: Path) -> tuple[Path, Path, Path]:
    """Write whom Stripe knows, and two months: people who pay, and two lines that no run can charge."""
    rows = [
        f"cus_story_{n},{'eur' if n % 4 == 0 else 'usd'},{n}.25,pm_card_visa_story_{n}"
        for n in range(1, PAYING + 1)
    ]
    odd = ["cus_story_1,usd,0.00,pm_card_visa_story_1,free", "cus_stranger,usd,5.00,,base"]
    header = "customer,currency,amount,payment_method,line"
    known, march, april = folder / "known.csv", folder / "march.csv", folder / "april.csv"
    known.write_text("\n".join([header, *(f"{row},base" for row in rows)]) + "\n")
    march.write_text("\n".join([header, *(f"{row},base" for row in rows), *odd]) + "\n")
    april.write_text("\n".join([header, *(f"{row},base" for row in rows[:80])]) + "\n")
    return known, march, april


async def preview_and_approve(narrator: Narrator, source: Path) -> str:
    """Look, start, wait, approve; return the hash of the plan."""
    narrator.tell("Before anything starts, somebody looks at what the month would charge.")
    previewed = await narrator.types(f"run start --period 2031-03 --source {source} --preview")
    plan_hash: str = previewed["plan_hash"]
    assert previewed["totals"]["usd"]["lines"] + previewed["totals"]["eur"]["lines"] == PAYING
    assert {"zero_amount", "customer_missing"} <= set(previewed["skipped"])

    narrator.tell("It is started without an approval: it plans, and waits. Nobody is charged yet.")
    started = await narrator.types(f"run start --period 2031-03 --source {source} --canary {CANARY}")
    assert started["phase"] == "planned"
    assert started["plan_hash"] == plan_hash  # preview and run share one path
    shown = await narrator.looks_at(RUN)
    assert shown["succeeded"] == 0

    narrator.tell("An approval names the plan it is for. That of another plan is refused.")
    stale = "0" * 64
    refused = await narrator.types(
        f"run approve {RUN} --hash {stale} --reason 'last week it was right'", exit_code=4
    )
    assert stale in refused["error"]
    assert plan_hash in refused["error"]
    await narrator.types(f"run approve {RUN} --hash {plan_hash} --who finance@desk --reason 'sums are right'")
    return plan_hash


async def look_at_the_canary(narrator: Narrator) -> None:
    """Let the first lines go alone, and release the rest."""
    shown = await narrator.waits_until(
        RUN, f"the first {CANARY} lines are charged alone", lambda shown: shown["hold"] == "canary"
    )
    assert shown["succeeded"] == CANARY
    narrator.tell("The canary's lines look right, so it is released.")
    await narrator.types(f"run resume {RUN} --reason 'the first {CANARY} are paid'")


async def pause(narrator: Narrator) -> None:
    """Stop starting anything, and see that what was in flight is finished."""
    await narrator.waits_until(RUN, "it charges on", lambda shown: shown["succeeded"] > CANARY)
    narrator.tell("Support asks for a break: what is in flight is finished, nothing new starts.")
    await narrator.types(f"run pause {RUN} --reason 'support is called about it'")
    paused = await narrator.waits_until(RUN, "what was in flight settles", lambda shown: not shown["unknown"])
    assert paused["not_started"] > 0
    again = await narrator.looks_at(RUN)
    assert again["succeeded"] == paused["succeeded"]


async def go_on_with_version_2(narrator: Narrator) -> None:
    """Resume under other code than the run began with."""
    before = await narrator.looks_at(RUN)
    narrator.tell("The break is over. The new version goes on where the old one stopped.")
    await narrator.types(f"run resume {RUN} --reason 'all is well'")
    await narrator.waits_until(
        RUN, "it charges on", lambda shown: shown["succeeded"] > before["succeeded"] + 5
    )


async def break_and_mend_credentials(narrator: Narrator, folder: Path) -> None:
    """Let Stripe refuse the key, and mend it."""
    narrator.tell("Somebody rolls the Stripe key too early: every confirm is answered 401.")
    plan = folder / "rolled.json"
    effect = {"kind": "error", "status": 401}
    match = {"path": "^/v1/payment_intents/.*/confirm"}
    plan.write_text(json.dumps({"faults": [{"name": "rolled", "match": match, "effect": effect}]}))
    await narrator.types(f"sim faults set {plan}")
    held = await narrator.waits_until(
        RUN,
        "the breaker opens instead of burning through customers",
        lambda shown: shown["hold"] == "breaker",
    )
    assert "credentials" in held["hold_reason"]
    assert held["refused"] == held["declined"] == 0
    await raise_the_cap(narrator)
    narrator.tell("The key is mended, and somebody says so.")
    await narrator.types("sim faults clear")
    await narrator.types(f"run resume {RUN} --who oncall@desk --reason 'the new key is in place'")


async def raise_the_cap(narrator: Narrator) -> None:
    """Let the run move more than was approved, but never less."""
    narrator.tell("While it is held, its cap is raised for late orders, with a reason. A cap only goes up.")
    await narrator.types(f"run raise-cap {RUN} --cap usd=1.00 --reason 'a slip'", exit_code=4)
    await narrator.types(f"run raise-cap {RUN} --cap usd=99999.00 --who finance@desk --reason 'late orders'")


async def read_the_close(narrator: Narrator, plan_hash: str) -> None:
    """See that everybody is charged once, every decision is on record, and it was announced."""
    await narrator.waits_until(RUN, "the run ends", lambda shown: shown["phase"] == "closed")
    closed = await narrator.looks_at(RUN)
    assert (closed["succeeded"], closed["skipped"]) == (PAYING, 2)
    assert closed["plan_hash"] == plan_hash
    assert {row["reason"] for row in closed["reasons"]} == {"zero_amount", "customer_missing"}
    narrator.tell("Its story: every decision with who, when and why.")
    events = (await narrator.types(f"run events {RUN}"))["events"]
    assert all(event["who"] and event["reason"] for event in events)
    for event in events:
        print(f"    {event['action']}: {event['who']}: {event['reason']}")
    told = [event["action"] for event in events]
    assert told == [
        "planned", "approved", "canary_held", "canary_released", "paused", "resumed", "breaker_opened",
        "cap_raised", "resumed", "closed",
    ]  # fmt: skip
    narrator.tell("What the second version sent says so.")
    story = await narrator.types(f"explain cus_story_{PAYING}/base --run {RUN}")
    assert REASON_OF_VERSION_2 in json.dumps(story)
    narrator.tell("Against Stripe's own books, and by the simulator's:")
    assert (await narrator.types(f"verify {RUN}"))["verify"] == "clean"
    book = await narrator.types("sim book --identity chargeonce_charge")
    assert (book["succeeded"], book["double_charges"]) == (PAYING, [])

    narrator.tell("The close was announced. Its receiver was down twice, and the run did not wait for it.")
    delivered = await announced(narrator, "run_closed")
    print(f"    {delivered['kind']} to {delivered['destination']}: delivered at try {delivered['tries']}")
    assert delivered["tries"] == 3


async def announced(narrator: Narrator, kind: str) -> Document:
    """Wait until the run's newest notification of a kind is delivered, and return it."""

    async def look() -> Document | None:
        rows = (await narrator.types(f"notifications list --run {RUN}"))["notifications"]
        wanted = [row for row in rows if row["kind"] == kind]
        return wanted[0] if wanted and wanted[0]["state"] == "delivered" else None

    return await until(look, f"{kind} is announced")


async def cancel_another(narrator: Narrator, source: Path) -> None:
    """Stop a second run halfway: what is paid stays paid, what is open is canceled at Stripe."""
    narrator.tell("A second month is started from the wrong file, and is stopped safely halfway.")
    await narrator.types(f"run start --period 2031-04 --source {source} --yes")
    await narrator.waits_until(SECOND, "it charges", lambda shown: shown["succeeded"] > 0)
    await narrator.types(f"run cancel {SECOND} --who finance@desk --reason 'wrong price list'")
    closed = await narrator.waits_until(SECOND, "it ends", lambda shown: shown["phase"] == "closed")
    assert closed["canceled"] > 0
    assert closed["succeeded"] + closed["canceled"] == closed["lines"]
    assert (await narrator.types(f"verify {SECOND}"))["verify"] == "clean"
    book = await narrator.types("sim book --identity chargeonce_charge")
    assert book["double_charges"] == []
    assert book["succeeded"] == PAYING + closed["succeeded"]
