"""`chargeonce schedule preview`: the next firings of a file, each with its offset and its period."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from worker.console_output import Output, table
from worker.schedules.reconcile_entry import ReconcileEntry
from worker.schedules.schedule_file import ScheduleEntry, read_file
from worker.schedules.temporal_spec import OVERLAP_WHY
from workflows.domain.calendar import Firing, WallClock
from workflows.domain.counted import counted
from workflows.domain.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import RenderableType

_CLOCKS = {
    WallClock.PLAIN: "",
    WallClock.SKIPPED: "clocks skip this time: it fires as much later",
    WallClock.DOUBLED: "clocks show this time twice: it fires at the first",
}


async def preview_schedules(
    output: Output, path: Path, *, name: str | None, count: int, after: str | None
) -> None:
    """Print the next `count` firings of each entry of a file, or of the one of that name.

    `after` is a date or time in ISO 8601, UTC where it does not say; without it, this machine's time. Nothing
    but the file is read.

    Raises:
        InvalidInput: The file is wrong, has nothing of that name, or `after` is no time.
    """
    file = read_file(path)
    since = _parse_time(after) if after is not None else datetime.now(UTC)
    reconciles = [
        _reconcile_document(entry, since, count) for entry in file.reconciles if name in {None, entry.name}
    ]
    # A name that only a comparison has is no reason to refuse.
    entries = [] if reconciles and name is not None else choose(file.schedules, name)
    documents = [_document(entry, since, count) for entry in entries]

    def render() -> Iterable["RenderableType"]:
        if documents or not reconciles:
            yield from _render(documents)
        yield from _render_reconciles(reconciles)

    output.result({"schedules": documents, "reconciles": reconciles}, render)


def choose(entries: Sequence[ScheduleEntry], name: str | None) -> list[ScheduleEntry]:
    """Return the schedule of that name, or all of them. Raises InvalidInput where there is none."""
    chosen = [entry for entry in entries if name in {None, entry.name}]
    if name is not None and not chosen:
        raise InvalidInput(f"the file has no schedule {name!r}")
    return chosen


def _document(entry: ScheduleEntry, after: datetime, count: int) -> dict[str, Any]:
    firings = islice(entry.calendar().firings_after(after), count)
    return {
        "name": entry.name,
        "account": entry.account,
        "zone": entry.zone,
        "every": entry.every,
        "bills": entry.bills.value,
        "overlap": OVERLAP_WHY,
        "catch_up": describe_catch_up(entry),
        "missed": entry.missed,
        "firings": [_firing(entry, firing) for firing in firings],
    }


def describe_catch_up(entry: ScheduleEntry) -> str:
    """Return what becomes of firings that Temporal could not make at their time."""
    window = timedelta(seconds=entry.catch_up)
    return (
        f"what is up to {window} late is made good by itself; older is found by `chargeonce schedule sweep`"
    )


def _reconcile_document(entry: ReconcileEntry, after: datetime, count: int) -> dict[str, Any]:
    back = timedelta(days=entry.look_back_days)
    firings = islice(entry.calendar().firings_after(after), count)
    return {
        "name": entry.name,
        "account": entry.account,
        "zone": entry.zone,
        "every": entry.every,
        "look_back_days": entry.look_back_days,
        "repair": entry.repair,
        "firings": [_moment(entry.zone, firing) | {"since": firing.at - back} for firing in firings],
    }


def _moment(zone: str, firing: Firing) -> dict[str, Any]:
    local = firing.at.astimezone(ZoneInfo(zone))
    return {
        "at": firing.at,
        "local": local,
        "utc_offset": f"{local:%z}"[:3] + ":" + f"{local:%z}"[3:],
        "weekday": f"{local:%a}",
        "clocks": firing.wall_clock.value,
        "note": _CLOCKS[firing.wall_clock],
    }


def _firing(entry: ScheduleEntry, firing: Firing) -> dict[str, Any]:
    zone, calendar = ZoneInfo(entry.zone), entry.calendar()
    start, end = (bound.astimezone(zone) for bound in calendar.bounds_of(firing.period))
    return _moment(entry.zone, firing) | {
        "period": str(firing.period),
        "period_start": start,
        "period_end": end,
    }


def _render(documents: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    if not documents:
        yield "the file has no schedules"
    for one in documents:
        yield f"{one['name']}: every {one['every']} of {one['account']}, in {one['zone']}"
        rows = [
            (
                firing["weekday"],
                f"{firing['local']:%Y-%m-%d %H:%M:%S}",
                firing["utc_offset"],
                f"{firing['at']:%Y-%m-%d %H:%M:%S}",
                firing["period"],
                f"{firing['period_start']:%Y-%m-%d} to {firing['period_end']:%Y-%m-%d}",
                firing["note"],
            )
            for firing in one["firings"]
        ]
        if rows:
            yield table(("", "local time", "offset", "UTC", "bills", "from (included) to (not)", ""), rows)
        else:
            yield "it does not fire any more"
        yield f"overlap: {one['overlap']}"
        yield f"catch-up: {one['catch_up']}; of what it finds: {one['missed']}"


def _render_reconciles(documents: Sequence[Mapping[str, Any]]) -> Iterable["RenderableType"]:
    for one in documents:
        repairs = "repairs what moves no money" if one["repair"] else "repairs nothing"
        yield f"{one['name']}: compares {one['account']} with Stripe every {one['every']}, in {one['zone']}"
        rows = [
            (
                firing["weekday"],
                f"{firing['local']:%Y-%m-%d %H:%M:%S}",
                firing["utc_offset"],
                f"{firing['at']:%Y-%m-%d %H:%M:%S}",
                f"{firing['since']:%Y-%m-%d %H:%M:%S}",
                firing["note"],
            )
            for firing in one["firings"]
        ]
        yield table(("", "local time", "offset", "UTC", "what was first sent since (UTC)", ""), rows)
        yield f"{counted(one['look_back_days'], 'day')} back; {repairs}"


def _parse_time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!a} is no time: write 2031-03-01 or 2031-03-01T06:00+01:00") from None
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
