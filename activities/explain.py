"""One charge's whole story: every key, attempt, answer and decision in order, and what happens next."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from activities.ledger.database import Pool
from activities.ledger.story import (
    CANDIDATES_MAX,
    Candidate,
    SkippedRow,
    StoryRows,
    find_candidates,
    find_skipped,
    read_story_rows,
)
from activities.next_step import describe_next_step, is_kept
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money

PREFIX_CHARACTERS_MIN = 6
_HEX = re.compile(r"[0-9a-f]{1,32}")
_PAYMENT_INTENT = re.compile(r"pi_[A-Za-z0-9_]+")

_IN_MOTION = frozenset({"planned", "creating", "prepared", "confirming", "canceling"})


class EventKind(StrEnum):
    """What happened."""

    PLANNED = "planned"
    SKIPPED = "skipped"
    TAKEN_OVER = "taken_over"
    KEY = "key"
    SENT = "sent"
    ANSWERED = "answered"
    DECIDED = "decided"


# Of what bears the same instant, causes come first.
_ORDER = {kind: rank for rank, kind in enumerate(EventKind)}


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One thing that happened to a charge, by the ledger's clock. `summary` is one line for people."""

    at: datetime
    kind: EventKind
    summary: str
    details: Mapping[str, Any] = field(default_factory=dict)
    alarm: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "at": self.at.isoformat(),
            "kind": self.kind.value,
            "summary": self.summary,
            "alarm": self.alarm,
            **{name: _plain(value) for name, value in self.details.items()},
        }


