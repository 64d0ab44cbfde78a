"""Faults as data: which requests they meet, where, and what they do.

A fault counts the requests that match its method, path, key and customer; `nth`, `only`, `from_request` and
`to_request` speak of that count. Its dice depend on the seed, its own name and the request's key (or its
count, without a key), so another fault in the plan changes nothing, and a key meets the same dice however
clients interleave.

Every 20th connection dropped after booking, and every 30th request answered by a stored 500, half of them
booked:

    [{"name": "drop", "match": {"nth": 20}, "place": "after", "effect": {"kind": "drop"}},
     {"name": "500", "match": {"nth": 30},
      "effect": {"kind": "error", "status": 500, "stored": true, "book": 0.5}}]
"""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Literal

from deploy.stripe_sim.draws import draw_fraction

EFFECT_KINDS: Final = ("delay", "drop", "error")
SECONDS_MAX: Final = 3_600


class FaultPlanError(ValueError):
    """A fault plan that cannot be read."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a fault meets; what is left out always matches.

    `path` and `key` are regular expressions, searched. `customer` is the customer of the request or of the
    PaymentIntent that it names. `times` ends the fault after so many hits.
    """

    method: str = "POST"
    path: str = "^/v1/"
    nth: int = 0
    only: tuple[int, ...] = ()
    key: str | None = None
    customer: str | None = None
    probability: float = 1.0
    from_request: int = 0
    to_request: int = 0
    times: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """What a fault does.

    `delay` waits `seconds`; `drop` closes the connection without an answer; `error` answers `status`, stored
    under the key or not. `book` overrides the place: the request is executed (true), is not (false), or is
    with this probability.
    """

    kind: Literal["delay", "drop", "error"]
    seconds: float = 0.0
    status: int = 500
    stored: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    code: str | None = None
    message: str | None = None
    book: bool | float | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `before` and `after` are the two sides of the booking."""

    name: str
    effect: Effect
    match: Match = Match()
    place: Literal["before", "after"] = "before"

    def show(self) -> dict[str, Any]:
        """Return the fault as it stands in a plan file."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a fault may look at. `seen` says how often the key was on the wire, this time included."""

    method: str
    path: str
    account: str
    key: str | None
    seen: int
    customer: Callable[[], str | None]


@dataclass(slots=True)
class Hit:
    """What the plan does to one request: delays add up, and the first drop and the first error win."""

    names: tuple[str, ...] = ()
    delay_before_seconds: float = 0.0
    delay_after_seconds: float = 0.0
    drop: Effect | None = None
    drop_books: bool = True
    error: Effect | None = None
    error_books: bool = True

    @property
    def is_early_drop(self) -> bool:
        """Whether the connection closes before anything was looked at."""
        return self.drop is not None and not self.drop_books

    @property
    def is_early_error(self) -> bool:
        """Whether an error that is not stored stands in for everything else, as a rate limiter's does."""
        return self.error is not None and not self.error_books and not self.error.stored

    @property
    def skips_booking(self) -> bool:
        """Whether a stored error takes the place of the execution."""
        return self.error is not None and not self.error_books


class _Armed:
    """A fault with its counters and its compiled patterns."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.path = re.compile(fault.match.path)
        self.key = None if fault.match.key is None else re.compile(fault.match.key)
        self.matched = 0
        self.fired = 0

    def meets(self, subject: Subject, seed: int) -> bool:
        match = self.fault.match
        if match.method not in {"*", subject.method} or not self.path.search(subject.path):
            return False
        if self.key is not None and (subject.key is None or not self.key.search(subject.key)):
            return False
        if match.customer is not None and subject.customer() != match.customer:
            return False
        self.matched += 1
        count = self.matched
        if count < match.from_request or (match.to_request and count > match.to_request):
            return False
        if (match.nth and count % match.nth) or (match.only and count not in match.only):
            return False
        if match.times and self.fired >= match.times:
            return False
        if match.probability < 1 and self.draw("probability", subject, seed) >= match.probability:
            return False
        self.fired += 1
        return True

    def draw(self, purpose: str, subject: Subject, seed: int) -> float:
        if subject.key is None:
            return draw_fraction(self.fault.name, purpose, self.matched, seed=seed)
        return draw_fraction(self.fault.name, purpose, subject.account, subject.key, subject.seen, seed=seed)

    def books(self, subject: Subject, seed: int) -> bool:
        book = self.fault.effect.book
        if book is None:
            return self.fault.place == "after"
        return self.draw("book", subject, seed) < float(book)


class FaultPlan:
    """The faults in force."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._armed: dict[str, _Armed] = {}

    def replace(self, faults: list[Fault]) -> None:
        """Put these faults in force; one that was there already, word for word, keeps its counters."""
        before = self._armed
        self._armed = {}
        for fault in faults:
            known = before.get(fault.name)
            self._armed[fault.name] = known if known is not None and known.fault == fault else _Armed(fault)

    @property
    def is_armed(self) -> bool:
        """Whether there is any fault in force."""
        return bool(self._armed)

    def hit(self, subject: Subject) -> Hit:
        """Count the request and return what happens to it."""
        met = [armed for armed in self._armed.values() if armed.meets(subject, self._seed)]
        hit = Hit(names=tuple(armed.fault.name for armed in met))
        for armed in met:
            effect = armed.fault.effect
            if effect.kind == "delay":
                if armed.fault.place == "before":
                    hit.delay_before_seconds += effect.seconds
                else:
                    hit.delay_after_seconds += effect.seconds
            elif effect.kind == "drop" and hit.drop is None:
                hit.drop, hit.drop_books = effect, armed.books(subject, self._seed)
            elif effect.kind == "error" and hit.error is None:
                hit.error, hit.error_books = effect, armed.books(subject, self._seed)
        return hit

    def counts(self) -> dict[str, list[int]]:
        """Return [requests matched, requests hit] per fault."""
        return {name: [armed.matched, armed.fired] for name, armed in self._armed.items()}

    def restore_counts(self, counts: dict[str, list[int]]) -> None:
        """Go on counting from here."""
        for name, (matched, fired) in counts.items():
            if name in self._armed:
                self._armed[name].matched, self._armed[name].fired = matched, fired

    def show(self) -> list[dict[str, Any]]:
        """Return the faults as they stand in a plan file."""
        return [armed.fault.show() for armed in self._armed.values()]


