import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities import double_charges, stripe_pages
from activities.accounts import AccountParts
from activities.close_report import Closer, held_periods
from activities.double_charges import find_double_charges
from activities.gateway.requests import StripeAccount
from activities.ledger.closing import close_with_report
from activities.ledger.runs import RunLedger
from activities.limiter import Endpoint
from activities.vault import READING
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, RUN, Books, charge_id_of, open_books
from tests.activities.local_limiter import LocalLimiter
from workflows.contracts import RunKey
from workflows.domain.errors import InvariantViolation, RefusedToStart, StaleWrite

KEY = RunKey(run_id=RUN, account=ACCOUNT)
NOON = datetime(2031, 3, 1, 12, tzinfo=UTC)


class CountingLimiter(LocalLimiter):
    """A limiter that counts the requests it lets go."""

    def __init__(self) -> None:
        super().__init__(10_000.0)
        self.let_go = 0

    async def acquire(self, endpoint: Endpoint) -> None:
        """Count, and let go."""
        assert endpoint is Endpoint.LIST
        self.let_go += 1


@dataclass
class OneAccount:
    """The accounts of a process that has one, or has no credentials at all."""

    books: Books
    refused: str | None = None
    limiter: CountingLimiter = field(default_factory=CountingLimiter)

    async def of(self, run: RunKey, use: object) -> AccountParts:
        """Return what works for the account."""
        assert use is READING
        if self.refused is not None:
            raise RefusedToStart(self.refused)
        return AccountParts(
            account=StripeAccount(run.account, connected=False),
            gateway=self.books.gateway,
            limiter=self.limiter,
            places=asyncio.Semaphore(),
            requests_at_once=1,
            slices=asyncio.Semaphore(),
        )


def closer(books: Books, **options: Any) -> Closer:
    """Return what closes runs of these books."""
    return Closer(books.pool, RunLedger(books.pool), OneAccount(books, **options))  # type: ignore[arg-type]


async def report_of(books: Books) -> dict[str, Any]:
    """Return the report that the ledger has kept."""
    found = await books.pool.fetchval("SELECT report FROM billing_runs WHERE run_id = $1", RUN)
    assert isinstance(found, dict)
    return found


async def note(books: Books, action: str, *, reason: str = "because", **detail: Any) -> None:
    """Append a decision to the run's audit trail."""
    await books.pool.execute(
        "INSERT INTO run_events (run_id, at, action, who, reason, detail)"
        " VALUES ($1, ledger_now(), $2, 'somebody', $3, $4)",
        RUN, action, reason, detail,
    )  # fmt: skip


@pytest.fixture
async def books(database: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Books]:
    """A run that is through but for its close; Stripe's failures are not waited out for long."""
    monkeypatch.setattr(stripe_pages, "FIRST_PAUSE_SECONDS", 0.001)
    async with open_books(database) as opened:
        await opened.open_run()
        yield opened


async def test_the_report_adds_up(database: Database, books: Books) -> None:
    """Counts are those that the close freezes, and money is told by currency and state."""
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
    debit = await books.pay("cus_2", card="pm_usBankAccount_success")
    await books.owe("cus_2", "processing", payment_intent=debit)
    await books.owe("cus_3", "declined", amount_minor=700)
    await books.owe("cus_4", "skipped", amount_minor=0)
    await books.plan_total(database, 3, 3_200, 3_520)
    await books.pool.execute("UPDATE charges SET create_version = 1")
    run = await closer(books).close(KEY)
    report = await report_of(books)
    assert run.phase == "closed"
    assert report["counts"] == {name: lines for name, lines in (run.counts or {}).items() if lines}
    assert report["counts"] == {"succeeded": 1, "processing": 1, "declined": 1, "skipped": 1}
    assert sum(report["counts"].values()) == report["selected"] == 4
    total = report["totals"]["usd"]
    assert (total["planned_minor"], total["cap_minor"], total["moved_minor"]) == (3_200, 3_520, 2_500)
    assert total["by_state"]["declined"] == {"lines": 1, "amount_minor": 700}
    assert report["double_charges"]["verdict"] == "clean"


async def test_a_line_that_was_taken_over_stays_in_the_report(books: Books) -> None:
    """What a later run has taken is counted in the earlier one's report, with its money."""
    await books.open_run("closed", run_id="later")
    taken = await books.owe("cus_1", "declined", run_id="later")
    await books.pool.execute(
        "INSERT INTO takeovers (charge_id, from_run, to_run, at, reason, from_state, currency, amount_minor)"
        " VALUES ($1, $2, 'later', ledger_now(), 'test', 'canceled', 'usd', 1250)",
        taken, RUN,
    )  # fmt: skip
    await books.pool.execute("UPDATE billing_runs SET selected = 1 WHERE run_id = $1", RUN)
    await closer(books).close(KEY)
    report = await report_of(books)
    assert report["counts"] == {"taken_over": 1}
    assert report["totals"]["usd"]["by_state"] == {"taken_over": {"lines": 1, "amount_minor": 1_250}}


