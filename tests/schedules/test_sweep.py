from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.schedules.test_schedule_file import read
from worker.console_output import Output
from worker.failures import CommandFailed
from worker.schedules.missed import MissedFiring
from worker.schedules.sweep import SweepCommand, parse_yes, refuse_unclear, sweep_schedules
from workflows.domain.errors import InvalidInput
from workflows.domain.periods import Period

SCHEDULES = """
[[schedule]]
name = "monthly"
account = "acct_1"
zone = "UTC"
every = "month"
since = "2031-01"
source = "{period}.csv"
"""


def command(**typed: Any) -> SweepCommand:
    """Return a sweep as it was typed."""
    nothing: dict[str, Any] = {
        "path": Path("schedules.toml"), "name": None, "policy": None, "yes": {}, "waive": [], "who": None,
        "reason": None, "customers": None, "live": False,
    }  # fmt: skip
    return SweepCommand(**(nothing | typed))


def missed(name: str, account: str, period: str) -> MissedFiring:
    """Return a firing of a month that was missed by a schedule."""
    entry = read(name=name, account=account)
    firing = entry.calendar().firing_of(Period.parse(period))
    return MissedFiring(entry, firing, timedelta(days=1))


@pytest.mark.parametrize("typed", [{"yes": {"2031-03": None}}, {"waive": ["2031-03"]}])
def test_a_decision_that_fits_two_schedules_is_refused(typed: dict[str, Any]) -> None:
    """Yes for one account's March is no yes for another's, and neither is a waiver."""
    march, other = missed("a", "acct_1", "2031-03"), missed("b", "acct_2", "2031-03")
    refuse_unclear(command(**typed), [march, missed("b", "acct_2", "2031-02")])
    with pytest.raises(InvalidInput, match=r"2031-03 was missed by several schedules \(a, b\).*--schedule"):
        refuse_unclear(command(**typed), [march, other])
    with pytest.raises(InvalidInput, match="2031-03 was not missed"):
        refuse_unclear(command(**typed), [])


async def test_a_waiver_has_a_reason_that_can_be_read(tmp_path: Path) -> None:
    """None at all or blanks alone are refused before anything is looked at."""
    path = tmp_path / "schedules.toml"
    path.write_text(SCHEDULES)
    with pytest.raises(CommandFailed, match="--waive needs a --reason"):
        await sweep_schedules(Output(as_json=True), command(path=path, waive=["2031-03"]))
    with pytest.raises(InvalidInput, match="--reason is empty"):
        await sweep_schedules(Output(as_json=True), command(path=path, waive=["2031-03"], reason="  "))


def test_a_period_is_not_both_billed_and_waived() -> None:
    """A waiver stays on record and a yes charges people, so both at once is a mistake."""
    march = missed("a", "acct_1", "2031-03")
    with pytest.raises(InvalidInput, match="2031-03 can't be both"):
        refuse_unclear(command(yes={"2031-03": None}, waive=["2031-03"]), [march])


def test_a_yes_with_an_empty_hash_is_refused() -> None:
    """An equals sign with nothing behind it is a shell variable that was not set, and no approval."""
    assert parse_yes(["2031-03", "2031-04=abc"]) == {"2031-03": None, "2031-04": "abc"}
    with pytest.raises(InvalidInput, match="--yes 2031-03= has no hash"):
        parse_yes(["2031-03="])
