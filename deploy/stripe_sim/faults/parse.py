"""Fault plans as JSON, checked before anything is put in force."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from deploy.stripe_sim.faults.delay import Delay
from deploy.stripe_sim.faults.drip import Drip
from deploy.stripe_sim.faults.drop import Drop
from deploy.stripe_sim.faults.effect import Effect, is_number
from deploy.stripe_sim.faults.error import Error
from deploy.stripe_sim.faults.garbage import Garbage
from deploy.stripe_sim.faults.hold import Hold
from deploy.stripe_sim.faults.html import Html
from deploy.stripe_sim.faults.late import Late
from deploy.stripe_sim.faults.match import Match
from deploy.stripe_sim.faults.plan import Fault
from deploy.stripe_sim.faults.reset import Reset

EFFECT_KINDS: Final[dict[str, type[Effect]]] = {
    kind.KIND: kind for kind in (Delay, Drop, Reset, Drip, Garbage, Html, Error, Hold, Late)
}


class FaultPlanError(ValueError):
    """A fault plan that cannot be read."""


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
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise FaultPlanError("a fault needs a name")
    effect = _parse_effect(given.get("effect"), name)
    place = given.get("place", effect.PLACES[0])
    if place not in effect.PLACES:
        raise FaultPlanError(f"{name}: the place of {effect.KIND} is {' or '.join(effect.PLACES)}")
    return Fault(name, effect, _parse_match(given.get("match", {}), name), place)


def _parse_match(item: Any, name: str) -> Match:
    given = _take_fields(item, Match, f"{name}: match")
    given["only"] = tuple(given.get("only") or ())
    counts = [given.get(count, 0) for count in ("nth", "from_request", "to_request", "times")]
    if not all(isinstance(count, int) and count >= 0 for count in (*counts, *given["only"])):
        raise FaultPlanError(f"{name}: nth, only, from_request, to_request and times are counts")
    if not is_number(given.get("probability", 1), 0, 1):
        raise FaultPlanError(f"{name}: probability lies between 0 and 1")
    for pattern in (given.get("path", ""), given.get("key") or ""):
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise FaultPlanError(f"{name}: {pattern!r} is no regular expression: {error}") from error
    return Match(**given)


def _parse_effect(item: Any, name: str) -> Effect:
    kind = item.get("kind") if isinstance(item, dict) else None
    if kind not in EFFECT_KINDS:
        raise FaultPlanError(f"{name}: kind is one of {', '.join(EFFECT_KINDS)}")
    values = {field: value for field, value in item.items() if field != "kind"}
    effect = EFFECT_KINDS[kind](**_take_fields(values, EFFECT_KINDS[kind], f"{name}: {kind}"))
    wrong = effect.check()
    if wrong is not None:
        raise FaultPlanError(f"{name}: {wrong}")
    return effect


def _take_fields(item: Any, kind: type, where: str) -> dict[str, Any]:
    if not isinstance(item, dict):
        raise FaultPlanError(f"{where} is an object")
    known = [entry.name for entry in fields(kind)]
    unknown = [name for name in item if name not in known]
    if unknown:
        raise FaultPlanError(f"{where} has no {', '.join(unknown)}; there are {', '.join(known)}")
    return dict(item)
