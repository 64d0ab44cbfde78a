import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.explain import ChargeStory, EventKind, _name_choices, explain_charge, explain_line
from activities.ledger.story import Candidate, SkippedRow
from activities.next_step import describe_next_step
from deploy.postgres import Database
from tests.activities.books import RUN, Books, open_books
from tests.activities.till_of_books import carry_due, move_clocks
from workflows.domain.errors import InvalidInput

DAY_SECONDS = 24 * 3600


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """Books with one run."""
    async with open_books(database) as opened:
        await opened.open_run()
        yield opened


async def owe_and_charge(books: Books, customer: str = "cus_1") -> str:
    """Let the run charge a customer whose card is good."""
    books.sim.seed(customer, f"pm_card_visa_{customer}")
    charge_id = await books.owe(customer, "planned", payment_method=f"pm_card_visa_{customer}")
    await carry_due(books)
    return charge_id


def kinds(story: ChargeStory) -> list[EventKind]:
    """Return what happened, in order."""
    return [event.kind for event in story.events]


async def test_a_paid_charge_tells_every_key_and_answer_in_order(books: Books) -> None:
    """Planned, then create and confirm: key, send and answer of each, with request ids and ages."""
    charge_id = await owe_and_charge(books)
    story = await explain_charge(books.pool, charge_id)
    step = [EventKind.KEY, EventKind.SENT, EventKind.ANSWERED]
    assert kinds(story) == [EventKind.PLANNED, *step, *step]
    assert (story.state, story.due_at) == ("succeeded", None)
    assert "nothing" in story.next_step
    assert "row 2" in story.events[0].summary
    answers = [event for event in story.events if event.kind is EventKind.ANSWERED]
    assert [answer.details["proved_state"] for answer in answers] == ["prepared", "succeeded"]
    for answer in answers:
        assert answer.details["request_id"] in answer.summary
    shown = json.loads(json.dumps(story.as_json()))
    assert shown["events"][2]["key"] == f"create_{charge_id}_v1"
    assert shown["events"][2]["key_age_seconds"] == 0


async def test_a_rekeyed_charge_says_why_and_how_old_the_key_was(database: Database, books: Books) -> None:
    """A confirm that Stripe keeps answering with a stored 500 ends at version 2, and the story says why."""
    books.sim.set_faults(
        {
            "name": "stored",
            "match": {"path": "confirm$", "times": 1},
            "effect": {"kind": "error", "stored": True},
        }
    )
    charge_id = await owe_and_charge(books)
    waiting = await explain_charge(books.pool, charge_id)
    assert waiting.state == "confirming"
    assert waiting.due_at is not None
    assert waiting.due_at > waiting.now
    await move_clocks(database, books, seconds=DAY_SECONDS + 60)
    await carry_due(books)
    story = await explain_charge(books.pool, charge_id)
    assert story.state == "succeeded"
    keys = [event.details["key"] for event in story.events if event.kind is EventKind.KEY]
    assert keys[-2:] == [f"confirm_{charge_id}_v1", f"confirm_{charge_id}_v2"]
    rekeyed = next(event for event in story.events if event.details.get("key") == keys[-1])
    assert "window" in rekeyed.summary
    assert any(event.kind is EventKind.DECIDED for event in story.events)
    assert list(story.events) == sorted(story.events, key=lambda event: event.at)


async def test_a_send_without_an_answer_is_told_as_such(books: Books) -> None:
    """An intent whose answer was never recorded is part of the story (I7)."""
    charge_id = await owe_and_charge(books)
    await books.pool.execute(
        "UPDATE attempts SET answered_at = NULL, proof = NULL WHERE key = $1", f"confirm_{charge_id}_v1"
    )
    story = await explain_charge(books.pool, charge_id)
    assert kinds(story)[-1] is EventKind.SENT
    assert "no answer" in story.events[-1].summary


async def test_a_takeover_begins_with_the_earlier_run(books: Books) -> None:
    """A charge that was taken over tells first which run planned it."""
    await books.open_run("closed", run_id="billing-run/acct_sim/2031-03/r0")
    charge_id = await books.owe("cus_1", "planned")
    await books.pool.execute(
        "INSERT INTO takeovers VALUES ($1, $2, $3, ledger_now(), 'declined for good')",
        charge_id, "billing-run/acct_sim/2031-03/r0", RUN,
    )  # fmt: skip
    story = await explain_charge(books.pool, charge_id)
    assert kinds(story) == [EventKind.PLANNED, EventKind.TAKEN_OVER]
    assert "/r0" in story.events[0].summary
    # Who looks for it in the run that had it finds it, where it is now.
    earlier = await explain_charge(books.pool, "cus_1/base", run_id="billing-run/acct_sim/2031-03/r0")
    assert (earlier.charge_id, earlier.run_id) == (charge_id, RUN)


