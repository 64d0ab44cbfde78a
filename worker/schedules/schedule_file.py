"""The file of schedules: what is billed, when, from which source, and what becomes of what was missed."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from worker.retry_policy_file import read_retry_policy
from worker.schedules.keys import CATCH_UP_SECONDS, Account, CatchUp, Duration, Name, anchor_of, said
from worker.schedules.reconcile_entry import ReconcileEntry
from workflows.contracts import BelowMinimum, Canary, Timing
from workflows.domain.calendar import DAYS_AFTER_MAX, BillingCalendar, Bills, parse_at
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import parse_major
from workflows.domain.periods import Period, PeriodKind
from workflows.domain.retry_policy import DEFAULT_POLICY
from workflows.launch_contracts import PERIOD_PLACEHOLDER, LaunchOrder, RunTerms

SOURCE_WAIT_SECONDS = 6 * 3_600.0
SCHEDULES_VARIABLE = "CHARGEONCE_SCHEDULES"
_PATH_PREFIXES = ("csv:", "parquet:", "jsonl:")


class ScheduleEntry(BaseModel):
    """One `[[schedule]]` of the file. Unknown keys are refused: a misspelt one would be a wish unheard."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    account: Account
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
    catch_up: CatchUp = CATCH_UP_SECONDS
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
            anchor=anchor_of(self.anchor, kind),
            bills=self.bills,
            days_after=self.days_after,
            at_seconds=said("at", parse_at, self.at),
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
            currency: said(f"approve_within.{currency}", partial(parse_major, currency=currency), amount)
            for currency, amount in self.approve_within.items()
        }


Entry = TypeVar("Entry", ScheduleEntry, ReconcileEntry)


@dataclass(frozen=True, slots=True)
class ScheduleFile:
    """What a file says: what is billed by the calendar, and what is compared with Stripe."""

    schedules: list[ScheduleEntry]
    reconciles: list[ReconcileEntry]


def read_schedules(path: Path) -> list[ScheduleEntry]:
    """Return what a file says is billed. Raises as `read_file`."""
    return read_file(path).schedules


def read_file(path: Path) -> ScheduleFile:
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
    return parse_file(document, path.parent.resolve(), str(path))


def parse_schedules(document: Mapping[str, Any], folder: Path, name: str) -> list[ScheduleEntry]:
    """Return what a parsed file says is billed. Raises as `parse_file`."""
    return parse_file(document, folder, name).schedules


def parse_file(document: Mapping[str, Any], folder: Path, name: str) -> ScheduleFile:
    """Return what a parsed file says; relative paths in it are relative to `folder`.

    Raises:
        InvalidInput: A key is wrong, or two schedules have one name or bill the same periods of an account;
            every fault is named.
    """
    faults = [
        f"{echo(key)} is no key of it: there are [[schedule]] and [[reconcile]] alone"
        for key in document
        if key not in {"schedule", "reconcile"}
    ]
    schedules = _entries(ScheduleEntry, "schedule", document, name, faults)
    reconciles = _entries(ReconcileEntry, "reconcile", document, name, faults)
    names = [*(entry.name for entry in schedules), *(entry.name for entry in reconciles)]
    faults += [
        f"schedule {echo(name)} is there twice" for number, name in enumerate(names) if name in names[:number]
    ]
    faults += [
        f"schedules {echo(other.name)} and {echo(entry.name)} bill the same periods of {entry.account}, "
        "and each of those has one run: give them other periods by since and until, or make them one"
        for number, entry in enumerate(schedules)
        for other in schedules[:number]
        if entry.name != other.name and entry.shares_periods_with(other)
    ]
    if faults:
        raise InvalidInput(f"{name}: {'; '.join(faults)}")
    return ScheduleFile([_in_folder(entry, folder) for entry in schedules], reconciles)


def _entries(
    kind: type[Entry], key: str, document: Mapping[str, Any], name: str, faults: list[str]
) -> list[Entry]:
    """Return the entries of one kind that are right; what is wrong with the others is added to `faults`."""
    rows = document.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InvalidInput(f"{name}: {key} is no list of tables: write [[{key}]]")
    entries: list[Entry] = []
    for number, row in enumerate(rows, start=1):
        try:
            entries.append(kind.model_validate(row))
        except ValidationError as error:
            named = echo(str(row["name"])) if "name" in row else f"number {number}"
            faults += [f"{key} {named}: {_fault(dict(part))}" for part in error.errors()]
    return entries


def _in_folder(entry: ScheduleEntry, folder: Path) -> ScheduleEntry:
    policy = None if entry.retry_policy is None else folder / entry.retry_policy.expanduser()
    return entry.model_copy(update={"source": _absolute(entry.source, folder), "retry_policy": policy})


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
    period = said(key, Period.parse, label)
    if period.kind is not kind or str(period) != label:
        raise ValueError(f"{key}: {echo(label)} is no {kind}")