async def test_a_double_charge_is_found_and_the_run_closes(books: Books) -> None:
    """Two paid PaymentIntents of one line are named; one that was only prepared is none of them."""
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1", version=1))
    second = await books.pay("cus_1", version=2)
    await books.owe("cus_2", "succeeded", payment_intent=await books.pay("cus_2"))
    await books.prepare("cus_2", version=2)
    await books.pool.execute("UPDATE charges SET create_version = 1")
    run = await closer(books).close(KEY)
    found = (await report_of(books))["double_charges"]
    assert run.phase == "closed"
    assert (found["verdict"], found["found"], found["surprises"]) == ("found", 1, 0)
    assert list(found["charges"]) == [charge_id_of("cus_1")]
    assert second in found["charges"][charge_id_of("cus_1")]
    assert len(found["charges"][charge_id_of("cus_1")]) == 2


async def test_what_is_paid_otherwise_than_the_ledger_says_is_a_surprise(books: Books) -> None:
    """A declined line that is paid once at Stripe is no double charge, and is not hidden either."""
    await books.owe("cus_1", "declined", payment_intent=await books.pay("cus_1"))
    await books.pool.execute("UPDATE charges SET create_version = 1")
    await closer(books).close(KEY)
    found = (await report_of(books))["double_charges"]
    assert (found["verdict"], found["surprises"]) == ("clean", 1)


async def test_a_check_that_is_not_answered_is_told_and_holds_nothing_up(books: Books) -> None:
    """Stripe answers 500 again and again: after a few tries the run closes, and the report says why."""
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
    await books.pool.execute("UPDATE charges SET create_version = 1")
    books.sim.set_faults(
        {"name": "down", "effect": {"kind": "error", "status": 500}, "match": {"method": "GET"}}
    )
    before = len(books.sim.requests)
    run = await closer(books).close(KEY)
    found = (await report_of(books))["double_charges"]
    assert run.phase == "closed"
    assert found["verdict"] == "not_checked"
    assert "HTTP 500" in found["not_checked"]
    assert len(books.sim.requests) - before == 1 + stripe_pages.RETRIES_PER_REQUEST


async def test_a_worker_without_credentials_closes_unchecked(books: Books) -> None:
    """Who can't ask Stripe about this account says so in the report."""
    await books.owe("cus_1", "skipped")
    run = await closer(books, refused="no credentials for acct_sim").close(KEY)
    assert run.phase == "closed"
    assert (await report_of(books))["double_charges"]["not_checked"] == "no credentials for acct_sim"


