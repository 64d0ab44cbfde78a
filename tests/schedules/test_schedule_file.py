import tomllib
from pathlib import Path
from typing import Any

import pytest

from worker.schedules.example import EXAMPLE
from worker.schedules.schedule_file import ScheduleEntry, parse_schedules, read_schedules
from workflows.contracts import BelowMinimum, Timing
from workflows.domain.anchors import Anchor
from workflows.domain.errors import InvalidInput

FOLDER = Path("/billing")
LEAST: dict[str, Any] = {
    "name": "monthly",
    "account": "acct_1",
    "zone": "Europe/Berlin",
    "every": "month",
    "since": "2031-01",
    "source": "{period}.csv",
}


def read(**keys: Any) -> ScheduleEntry:
    """Return the one schedule of a file with these keys besides the least."""
    [entry] = parse_schedules({"schedule": [LEAST | keys]}, FOLDER, "schedules.toml")
    return entry


def test_the_example_is_the_least_with_every_default() -> None:
    """What the example leaves commented out is what is in force without it, and each of it is a key."""
    [given] = parse_schedules(tomllib.loads(EXAMPLE), FOLDER, "example")
    keys = [line.removeprefix("# ") for line in EXAMPLE.splitlines() if " = " in line]
    kept = [key for key in keys if not key.startswith(("canary_max_declined", "retry_policy"))]
    [everything] = parse_schedules(tomllib.loads("\n".join(["[[schedule]]", *kept])), FOLDER, "example")
    assert everything.model_copy(update={"until": None, "approve_within": {}, "anchor": None}) == given
    assert {key.split(" =")[0] for key in keys} == set(ScheduleEntry.model_fields)


def test_an_order_says_what_the_file_says() -> None:
    """Amounts become minor units, paths absolute, anchors days; a plan waits unless the file says no."""
    order = read(
        anchor="last",
        approve_within={"usd": "1200.50", "jpy": "900"},
        below_minimum="carry-forward",
        canary=10,
    ).order(timing=Timing.TESTS, slices_at_once=2)
    assert order.source == "/billing/{period}.csv"
    assert order.approve_within_minor == {"usd": 120_050, "jpy": 900}
    assert order.calendar.anchor == Anchor(month_day=31)
    assert (order.approve_any, order.terms.below_minimum, order.terms.canary.lines) == (
        False, BelowMinimum.CARRY_FORWARD, 10,
    )  # fmt: skip
    assert read(approve="any").order(timing=Timing.TESTS, slices_at_once=2).approve_any
    assert read(every="week", since="2031-W02", anchor="sun").calendar().anchor == Anchor(weekday=7)


@pytest.mark.parametrize(
    ("spec", "absolute"),
    [
        ("a/{period}.csv", "/billing/a/{period}.csv"),
        ("/data/{period}.csv", "/data/{period}.csv"),
        ("~/{period}.csv", "~/{period}.csv"),
        ("csv:{period}", "csv:/billing/{period}"),
        ("sql:billing:due.sql", "sql:billing:/billing/due.sql"),
        ("entry:exports:{period}", "entry:exports:{period}"),
    ],
)
def test_sources_are_relative_to_the_file(spec: str, absolute: str) -> None:
    """A worker has another working directory than whoever syncs."""
    assert read(source=spec).source == absolute


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"zone": "Berlin"}, "zone: 'Berlin' is no IANA time zone"),
        ({"every": "year"}, "every: Input should be 'month', 'quarter', 'week' or 'day'"),
        ({"since": "2031-W01"}, "since: '2031-W01' is no month"),
        ({"since": "2031-1"}, "since: '2031-1' is not a period"),
        ({"until": "2030-12"}, "until: 2030-12 is before 2031-01"),
        ({"anchor": 32}, "anchor: '32' is no day of a month"),
        ({"every": "week", "since": "2031-W01", "anchor": "monday"}, "anchor: 'monday' is no day of a week"),
        ({"every": "day", "since": "2031-01-01", "anchor": 1}, "anchor: days begin at midnight"),
        ({"at": "6 am"}, "at: '6 am' is no time of day"),
        ({"days_after": 28}, "days_after: Input should be less than or equal to 27"),
        ({"source": "all.csv"}, "source: without {period} every period would bill the same lines again"),
        ({"approve": "any", "approve_within": {"usd": "1"}}, 'approve_within: approve = "any"'),
        ({"approve_within": {"usd": "1.234"}}, "approve_within.usd: "),
        ({"catch_up": "soon"}, "is no duration"),
        ({"catch_up": "1s"}, "catch_up: "),
        ({"name": "Monthly run"}, "name: "),
        ({"sources": "x"}, "sources: Extra inputs are not permitted"),
    ],
)  # fmt: skip
def test_a_wrong_key_is_named(keys: dict[str, Any], told: str) -> None:
    """The refusal names schedule and key, and why."""
    with pytest.raises(InvalidInput) as refused:
        read(**keys)
    assert refused.value.reason.startswith("schedules.toml: schedule ")
    assert told in refused.value.reason


def test_every_fault_of_a_file_is_named_at_once() -> None:
    """Whoever mends a file is not told of one fault after another."""
    with pytest.raises(InvalidInput) as refused:
        parse_schedules(
            {
                "schedule": [LEAST | {"zone": "Nowhere"}, LEAST | {"name": "b", "at": "x"}, LEAST, LEAST],
                "x": 1,
            },
            FOLDER,
            "schedules.toml",
        )
    for told in ("Nowhere", "schedule 'b': at", "'monthly' is there twice", "'x' is no key"):
        assert told in refused.value.reason


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [
        ({}, {}, True),
        ({"until": "2031-03"}, {"since": "2031-03"}, True),
        ({"since": "2031-06"}, {"since": "2031-01", "until": "2031-06"}, True),
        ({"until": "2031-03"}, {"since": "2031-04"}, False),
        ({}, {"account": "acct_2"}, False),
        ({}, {"every": "quarter", "since": "2031-Q1"}, False),
    ],
)
def test_no_two_schedules_bill_the_same_periods(
    first: dict[str, Any], second: dict[str, Any], *, both: bool
) -> None:
    """A period of an account has one run: of two schedules the second would never charge anybody."""
    rows = [LEAST | first, LEAST | {"name": "other"} | second]
    if not both:
        assert len(parse_schedules({"schedule": rows}, FOLDER, "schedules.toml")) == 2
        return
    with pytest.raises(InvalidInput, match="'monthly' and 'other' bill the same periods of acct_1"):
        parse_schedules({"schedule": rows}, FOLDER, "schedules.toml")


def test_a_file_that_is_no_toml_or_not_there_is_refused(tmp_path: Path) -> None:
    """The refusal names the file."""
    path = tmp_path / "schedules.toml"
    with pytest.raises(InvalidInput, match=r"schedules\.toml' can't be read"):
        read_schedules(path)
    path.write_text("[[schedule]\n")
    with pytest.raises(InvalidInput, match="is no TOML"):
        read_schedules(path)
    path.write_text("schedule = 1\n")
    with pytest.raises(InvalidInput, match="no list of tables"):
        read_schedules(path)
    path.write_text("")
    assert read_schedules(path) == []
