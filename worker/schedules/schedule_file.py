"""The file of schedules: what is billed, when, from which source, and what becomes of what was missed."""

import tomllib
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import available_timezones

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from worker.durations import parse_duration_seconds
from worker.retry_policy_file import read_retry_policy
from workflows.contracts import BelowMinimum, Canary, Timing
from workflows.domain.anchors import FIRST, Anchor
from workflows.domain.calendar import DAYS_AFTER_MAX, BillingCalendar, Bills, parse_at
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import parse_major
from workflows.domain.periods import Period, PeriodKind
from workflows.domain.retry_policy import DEFAULT_POLICY
from workflows.launch_contracts import PERIOD_PLACEHOLDER, LaunchOrder, RunTerms

# How late a firing may still be made good by Temporal itself after an outage. What is older is for people to
# decide (`schedule sweep`): months at once would be a surprise on somebody's bank statement.
CATCH_UP_SECONDS = 3 * 86_400.0
SOURCE_WAIT_SECONDS = 6 * 3_600.0
SCHEDULES_VARIABLE = "CHARGEONCE_SCHEDULES"
_PATH_PREFIXES = ("csv:", "parquet:", "jsonl:")


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError("a duration is a text such as 6h or 3d")  # noqa: TRY004 - pydantic reports it so
    try:
        return parse_duration_seconds(value)
    except InvalidInput as error:
        raise ValueError(error.reason) from None


T = TypeVar("T")

Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]


class ScheduleEntry(BaseModel):
    """One `[[schedule]]` of the file. Unknown keys are refused: a misspelt one would be a wish unheard."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
    account: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]{1,100}$")]
    zone: str
    every: Literal["month", "quarter", "week", "day"]
    since: str
    until: str | None = None
    anchor: str | int | None = None
    bills: Bills = Bills.PREVIOUS
    days_after: Annotated[int, Field(ge=0, le=DAYS_AFTER_MAX)] = 0
    at: str = "06:00"
    source: Annotated[str, Field(min_length=1, max_length=1_000)]
    approve: Literal["plan", "any"] = "plan"
    approve_within: dict[str, str] = Field(default_factory=dict)
    missed: Literal["ask", "latest", "all"] = "ask"
    catch_up: Duration = Field(default=CATCH_UP_SECONDS, ge=10, le=366 * 86_400)
    source_wait: Duration = Field(default=SOURCE_WAIT_SECONDS, le=30 * 86_400)
    skip_invalid: bool = False
    below_minimum: Literal["carry-forward", "waive", "charge"] = "charge"
    change_percent: Annotated[float, Field(ge=0, le=1_000_000)] = 20.0
    canary: Annotated[int, Field(ge=0, le=5_000)] = 0
    canary_max_declined: Annotated[float | None, Field(ge=0, le=100)] = None
    retry_policy: Path | None = None
    slice_size: Annotated[int, Field(ge=1, le=5_000)] = 500

    @model_validator(mode="after")
    def _check(self) -> "ScheduleEntry":
        if self.zone not in available_timezones():
            raise ValueError(f"zone: {echo(self.zone)} is no IANA time zone, such as Europe/Berlin")
        if self.approve == "any" and self.approve_within:
            raise ValueError('approve_within: approve = "any" approves everything: say one of them')
        if PERIOD_PLACEHOLDER not in self.source and not self.source.startswith("sql:"):
            raise ValueError(
                f"source: without {PERIOD_PLACEHOLDER} every period would bill the same lines again"
            )
        self.calendar()
        self._approve_within_minor()
        return self

    def calendar(self) -> BillingCalendar:
        """Return when this schedule bills which period. Raises ValueError where the keys do not agree."""
        kind = PeriodKind(self.every)
        _period(self.since, kind, "since")
        if self.until is not None:
            _period(self.until, kind, "until")
            if Period.parse(self.until) < Period.parse(self.since):
                raise ValueError(f"until: {self.until} is before {self.since}")
        return BillingCalendar(
            zone=self.zone,
            every=kind,
            since=self.since,
            until=self.until,
            anchor=_anchor(self.anchor, kind),
            bills=self.bills,
            days_after=self.days_after,
            at_seconds=_said("at", parse_at, self.at),
        )

    def order(self, *, timing: Timing, slices_at_once: int) -> LaunchOrder:
        """Return what Temporal keeps of this schedule and hands to the launcher."""
        return LaunchOrder(
            schedule=self.name,
            account=self.account,
            calendar=self.calendar(),
            source=self.source,
            approve_any=self.approve == "any",
            approve_within_minor=self._approve_within_minor(),
            terms=RunTerms(
                skip_invalid=self.skip_invalid,
                below_minimum=BelowMinimum(self.below_minimum.replace("-", "_")),
                canary=Canary(lines=self.canary, declined_percent_max=self.canary_max_declined),
                change_percent=self.change_percent,
                retry_policy=DEFAULT_POLICY
                if self.retry_policy is None
                else read_retry_policy(self.retry_policy),
                slice_size=self.slice_size,
                slices_at_once=slices_at_once,
            ),
            source_wait_seconds=self.source_wait,
            timing=timing,
        )

    def shares_periods_with(self, other: "ScheduleEntry") -> bool:
        """Return whether both bill some period of one account, which only one of them can have."""
        if (self.account, self.every) != (other.account, other.every):
            return False
        ours, theirs = self.calendar(), other.calendar()
        return ours.covers(theirs.first) or theirs.covers(ours.first)

    def catch_up_window(self) -> timedelta:
        """Return how late Temporal may still make a firing good by itself."""
        return timedelta(seconds=self.catch_up)

    def _approve_within_minor(self) -> dict[str, int]:
        return {
            currency: _said(f"approve_within.{currency}", partial(parse_major, currency=currency), amount)
            for currency, amount in self.approve_within.items()
        }


def read_schedules(path: Path) -> list[ScheduleEntry]:
    """Return what a file says.

    Raises:
        InvalidInput: It can't be read, is no TOML, or a key of it is wrong; every fault is named.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the file of schedules {str(path)!r} can't be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path} is no TOML: {error}") from None
    return parse_schedules(document, path.parent.resolve(), str(path))