@dataclass(frozen=True, slots=True)
class ChargeStory:
    """A charge as it stands, what happened to it in order, and what happens next and when."""

    charge_id: str
    run_id: str
    account: str
    customer: str
    period: str
    line: str
    source_row: int
    currency: str
    amount_minor: int
    state: str
    reason: str | None
    payment_intent: str | None
    changed_at: datetime
    now: datetime
    next_step: str
    due_at: datetime | None
    events: tuple[StoryEvent, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        values = {name: _plain(getattr(self, name)) for name in self.__dataclass_fields__}
        return values | {"events": [event.as_json() for event in self.events]}


class NoSuchCharge(InvalidInput):
    """No charge is meant by a name. It may be that of a row that became none."""


async def explain_line(
    pool: Pool, wanted: str, *, run_id: str | None = None
) -> "ChargeStory | tuple[SkippedRow, ...]":
    """Return the story of the charge that `wanted` names; else the rows of that name that became no charge.

    Args and errors as for `explain_charge`.
    """
    try:
        return await explain_charge(pool, wanted, run_id=run_id)
    except NoSuchCharge:
        customer, _, line = wanted.strip().partition("/")
        skipped = await find_skipped(pool, customer=customer, line=line or None, run_id=run_id)
        if not skipped:
            raise
        return tuple(skipped)


async def explain_charge(pool: Pool, wanted: str, *, run_id: str | None = None) -> ChargeStory:
    """Return the story of the one charge that `wanted` names.

    Args:
        pool: The ledger.
        wanted: A charge_id or its first 6 or more digits, `pi_...`, `customer/line`, or a customer alone.
        run_id: Look only among the charges of this run.

    Raises:
        InvalidInput: Nothing or more than one charge is meant; the message names the choices.
    """
    found = await _find(pool, wanted.strip(), run_id)
    if not found:
        where = f" in run {run_id}" if run_id else ""
        raise NoSuchCharge(
            f"no charge is called {echo(wanted)}{where}: give a charge id or its first"
            f" {PREFIX_CHARACTERS_MIN} digits, pi_..., customer/line or a customer"
        )
    if len(found) > 1:
        raise InvalidInput(_name_choices(wanted, found))
    return tell_story(await read_story_rows(pool, found[0].charge_id))


async def _find(pool: Pool, wanted: str, run_id: str | None) -> list[Candidate]:
    if _PAYMENT_INTENT.fullmatch(wanted):
        return await find_candidates(pool, payment_intent=wanted, run_id=run_id)
    if "/" in wanted:
        customer, _, line = wanted.partition("/")
        return await find_candidates(pool, customer=customer, line=line, run_id=run_id)
    if _HEX.fullmatch(wanted.lower()):
        if len(wanted) < PREFIX_CHARACTERS_MIN:
            raise InvalidInput(f"{echo(wanted)} is too short: {PREFIX_CHARACTERS_MIN} digits at least")
        return await find_candidates(pool, beginning=wanted.lower(), run_id=run_id)
    return await find_candidates(pool, customer=wanted, run_id=run_id) if wanted else []


def _name_choices(wanted: str, found: list[Candidate]) -> str:
    choices = ", ".join(
        f"{one.charge_id} ({one.customer}/{one.line}, {one.period}, {one.state}, run {one.run_id})"
        for one in found
    )
    more = " and more" if len(found) == CANDIDATES_MAX else ""
    several_runs = len({one.run_id for one in found}) > 1
    which = "its run with --run RUN, or its id" if several_runs else "customer/line, or its id"
    return f"{echo(wanted)} may be any of {len(found)}{more}; say {which}: {choices}"


def tell_story(rows: StoryRows) -> ChargeStory:
    """Put the ledger's rows about one charge in order."""
    charge = rows.charge
    events = [
        *_planned(rows),
        *_takeovers(rows),
        *_keys(rows),
        *_attempts(rows),
        *_decisions(rows),
    ]
    events.sort(key=lambda event: (event.at, _ORDER[event.kind]))
    moves = charge["state"] in _IN_MOTION and not is_kept(charge)
    return ChargeStory(
        charge_id=charge["charge_id"],
        run_id=charge["run_id"],
        account=charge["account"],
        customer=charge["customer"],
        period=charge["period"],
        line=charge["line"],
        source_row=charge["source_row"],
        currency=charge["currency"],
        amount_minor=charge["amount_minor"],
        state=charge["state"],
        reason=charge["reason"],
        payment_intent=charge["payment_intent"],
        changed_at=charge["changed_at"],
        now=charge["now"],
        next_step=describe_next_step(charge),
        due_at=(charge["due_at"] or charge["now"]) if moves else charge["follow_up_due_at"],
        events=tuple(events),
    )


def _planned(rows: StoryRows) -> Iterator[StoryEvent]:
    charge = rows.charge
    first = rows.takeovers[0] if rows.takeovers else charge
    planned_at = first["planned_at"]
    if planned_at is not None:
        run_id = first["from_run"] if rows.takeovers else charge["run_id"]
        amount = format_money(charge["amount_minor"], charge["currency"])
        was_skipped = charge["state"] == "skipped"
        what = f"not to be charged ({charge['reason']})" if was_skipped else "planned"
        yield StoryEvent(
            planned_at,
            EventKind.SKIPPED if was_skipped else EventKind.PLANNED,
            f"{what} by {run_id} from row {charge['source_row']} of its source: {amount}",
            {"run_id": run_id, "source_row": charge["source_row"]},
        )


def _takeovers(rows: StoryRows) -> Iterator[StoryEvent]:
    for row in rows.takeovers:
        summary = f"taken over from {row['from_run']} by {row['to_run']}: {row['reason']}"
        details = {"from_run": row["from_run"], "to_run": row["to_run"], "reason": row["reason"]}
        yield StoryEvent(row["at"], EventKind.TAKEN_OVER, summary, details)


def _keys(rows: StoryRows) -> Iterator[StoryEvent]:
    for row in rows.keys:
        details = {name: value for name, value in row.items() if name != "first_intended_at"}
        summary = f"key {row['key']}: {row['operation']} at version {row['version']}, because {row['reason']}"
        yield StoryEvent(row["first_intended_at"], EventKind.KEY, summary, details)


def _attempts(rows: StoryRows) -> Iterator[StoryEvent]:
    for row in rows.attempts:
        answered = row["answered_at"] is not None
        sent = {name: row[name] for name in ("key", "send_no", "fence", "reason", "key_age_seconds")}
        yield StoryEvent(
            row["intended_at"],
            EventKind.SENT,
            f"send {row['send_no']} of {row['key']}, its key {_age_text(row['key_age_seconds'])} old:"
            f" {row['reason']}{'' if answered else '; no answer was ever recorded'}",
            {**sent, "answered": answered},
        )
        if answered:
            yield _answer(row)


def _answer(row: Mapping[str, Any]) -> StoryEvent:
    skipped = {"fence", "reason", "intended_at", "answered_at", "key_age_seconds"}
    status = f"HTTP {row['http_status']}" if row["http_status"] is not None else row["transport"]
    words = [status, row["code"], row["decline_code"], row["payment_intent_status"], row["request_id"]]
    if row["replayed"]:
        words.append("replayed")
    proof = row["proved_state"] or row["proof"]
    return StoryEvent(
        row["answered_at"],
        EventKind.ANSWERED,
        f"answer to send {row['send_no']} of {row['key']}: {', '.join(filter(None, words))}: {proof}"
        + (f" ({row['verdict']})" if row["verdict"] else ""),
        {name: value for name, value in row.items() if name not in skipped},
    )


def _decisions(rows: StoryRows) -> Iterator[StoryEvent]:
    for row in rows.decisions:
        details = {"decision": row["decision"], "reason": row["reason"], "evidence": row["evidence"]}
        summary = f"{row['decision']}: {row['reason']}"
        yield StoryEvent(row["at"], EventKind.DECIDED, summary, details, alarm=row["alarm"])


def _age_text(seconds: float) -> str:
    """Return an age as hours, minutes and seconds, the grain in which the window is judged."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
