"""Faults of webhook delivery as data: which deliveries they meet and what they do to them.

Written like the faults of requests; counts and dice follow the same rules (see `faults`):

    [{"name": "twice", "match": {"type": "^payment_intent", "nth": 3}, "effect": {"kind": "duplicate"}},
     {"name": "late", "match": {"probability": 0.1}, "effect": {"kind": "delay", "seconds": 3600}}]
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from deploy.stripe_sim.draws import draw_fraction

EFFECT_KINDS: Final = (
    "delay",
    "drop",
    "fail",
    "duplicate",
    "twin",
    "reorder",
    "before_response",
    "bad_signature",
    "old_signature",
)


class WebhookPlanError(ValueError):
    """A plan that cannot be read."""


@dataclass(frozen=True, slots=True)
class WebhookMatch:
    """Which first attempts a fault meets; what is left out always matches.

    `type` is a regular expression, searched; `endpoint` an id; `attempt` 0 meets every attempt.
    """

    type: str = ""
    endpoint: str | None = None
    attempt: int = 1
    nth: int = 0
    only: tuple[int, ...] = ()
    probability: float = 1.0
    times: int = 0


@dataclass(frozen=True, slots=True)
class WebhookEffect:
    """What a fault does to a delivery.

    `delay` waits `seconds` by the simulator's clock; `drop` never delivers; `fail` loses this attempt;
    `duplicate` sends again after `seconds`; `twin` makes a second event of the same change; `reorder` lets
    `after` later events of the endpoint pass, or `seconds`; `before_response` delivers before the request
    that caused the event is answered; `bad_signature` and `old_signature` (by `seconds`) do not verify.
    """

    kind: str
    seconds: float = 0.0
    after: int = 1


@dataclass(frozen=True, slots=True)
class WebhookFault:
    """One fault."""

    name: str
    effect: WebhookEffect
    match: WebhookMatch = WebhookMatch()

    def show(self) -> dict[str, Any]:
        """Return the fault as it stands in a plan."""
        return asdict(self)


@dataclass(slots=True)
class _Armed:
    fault: WebhookFault
    pattern: re.Pattern[str]
    matched: int = 0
    fired: int = 0

    def meets(self, event_id: str, event_type: str, endpoint_id: str, attempt: int, seed: int) -> bool:
        match = self.fault.match
        if match.attempt not in {0, attempt} or match.endpoint not in {None, endpoint_id}:
            return False
        if not self.pattern.search(event_type):
            return False
        self.matched += 1
        if (match.nth and self.matched % match.nth) or (match.only and self.matched not in match.only):
            return False
        if match.times and self.fired >= match.times:
            return False
        if match.probability < 1:
            drawn = draw_fraction(self.fault.name, event_id, endpoint_id, attempt, seed=seed)
            if drawn >= match.probability:
                return False
        self.fired += 1
        return True


class WebhookPlan:
    """The faults in force."""

    def __init__(self, *, seed: int) -> None:
        self._seed = seed
        self._armed: list[_Armed] = []

    def replace(self, faults: list[WebhookFault]) -> None:
        """Put these faults in force, counting from the start."""
        self._armed = [_Armed(fault, re.compile(fault.match.type)) for fault in faults]

    def meet(self, event_id: str, event_type: str, endpoint_id: str, attempt: int) -> list[WebhookFault]:
        """Count an attempt and return the faults that hit it."""
        return [
            armed.fault
            for armed in self._armed
            if armed.meets(event_id, event_type, endpoint_id, attempt, self._seed)
        ]

    def show(self) -> dict[str, Any]:
        """Return the faults and how often each was met."""
        return {
            "faults": [armed.fault.show() for armed in self._armed],
            "counts": {
                armed.fault.name: {"matched": armed.matched, "fired": armed.fired} for armed in self._armed
            },
        }


def parse_webhook_plan(document: Any) -> list[WebhookFault]:
    """Return the faults of a JSON document: a list, or an object that holds one under `faults`."""
    items = document.get("faults") if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise WebhookPlanError('a plan is a list of faults, or {"faults": [...]}')
    plan = [_parse(item) for item in items]
    if len({fault.name for fault in plan}) < len(plan):
        raise WebhookPlanError("each fault needs a name of its own: its counters and its dice hang on it")
    return plan


def read_webhook_plan(path: Path) -> list[Any]:
    """Return what a plan file says under `webhooks`, which may be missing; raises WebhookPlanError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise WebhookPlanError(f"cannot read {path}: {error}") from error
    items = document.get("webhooks", []) if isinstance(document, dict) else []
    parse_webhook_plan(items)
    return list(items)


def _parse(item: Any) -> WebhookFault:
    given = _take(item, WebhookFault, "a fault")
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise WebhookPlanError("a fault needs a name")
    match = _take(given.get("match", {}), WebhookMatch, f"{name}: match")
    match["only"] = tuple(match.get("only") or ())
    effect = _take(given.get("effect"), WebhookEffect, f"{name}: effect")
    if effect.get("kind") not in EFFECT_KINDS:
        raise WebhookPlanError(f"{name}: kind is one of {', '.join(EFFECT_KINDS)}")
    counts = (match.get("attempt", 1), match.get("nth", 0), match.get("times", 0), effect.get("after", 1))
    if not all(isinstance(count, int) and count >= 0 for count in (*counts, *match["only"])):
        raise WebhookPlanError(f"{name}: attempt, nth, only, times and after are counts")
    for number, high in ((match.get("probability", 1), 1), (effect.get("seconds", 0), 30 * 86_400)):
        if not isinstance(number, int | float) or not 0 <= number <= high:
            raise WebhookPlanError(f"{name}: {number!r} does not lie between 0 and {high}")
    try:
        re.compile(match.get("type", ""))
    except (re.error, TypeError) as error:
        raise WebhookPlanError(f"{name}: type is no regular expression: {error}") from error
    return WebhookFault(name, WebhookEffect(**effect), WebhookMatch(**match))


def _take(item: Any, kind: type, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise WebhookPlanError(f"{where} is an object")
    known = [entry.name for entry in fields(kind)]
    unknown = [name for name in item if name not in known]
    if unknown:
        raise WebhookPlanError(f"{where} has no {', '.join(unknown)}; there are {', '.join(known)}")
    return dict(item)