def parse_plan(document: Any) -> list[Fault]:
    """Return the faults of a JSON document: a list of faults, or an object that holds one under `faults`."""
    items = document.get("faults") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise FaultPlanError('a fault plan is a list of faults, or {"faults": [...]}')
    plan = [_parse_fault(item) for item in items]
    names = [fault.name for fault in plan]
    if len(set(names)) < len(names):
        raise FaultPlanError("each fault needs a name of its own: its counters and its dice hang on it")
    return plan


def read_plan(path: Path) -> list[Fault]:
    """Return the faults of a JSON file; raises FaultPlanError."""
    try:
        return parse_plan(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as error:
        raise FaultPlanError(f"cannot read {path}: {error}") from error


def _parse_fault(item: Any) -> Fault:
    given = _take_fields(item, Fault, "a fault")
    name, effect = given.get("name"), given.get("effect")
    if not isinstance(name, str) or not name:
        raise FaultPlanError("a fault needs a name")
    given["match"] = _parse_match(given.get("match", {}), name)
    given["effect"] = _parse_effect(effect, name)
    if given.get("place", "before") not in {"before", "after"}:
        raise FaultPlanError(f"{name}: place is before or after")
    return Fault(**given)


def _parse_match(item: Any, name: str) -> Match:
    given = _take_fields(item, Match, f"{name}: match")
    given["only"] = tuple(given.get("only") or ())
    counts = [given.get(count, 0) for count in ("nth", "from_request", "to_request", "times")]
    if not all(isinstance(count, int) and count >= 0 for count in (*counts, *given["only"])):
        raise FaultPlanError(f"{name}: nth, only, from_request, to_request and times are counts")
    if not _is_number(given.get("probability", 1), 0, 1):
        raise FaultPlanError(f"{name}: probability lies between 0 and 1")
    for pattern in (given.get("path", ""), given.get("key") or ""):
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise FaultPlanError(f"{name}: {pattern!r} is no regular expression: {error}") from error
    return Match(**given)


def _parse_effect(item: Any, name: str) -> Effect:
    given = _take_fields(item, Effect, f"{name}: effect")
    if given.get("kind") not in EFFECT_KINDS:
        raise FaultPlanError(f"{name}: kind is one of {', '.join(EFFECT_KINDS)}")
    if not _is_number(given.get("seconds", 0), 0, SECONDS_MAX):
        raise FaultPlanError(f"{name}: seconds lies between 0 and {SECONDS_MAX}")
    status = given.get("status", 500)
    if not (isinstance(status, int) and _is_number(status, 400, 599)):
        raise FaultPlanError(f"{name}: status lies between 400 and 599")
    if given.get("book") is not None and not _is_number(given["book"], 0, 1):
        raise FaultPlanError(f"{name}: book is true, false or a probability")
    headers = given.get("headers", {})
    if not isinstance(headers, dict) or not all(isinstance(text, str) for text in headers.values()):
        raise FaultPlanError(f"{name}: headers maps names to strings")
    return Effect(**given)


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and low <= value <= high


def _take_fields(item: Any, kind: type, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise FaultPlanError(f"{where} is an object")
    known = [entry.name for entry in fields(kind)]
    unknown = [name for name in item if name not in known]
    if unknown:
        raise FaultPlanError(f"{where} has no {', '.join(unknown)}; there are {', '.join(known)}")
    return dict(item)