def parse_schedules(document: Mapping[str, Any], folder: Path, name: str) -> list[ScheduleEntry]:
    """Return the schedules of a parsed file; relative paths in it are relative to `folder`.

    Raises:
        InvalidInput: A key is wrong, or two schedules have one name or bill the same periods of an account;
            every fault is named.
    """
    rows = document.get("schedule", [])
    faults = [
        f"{echo(key)} is no key of it: there is [[schedule]] alone" for key in document if key != "schedule"
    ]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{name}: schedule is no list of tables: write [[schedule]]")
    entries: list[ScheduleEntry] = []
    for number, row in enumerate(rows, start=1):
        try:
            entry = ScheduleEntry.model_validate(row)
        except ValidationError as error:
            said = echo(str(row["name"])) if "name" in row else f"number {number}"
            faults += [f"schedule {said}: {_fault(dict(part))}" for part in error.errors()]
            continue
        if any(entry.name == other.name for other in entries):
            faults.append(f"schedule {echo(entry.name)} is there twice")
        faults += [
            f"schedules {echo(other.name)} and {echo(entry.name)} bill the same periods of {entry.account}, "
            "and each of those has one run: give them other periods by since and until, or make them one"
            for other in entries
            if entry.name != other.name and entry.shares_periods_with(other)
        ]
        policy = None if entry.retry_policy is None else folder / entry.retry_policy.expanduser()
        source = _absolute(entry.source, folder)
        entries.append(entry.model_copy(update={"source": source, "retry_policy": policy}))
    if faults:
        raise InvalidInput(f"{name}: {'; '.join(faults)}")
    return entries


def _fault(part: Mapping[str, Any]) -> str:
    where = ".".join(str(step) for step in part["loc"])
    message = str(part["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _absolute(spec: str, folder: Path) -> str:
    """Return the spec with an absolute path: a worker has another working directory than whoever syncs."""
    for prefix in _PATH_PREFIXES:
        if spec.startswith(prefix):
            return f"{prefix}{_join(folder, spec.removeprefix(prefix))}"
    if spec.startswith("sql:"):
        database, _, query = spec.removeprefix("sql:").partition(":")
        return f"sql:{database}:{_join(folder, query)}"
    return spec if spec.startswith("entry:") else _join(folder, spec)


def _join(folder: Path, path: str) -> str:
    return path if path.startswith("~") else str(folder / path)


def _period(label: str, kind: PeriodKind, key: str) -> None:
    period = _said(key, Period.parse, label)
    if period.kind is not kind or str(period) != label:
        raise ValueError(f"{key}: {echo(label)} is no {kind}")


def _anchor(value: str | int | None, kind: PeriodKind) -> Anchor:
    if value is None:
        return FIRST
    if kind is PeriodKind.DAY:
        raise ValueError("anchor: days begin at midnight and have none")
    return _said("anchor", Anchor.of_week if kind is PeriodKind.WEEK else Anchor.of_month, str(value))


def _said(key: str, parse: Callable[[str], T], text: str) -> T:
    try:
        return parse(text)
    except InvalidInput as error:
        raise ValueError(f"{key}: {error.reason}") from None