async def test_a_skipped_line_says_why(books: Books) -> None:
    """The reason stands in the story, and a row that became no charge is found by its customer."""
    charge_id = await books.owe("cus_1", "skipped")
    await books.pool.execute("UPDATE charges SET reason = 'zero_amount' WHERE charge_id = $1", charge_id)
    story = await explain_charge(books.pool, charge_id)
    assert kinds(story) == [EventKind.SKIPPED]
    assert "not to be charged (zero_amount)" in story.events[0].summary
    await books.pool.execute(
        "INSERT INTO skipped_rows VALUES ($1, 9, 'cus_9', 'base', 'already_charged', 'by run r1')", RUN
    )
    expected = (SkippedRow(RUN, 9, "cus_9", "base", "already_charged", "by run r1"),)
    for name in ("cus_9", "cus_9/base"):
        assert await explain_line(books.pool, name, run_id=RUN) == expected
    with pytest.raises(InvalidInput, match="no charge is called"):
        await explain_line(books.pool, "cus_8")


STANDS: dict[str, Any] = {
    "state": "planned", "phase": "charging", "hold": None, "hold_reason": None, "canceling": False,
    "follow_up": None,
}  # fmt: skip
NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("stands", "said"),
    [
        ({}, "when its slice is worked through"),
        ({"phase": "planned"}, "before somebody approves"),
        ({"hold": "paused", "hold_reason": "a break"}, "held (paused: a break)"),
        ({"hold": "paused", "canceling": True}, "is being canceled"),
        ({"state": "declined"}, "the retry policy says"),
        ({"state": "declined", "phase": "closed"}, "a later run of the period may take it over"),
        (
            {"state": "declined", "phase": "retrying", "follow_up": "retry", "follow_up_due_at": NOON,
             "follow_up_ends_at": NOON},
            "retry policy, next at 2031-03-01 12:00:00",
        ),
        ({"state": "skipped"}, "which never charges it"),
        ({"state": "succeeded"}, "it is paid"),
        ({"state": "needs_customer"}, "the customer has to authenticate"),
    ],
)  # fmt: skip
def test_what_happens_next_is_what_its_run_does(stands: dict[str, Any], said: str) -> None:
    """Nobody is told that a line goes on by itself while its run waits for a person, or that it is lost."""
    assert said in describe_next_step({**STANDS, **stands})


async def test_a_charge_is_found_by_each_of_its_names(books: Books) -> None:
    """The id, a beginning of it, its PaymentIntent, customer/line and the customer alone all name it."""
    charge_id = await owe_and_charge(books)
    story = await explain_charge(books.pool, charge_id)
    assert story.payment_intent is not None
    names = [charge_id, charge_id[:6].upper(), f" {charge_id} ", story.payment_intent, "cus_1/base", "cus_1"]
    for name in names:
        assert (await explain_charge(books.pool, name)).charge_id == charge_id
        assert (await explain_charge(books.pool, name, run_id=RUN)).charge_id == charge_id


@pytest.mark.parametrize(
    "wanted", ["", "abcdef", "abc", "pi_nothing", "cus_1/nothing", "%", "cus_\x1b[2J", "/"]
)
async def test_what_names_no_charge_is_refused(books: Books, wanted: str) -> None:
    """A name that fits nothing is refused in one printable line that says what would fit."""
    await books.owe("cus_1", "planned")
    with pytest.raises(InvalidInput, match=r"digits") as refused:
        await explain_charge(books.pool, wanted)
    assert refused.value.reason.isprintable()


async def test_an_ambiguous_name_lists_the_choices(books: Books) -> None:
    """Where several charges fit, none is guessed, and each is named."""
    first = await books.owe("cus_1", "planned")
    second = await books.owe("cus_1", "skipped", line="extra")
    with pytest.raises(InvalidInput, match="any of 2") as refused:
        await explain_charge(books.pool, "cus_1")
    assert first in refused.value.reason
    assert second in refused.value.reason
    assert "say customer/line, or its id" in refused.value.reason


def test_a_name_in_several_runs_is_told_apart_by_the_run() -> None:
    """Whoever has one customer in two periods is told to say which run is meant."""
    found = [Candidate("ab" * 16, "cus_1", "base", f"2031-0{n}", "succeeded", f"run-{n}") for n in (3, 4)]
    assert "say its run with --run RUN" in _name_choices("cus_1/base", found)


async def test_a_name_counts_only_inside_the_run_that_is_given(books: Books) -> None:
    """With a run, charges of other runs are not meant."""
    await books.open_run("closed", run_id="other")
    await books.owe("cus_1", "planned")
    with pytest.raises(InvalidInput, match="in run other"):
        await explain_charge(books.pool, "cus_1", run_id="other")
