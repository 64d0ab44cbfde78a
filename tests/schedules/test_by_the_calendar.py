"""Schedules, sweep and backfill as somebody types them, against a whole stack of processes."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from deploy.stack_info import load_stack
from tests.conftest import drive
from tests.processes.test_cli_with_stack import Terminal
from worker.schedules.missed import GRACE
from worker.schedules.temporal_schedules import schedule_id_of
from workflows.domain.calendar import BillingCalendar
from workflows.domain.periods import PeriodKind

pytestmark = pytest.mark.timeout(300)

ACCOUNT, ZONE = "acct_sim", "Europe/Berlin"
CUSTOMERS = 5
DEADLINE_SECONDS = 90.0


def months_back(count: int) -> str:
    """Return the label of the month whose firing is the newest that could be missed, or of one before it."""
    calendar = BillingCalendar(zone=ZONE, every=PeriodKind.MONTH, since="2020-01")
    *_, newest = calendar.firings_until(datetime.now(UTC) - GRACE)
    return str(newest.period.shifted(1 - count))


@pytest.fixture(scope="module")
def exports(terminal: Terminal) -> Path:
    """A folder with a source for each of six months, whose customers the simulator knows."""
    folder = terminal.home / "exports"
    folder.mkdir()
    for count in range(1, 7):
        write(folder, months_back(count), CUSTOMERS, cents=count)
    assert terminal.type_json("sim", "seed", str(folder / f"{months_back(1)}.csv"))[0] == 0
    write(folder, "everybody", CUSTOMERS + 1, cents=0)
    assert terminal.type_json("sim", "seed", str(folder / "everybody.csv"))[0] == 0
    return folder


def write(folder: Path, period: str, customers: int, *, cents: int) -> None:
    """Write the source of a period: customer n owes n dollars and some cents."""
    rows = (f"cus_t{n},usd,{n}.{cents:02d},pm_card_visa_t{n}\n" for n in range(1, customers + 1))
    (folder / f"{period}.csv").write_text("customer,currency,amount,payment_method\n" + "".join(rows))


def write_schedules(folder: Path, **keys: str | int) -> Path:
    """Write a file of one schedule."""
    told = {"name": "monthly", "account": ACCOUNT, "zone": ZONE, "source": "exports/{period}.csv"} | keys
    path = folder / "schedules.toml"
    path.write_text(
        "\n".join(["[[schedule]]", *(f"{key} = {json.dumps(value)}" for key, value in told.items())])
    )
    return path


def run_of(period: str) -> str:
    """Return the id of the first run of a period."""
    return f"billing-run/{ACCOUNT}/{period}"


def closed(terminal: Terminal, run: str) -> dict[str, Any]:
    """Show a run until it has closed, and return it."""
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        exit_code, shown = terminal.type_json("run", "show", run)
        if exit_code == 0 and shown["phase"] == "closed":
            return shown
    raise AssertionError(f"{run} has not closed: {shown}")


def test_the_sweep_finds_what_was_missed_and_starts_what_is_decided(
    terminal: Terminal, exports: Path
) -> None:
    """Three months were missed: one is waived, one billed by its hash, one by policy; then none is left."""
    third, second, first = (months_back(count) for count in (3, 2, 1))
    file = write_schedules(exports.parent, every="month", since=third, approve="any")
    sweep = ("schedule", "sweep", "--file", str(file))
    exit_code, found = terminal.type_json(*sweep)
    assert exit_code == 1
    assert [(one["period"], one["outcome"]) for one in found["missed"]] == [
        (period, "undecided") for period in (third, second, first)
    ]
    labels = {period: f"monthly {period}" for period in (third, second, first)}
    largest = found["customers"][0]
    assert largest["customer"] == f"cus_t{CUSTOMERS}"
    assert largest["periods"] == {labels[third]: 503, labels[second]: 502, labels[first]: 501}
    assert largest["amount_minor"] == 503 + 502 + 501
    assert found["totals"]["usd"]["lines"] == 3 * CUSTOMERS
    hashes = {one["period"]: one["plan_hash"] for one in found["missed"]}

    assert terminal.type_json(*sweep, "--yes", "2001-01")[0] == 2
    assert terminal.type_json(*sweep, "--waive", third)[0] == 2
    decided = ("--yes", f"{second}={hashes[second]}", "--waive", third, "--reason", "billed by hand")
    exit_code, swept = terminal.type_json(*sweep, *decided)
    assert exit_code == 1
    assert [(one["period"], one["outcome"], one["run"]) for one in swept["missed"]] == [
        (third, "waived", None), (second, "started", run_of(second)), (first, "undecided", None),
    ]  # fmt: skip
    assert closed(terminal, run_of(second))["succeeded"] == CUSTOMERS

    exit_code, swept = terminal.type_json(*sweep, "--policy", "all")
    assert (exit_code, [one["outcome"] for one in swept["missed"]]) == (0, ["started"])
    assert closed(terminal, run_of(first))["succeeded"] == CUSTOMERS
    assert terminal.type_json(*sweep)[1]["missed"] == []


def test_the_latest_policy_waives_what_is_older(terminal: Terminal, exports: Path) -> None:
    """Of several missed months only the newest is billed, and nobody is asked about the others again."""
    older, newest = months_back(5), months_back(4)
    file = write_schedules(
        exports.parent, every="month", since=older, until=newest, approve="any", missed="latest"
    )
    exit_code, swept = terminal.type_json("schedule", "sweep", "--file", str(file))
    assert exit_code == 0
    assert [(one["period"], one["outcome"]) for one in swept["missed"]] == [
        (older, "waived"),
        (newest, "started"),
    ]
    assert closed(terminal, run_of(newest))["succeeded"] == CUSTOMERS
    assert terminal.type_json("schedule", "sweep", "--file", str(file))[1]["missed"] == []


def test_a_backfill_is_approved_as_a_whole_and_charges_only_what_is_missing(
    terminal: Terminal, exports: Path
) -> None:
    """Two months, one of them billed before with one customer less: nobody is charged again."""
    old, billed = months_back(6), months_back(4)
    write(exports, billed, CUSTOMERS + 1, cents=4)
    skipped = months_back(5)  # waived by a sweep: a person may bill it all the same
    words = ("backfill", "--from", old, "--to", billed, "--source", str(exports / "{period}.csv"))
    exit_code, preview = terminal.type_json(*words, "--preview", "--customers", str(exports / "amounts.csv"))
    assert (exit_code, preview["nothing_due"]) == (0, [])
    assert list(preview["waived"]) == [skipped]
    exit_code, refused = terminal.type_json(*words, "--yes")
    assert (exit_code, list(refused["waived"])) == (4, [skipped])
    assert f"{skipped} was waived by" in refused["error"]
    lines = {period: plan["lines"] for period, plan in preview["plans"].items()}
    assert lines == {old: CUSTOMERS, skipped: CUSTOMERS, billed: 1}
    by_customer = {one["customer"]: one["periods"] for one in preview["customers"]}
    assert by_customer["cus_t2"] == {old: 206, skipped: 205}
    assert by_customer[f"cus_t{CUSTOMERS + 1}"] == {billed: 604}
    assert len((exports / "amounts.csv").read_text().splitlines()) == CUSTOMERS + 2

    assert terminal.type_json(*words)[0] == 2
    exit_code, refused = terminal.type_json(*words, "--approve", "3f2a9c")
    assert exit_code == 4
    assert preview["hash"] in refused["error"]
    exit_code, done = terminal.type_json(*words, "--approve", preview["hash"])
    assert exit_code == 0, done
    assert [(run["run"], run["phase"], run["succeeded"]) for run in done["runs"]] == [
        (run_of(old), "closed", CUSTOMERS),
        (run_of(skipped), "closed", CUSTOMERS),
        (f"{run_of(billed)}/r2", "closed", 1),
    ]
    exit_code, again = terminal.type_json(*words, "--yes")
    assert (exit_code, again["nothing_due"]) == (0, [old, skipped, billed])
    exit_code, book = terminal.type_json("sim", "book", "--identity", "chargeonce_charge")
    assert (exit_code, book["double_charges"]) == (0, [])
    assert terminal.type_json("verify", f"{run_of(billed)}/r2")[1]["verify"] == "clean"


def test_a_backfill_over_one_source_is_refused(terminal: Terminal, exports: Path) -> None:
    """A source that is the same for every period would bill its lines several times."""
    source = str(exports / "everybody.csv")
    exit_code, refused = terminal.type_json(
        "backfill", "--from", "2026-01", "--to", "2026-02", "--source", source
    )
    assert exit_code == 2
    assert "{period}" in refused["error"]
    words = ("backfill", "--from", "2026-02", "--to", "2026-01", "--source", str(exports / "{period}.csv"))
    assert terminal.type_json(*words)[0] == 2


def test_somebody_at_a_terminal_is_asked_period_by_period(terminal: Terminal, exports: Path) -> None:
    """No leaves the quarter undecided and its run unmade; yes bills the plan that was on the screen."""
    calendar = BillingCalendar(zone=ZONE, every=PeriodKind.QUARTER, since="2020-Q1")
    *_, newest = calendar.firings_until(datetime.now(UTC) - GRACE)
    quarter = str(newest.period)
    write(exports, quarter, CUSTOMERS, cents=75)
    file = write_schedules(exports.parent, name="quarterly", every="quarter", since=quarter, until=quarter)
    sweep = ("schedule", "sweep", "--file", str(file))
    exit_code, seen = terminal.answer("n\n", *sweep)
    assert exit_code == 1
    assert f"quarterly {quarter}: charge {CUSTOMERS} lines of 18.75 USD now?" in seen
    assert terminal.type_json("run", "show", run_of(quarter))[0] == 4
    exit_code, seen = terminal.answer("y\n", *sweep)
    assert exit_code == 0, seen
    assert closed(terminal, run_of(quarter))["succeeded"] == CUSTOMERS

    words = ("backfill", "--from", "x-setup", "--to", "x-setup", "--source", str(exports / f"{quarter}.csv"))
    exit_code, seen = terminal.answer("n\n", *words)
    assert exit_code == 2
    assert f"Charge {CUSTOMERS} lines of 18.75 USD in all for 1 period?" in seen
    assert terminal.type_json("run", "show", run_of("x-setup"))[0] == 4
    assert terminal.answer("y\n", *words)[0] == 0
    assert closed(terminal, run_of("x-setup"))["succeeded"] == CUSTOMERS


def test_a_schedule_fires_by_itself_and_is_listed_paused_and_resumed(
    terminal: Terminal, exports: Path
) -> None:
    """Temporal fires when the file says, the launcher names the day that ended, and its run bills it."""
    fires = datetime.now(UTC) + timedelta(seconds=15)
    day = str((fires - timedelta(days=1)).date())
    write(exports, day, CUSTOMERS, cents=50)
    file = write_schedules(
        exports.parent,
        name="daily",
        every="day",
        zone="UTC",
        since=day,
        at=f"{fires:%H:%M:%S}",
        approve="any",
    )
    exit_code, synced = terminal.type_json("schedule", "sync", "--file", str(file))
    assert (exit_code, synced["changed"]) == (0, 1)
    assert terminal.type_json("schedule", "sync", "--file", str(file))[1]["changed"] == 0
    shown = closed(terminal, run_of(day))
    assert (shown["succeeded"], shown["started_by"]) == (CUSTOMERS, "schedule daily")
    assert datetime.fromisoformat(shown["locked_at"]) >= fires.replace(microsecond=0)

    pause = ("schedule", "pause", "daily", "--reason", "prices change", "--who", "ops@desk")
    assert terminal.type_json(*pause)[0] == 0
    assert terminal.type_json("schedule", "sync", "--file", str(file))[1]["schedules"][0]["paused"]
    exit_code, listed = terminal.type_json("schedule", "list")
    [daily] = listed["schedules"]
    assert (exit_code, daily["name"], daily["paused"], daily["next"]) == (0, "daily", True, None)
    assert daily["note"] == "paused by ops@desk: prices change"
    assert terminal.type_json("schedule", "resume", "daily", "--reason", "prices are in")[0] == 0
    assert terminal.type_json("schedule", "pause", "nobody", "--reason", "x")[0] == 4


def test_a_preview_needs_nothing_but_the_file(tmp_path: Path) -> None:
    """The next 24 firings with offset and period, across both clock changes, without a stack."""
    file = write_schedules(tmp_path, every="month", since="2031-01", at="02:30", anchor=31)
    exit_code, previewed = Terminal(tmp_path).type_json(
        "schedule", "preview", "--file", str(file), "--after", "2031-01-01"
    )
    assert exit_code == 0
    [monthly] = previewed["schedules"]
    firings = monthly["firings"]
    assert len(firings) == 24
    assert [(one["local"][:16], one["utc_offset"], one["period"]) for one in firings[:3]] == [
        ("2031-02-28T02:30", "+01:00", "2031-01"),
        ("2031-03-31T02:30", "+02:00", "2031-02"),
        ("2031-04-30T02:30", "+02:00", "2031-03"),
    ]
    assert "buffer all" in monthly["overlap"]


def test_a_preview_tells_what_a_comparison_looks_back_on(tmp_path: Path) -> None:
    """Each firing of a [[reconcile]] is shown with its offset, and the moment from which it compares."""
    file = tmp_path / "schedules.toml"
    file.write_text(
        '[[reconcile]]\nname = "nightly"\naccount = "acct_sim"\nzone = "Europe/Berlin"\nlook_back_days = 2\n'
    )
    words = ("schedule", "preview", "--file", str(file), "--after", "2031-03-29T12:00", "--count", "2")
    exit_code, previewed = Terminal(tmp_path).type_json(*words, "--schedule", "nightly")
    assert (exit_code, previewed["schedules"]) == (0, [])
    [nightly] = previewed["reconciles"]
    assert (nightly["look_back_days"], nightly["repair"]) == (2, False)
    assert [(one["local"][:16], one["utc_offset"], one["since"][:16]) for one in nightly["firings"]] == [
        ("2031-03-30T05:00", "+02:00", "2031-03-28T03:00"),
        ("2031-03-31T05:00", "+02:00", "2031-03-29T03:00"),
    ]
    assert Terminal(tmp_path).type_json(*words, "--schedule", "nobody")[0] == 2


def test_a_comparison_by_the_calendar_is_started(terminal: Terminal, exports: Path) -> None:
    """A sync makes it, the list says what it starts, and a firing has the account compared with Stripe."""
    file = exports / "nightly.toml"
    file.write_text(
        f'[[reconcile]]\nname = "nightly"\naccount = "{ACCOUNT}"\nzone = "{ZONE}"\nlook_back_days = 30\n'
    )
    exit_code, synced = terminal.type_json("schedule", "sync", "--file", str(file))
    assert (exit_code, synced["schedules"][0]["change"]) == (0, "created")
    until = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        _, listed = terminal.type_json("schedule", "list")
        rows = {one["name"]: one for one in listed["schedules"]}
        if "nightly" in rows:
            break
    assert (rows["nightly"]["starts"], rows["nightly"]["look_back_days"]) == ("reconciliation", 30)
    trigger(terminal, "nightly")
    while time.monotonic() < until:
        _, kept = terminal.type_json("reconcile", "list")
        done = [
            one for one in kept["reconciliations"] if one["who"] == "schedule nightly" and one["closed_at"]
        ]
        if done:
            break
    else:
        pytest.fail("the schedule has started no reconciliation that ended")
    assert (done[0]["account"], done[0]["repair"], done[0]["open"]) == (ACCOUNT, False, {})
    file.write_text("")
    assert terminal.type_json("schedule", "sync", "--file", str(file))[0] == 0


def trigger(terminal: Terminal, schedule: str) -> None:
    """Let a schedule fire now."""
    stack = load_stack(terminal.home)
    assert stack is not None

    async def fire() -> None:
        client = await Client.connect(stack.temporal_address)
        await client.get_schedule_handle(schedule_id_of(schedule)).trigger()

    drive(fire())