async def test_the_check_has_an_end(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that take for ever are not waited for: the time is bounded, and the report says so."""
    monkeypatch.setattr(double_charges, "CHECK_SECONDS_MAX", 0.05)
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
    await books.pool.execute("UPDATE charges SET create_version = 1")
    books.sim.set_faults(
        {"name": "slow", "effect": {"kind": "delay", "seconds": 5}, "match": {"method": "GET"}}
    )
    found = await find_double_charges(
        books.pool, books.gateway, CountingLimiter(), StripeAccount(ACCOUNT, connected=False), RUN
    )
    assert found.verdict == "not_checked"
    assert "not through" in str(found.not_checked)


async def test_the_customers_are_listed_where_the_account_has_other_business(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan that needs more pages than there are customers is given up; each request waits for its turn."""
    monkeypatch.setattr(double_charges, "PAGES_MIN", 1)
    await books.owe("cus_1", "succeeded", payment_intent=await books.pay("cus_1"))
    await books.pay("cus_1", version=2)
    await books.pool.execute("UPDATE charges SET create_version = 1")
    for number in range(120):
        await books.prepare(f"cus_other_{number}", identity="0" * 32)
    limiter = CountingLimiter()
    found = await find_double_charges(
        books.pool, books.gateway, limiter, StripeAccount(ACCOUNT, connected=False), RUN
    )
    assert (found.verdict, found.how) == ("found", "the customers, one by one")
    assert found.requests == limiter.let_go == 2


async def test_nothing_is_asked_where_nothing_was_sent(books: Books) -> None:
    """A run whose lines were all skipped costs no request."""
    await books.owe("cus_1", "skipped")
    before = len(books.sim.requests)
    await closer(books).close(KEY)
    assert len(books.sim.requests) == before
    assert (await report_of(books))["double_charges"]["verdict"] == "clean"


async def test_an_open_charge_is_noticed_before_stripe_is_asked(books: Books) -> None:
    """A run that is not through stays open, and costs no request."""
    await books.owe("cus_1", "confirming")
    before = len(books.sim.requests)
    with pytest.raises(StaleWrite, match="open charges"):
        await closer(books).close(KEY)
    assert len(books.sim.requests) == before
    assert await books.pool.fetchval("SELECT report FROM billing_runs") is None


async def test_closing_again_changes_nothing(books: Books) -> None:
    """An attempt that lost its answer finds the run closed: one report, one event, nothing asked again."""
    await books.owe("cus_1", "skipped")
    first = await closer(books).close(KEY)
    report = await report_of(books)
    assert await closer(books, refused="must not be asked").close(KEY) == first
    assert await close_with_report(books.pool, RUN, lambda _facts: {}) == first
    assert await report_of(books) == report
    assert await books.pool.fetchval("SELECT count(*) FROM run_events WHERE action = 'closed'") == 1


async def test_a_count_that_is_missing_is_never_closed_over(books: Books) -> None:
    """A selected line that is nowhere stops the close (I9), and no report is kept."""
    await books.owe("cus_1", "skipped")
    await books.pool.execute("UPDATE billing_runs SET selected = 2")
    with pytest.raises(InvariantViolation, match="1 of 2 lines"):
        await closer(books).close(KEY)
    row = await books.pool.fetchrow("SELECT phase, report FROM billing_runs")
    assert row is not None
    assert (row["phase"], row["report"]) == ("settling", None)


@pytest.mark.parametrize(("limit_seconds", "within"), [(3_600.0, True), (1.0, False), (None, None)])
async def test_the_time_it_took_is_told_beside_its_limit(
    books: Books,
    limit_seconds: float | None,
    within: bool | None,  # noqa: FBT001 - a table's column
) -> None:
    """From approval to close, by the ledger's clock, against the limit of the request and the estimate."""
    await books.owe("cus_1", "skipped")
    await books.pool.execute(
        "UPDATE billing_runs SET request = $1, locked_at = locked_at - interval '2 minutes',"
        " planned_at = planned_at - interval '90 seconds', approved_at = approved_at - interval '1 minute'",
        {"duration_limit_seconds": limit_seconds},
    )
    await note(books, "planned", charge_seconds=40.0)
    await closer(books).close(KEY)
    told = (await report_of(books))["durations"]
    assert told["planning_seconds"] == pytest.approx(30, abs=0.5)
    assert told["approval_seconds"] == pytest.approx(30, abs=0.5)
    assert told["charging_seconds"] == pytest.approx(60, abs=2)
    assert told["all_seconds"] == pytest.approx(120, abs=2)
    assert told["estimated_charging_seconds"] == 40.0
    assert (told["limit_seconds"], told["within_limit"]) == (limit_seconds, within)


async def test_a_cancel_is_told_with_who_and_why(books: Books) -> None:
    """Whoever reads the report of a canceled run need not look for the audit trail."""
    await books.owe("cus_1", "canceled")
    await note(books, "cancel_requested", reason="wrong prices")
    await closer(books).close(KEY)
    report = await report_of(books)
    assert (report["canceled"]["who"], report["canceled"]["reason"]) == ("somebody", "wrong prices")
    assert report["decisions"] == {"cancel_requested": 1}


def event(minutes: float, action: str, **detail: Any) -> dict[str, Any]:
    """Return one line of an audit trail, so many minutes after noon."""
    at = NOON + timedelta(minutes=minutes)
    return {"at": at, "action": action, "who": "somebody", "reason": f"{action} it is", "detail": detail}


@pytest.mark.parametrize(
    ("events", "held"),
    [
        ([], []),
        ([event(1, "paused"), event(3, "resumed")], [("paused", 2, "resumed")]),
        (
            [event(0, "breaker_opened"), event(1, "breaker_closed"), event(2, "canary_held")],
            [("breaker", 1, "breaker_closed"), ("canary", 8, "closed")],
        ),
        ([event(0, "cap_reached"), event(4, "cap_raised", resumed=True)], [("cap", 4, "cap_raised")]),
        ([event(0, "paused"), event(4, "cap_raised", resumed=False)], [("paused", 10, "closed")]),
        (
            [event(0, "breaker_opened"), event(1, "paused"), event(2, "resumed")],
            [("breaker", 1, "paused"), ("paused", 1, "resumed")],
        ),
        ([event(0, "canary_held"), event(5, "cancel_requested")], [("canary", 5, "cancel_requested")]),
        ([event(0, "canary_released"), event(5, "resumed")], []),
    ],
)
def test_held_periods_are_read_from_the_audit_trail(
    events: list[dict[str, Any]], held: list[tuple[str, float, str]]
) -> None:
    """Each hold has its kind, its minutes and what ended it; a pause on top of a hold is one of its own."""
    found = held_periods(events, NOON + timedelta(minutes=10))
    assert [(one.kind, one.seconds / 60, one.ended_by) for one in found] == held


async def test_a_page_that_fails_is_read_once_in_the_end(books: Books) -> None:
    """A list that breaks off in the middle goes on there: every PaymentIntent is shown, and none twice."""
    ids = {await books.prepare(f"cus_{number}") for number in range(250)}
    books.sim.set_faults(
        {
            "name": "down",
            "effect": {"kind": "error", "status": 500},
            "match": {"method": "GET", "path": "payment_intents$", "only": [2, 4, 5]},
        }
    )
    account = StripeAccount(ACCOUNT, connected=False)
    shown = [
        one.id
        async for page in stripe_pages.read_pages(
            books.gateway, account, customer=None, since_epoch_seconds=0
        )
        for one in page.payment_intents
    ]
    assert len(shown) == len(set(shown))
    assert set(shown) == ids
