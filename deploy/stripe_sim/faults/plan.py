"""The faults in force, with their counters and their dice."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from deploy.stripe_sim.draws import draw_fraction
from deploy.stripe_sim.faults.effect import BookingEffect, Effect
from deploy.stripe_sim.faults.hit import Hit, Place
from deploy.stripe_sim.faults.match import Match, Subject


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. The place is before the execution, after the booking, or in the middle of the body."""

    name: str
    effect: Effect
    match: Match = field(default_factory=Match)
    place: Place = "before"

    def show(self) -> dict[str, Any]:
        """Return the fault as it stands in a plan file."""
        match = asdict(self.match)
        return {"name": self.name, "match": match, "place": self.place, "effect": self.effect.show()}


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
        if match.account is not None and subject.account != match.account:
            return False
        if match.customer is not None and subject.customer() != match.customer:
            return False
        self.matched += 1
        if not match.meets_count(self.matched) or (match.times and self.fired >= match.times):
            return False
        if match.probability < 1 and self._draw("probability", subject, seed) >= match.probability:
            return False
        self.fired += 1
        return True

    def apply(self, hit: Hit, subject: Subject, seed: int) -> None:
        effect, place = self.fault.effect, self.fault.place
        books = place != "before"
        if isinstance(effect, BookingEffect) and effect.book is not None:
            books = self._draw("book", subject, seed) < float(effect.book)
        effect.apply(hit, place, books=books)

    def _draw(self, purpose: str, subject: Subject, seed: int) -> float:
        if subject.key is None:
            return draw_fraction(self.fault.name, purpose, self.matched, seed=seed)
        return draw_fraction(self.fault.name, purpose, subject.account, subject.key, subject.seen, seed=seed)


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
            armed.apply(hit, subject, self._seed)
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
