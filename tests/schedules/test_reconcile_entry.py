import tomllib
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from worker.schedules.example import EXAMPLE, RECONCILE_EXAMPLE
from worker.schedules.reconcile_entry import ReconcileEntry
from worker.schedules.schedule_file import parse_file
from worker.schedules.temporal_schedules import desired_of
from worker.settings import Settings
from workflows.contracts import Timing
from workflows.domain.errors import InvalidInput
from workflows.launch_reconcile_contracts import ReconcileOrder

FOLDER = Path("/billing")
LEAST: dict[str, Any] = {"name": "nightly", "account": "acct_1", "zone": "Europe/Berlin"}


def read(**keys: Any) -> ReconcileEntry:
    """Return the one comparison of a file with these keys besides the least."""
    [entry] = parse_file({"reconcile": [LEAST | keys]}, FOLDER, "schedules.toml").reconciles
    return entry


def test_the_example_has_every_key_with_its_default() -> None:
    """What the example leaves commented out is in force without it, and both kinds stand in one file."""
    both = parse_file(tomllib.loads(EXAMPLE + RECONCILE_EXAMPLE), FOLDER, "example")
    [given] = both.reconciles
    assert [entry.name for entry in both.schedules] == ["monthly"]
    keys = [line.removeprefix("# ") for line in RECONCILE_EXAMPLE.splitlines() if " = " in line]
    kept = [key for key in keys if not key.startswith("anchor")]
    [everything] = parse_file(
        tomllib.loads("\n".join(["[[reconcile]]", *kept])), FOLDER, "example"
    ).reconciles
    assert everything == given
    assert {key.split(" =")[0] for key in keys} == set(ReconcileEntry.model_fields)


def test_nothing_is_repaired_unless_the_file_says_so() -> None:
    """The least that can be said compares seven days every morning, and repairs nothing."""
    order = read().order(timing=Timing.TESTS)
    assert (order.look_back_days, order.repair, order.calendar.at_seconds) == (7, False, 5 * 3_600)
    assert read(repair=True, look_back_days=30).order(timing=Timing.TESTS).repair


@pytest.mark.parametrize(
    ("keys", "fires"),
    [
        ({}, ["2031-03-30 03:00", "2031-03-31 03:00"]),  # clocks are moved on the 30th
        ({"every": "week", "anchor": "mon", "at": "06:30"}, ["2031-03-31 04:30", "2031-04-07 04:30"]),
        ({"every": "month", "anchor": "last"}, ["2031-03-31 03:00", "2031-04-30 03:00"]),
    ],
)
def test_it_fires_by_the_accounts_clock(keys: dict[str, Any], fires: list[str]) -> None:
    """A day, week or month begins there, and clock changes move the instant, not the local time."""
    after = datetime(2031, 3, 29, 12, tzinfo=UTC)
    found = islice(read(**keys).calendar().firings_after(after), 2)
    assert [f"{firing.at:%Y-%m-%d %H:%M}" for firing in found] == fires


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"zone": "Berlin"}, "zone: 'Berlin' is no IANA time zone"),
        ({"every": "quarter"}, "every: Input should be 'month', 'week' or 'day'"),
        ({"anchor": 1}, "anchor: days begin at midnight"),
        ({"at": "6 am"}, "at: '6 am' is no time of day"),
        ({"look_back_days": 0}, "look_back_days: Input should be greater than or equal to 1"),
        ({"look_back_days": 400}, "look_back_days: Input should be less than or equal to 366"),
        ({"source": "x.csv"}, "source: Extra inputs are not permitted"),
        ({"account": "a b"}, "account: "),
    ],
)
def test_a_wrong_key_is_named(keys: dict[str, Any], told: str) -> None:
    """The refusal names the entry and the key, and why."""
    with pytest.raises(InvalidInput) as refused:
        read(**keys)
    assert refused.value.reason.startswith("schedules.toml: reconcile 'nightly': ")
    assert told in refused.value.reason


def test_a_name_is_one_schedules_whatever_it_starts() -> None:
    """Temporal has one schedule of a name."""
    billing = {"every": "month", "since": "2031-01", "source": "{period}.csv"}
    with pytest.raises(InvalidInput, match="schedule 'nightly' is there twice"):
        parse_file({"schedule": [LEAST | billing], "reconcile": [LEAST]}, FOLDER, "schedules.toml")
    with pytest.raises(InvalidInput, match="reconcile is no list of tables"):
        parse_file({"reconcile": 1}, FOLDER, "schedules.toml")


def test_temporal_keeps_the_order_and_one_launcher_at_a_time() -> None:
    """What Temporal starts is the launcher, with what the file says."""
    settings = Settings(database_url="postgresql://nobody@localhost/none", task_queue="q")
    desired = desired_of(read(look_back_days=2), settings)
    assert isinstance(desired.order, ReconcileOrder)
    assert desired.schedule_id == "chargeonce/nightly"
    assert desired.order.look_back_days == 2
