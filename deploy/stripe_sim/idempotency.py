"""Stripe's idempotency layer.

A key belongs to an account. From the moment its first request begins to execute it is in flight (409 for
anyone else), then it holds the answer, success or failure, for 24 hours from the first request on, by the
simulator's clock. The same key with another path or other parameters is an error (400). A request that never
began to execute leaves its key as if it had not been used. Sources: docs.stripe.com/api/idempotent_requests
and docs.stripe.com/error-low-level.
"""

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from deploy.stripe_sim.clock import SimClock
from deploy.stripe_sim.draws import draw_fraction
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.rows import Index
from deploy.stripe_sim.settings import Settings

KEY_CHARACTERS_MAX: Final = 255
KEPT_LONGER_FRACTION: Final = 0.5
FORGOTTEN_AT_ONCE_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body as they go out; `executed` answers are stored under the key."""

    status: int
    body: bytes
    headers: dict[str, str]
    executed: bool


@dataclass(slots=True)
class Slot:
    """One key: what its first request was. While `answer` is None that request is running."""

    path: str
    fingerprint: str
    opened_at: float
    request_id: str
    answer: Answer | None = None


def name_key(account: str, key: str) -> str:
    """Return what a key of an account is called here; made once per request, since all tables share it."""
    return f"{account} {key}"


class KeyRing:
    """All keys of all accounts, by name: those in flight in memory, those with an answer in the log."""

    def __init__(self, *, clock: SimClock, log: Log, settings: Callable[[], Settings], seed: int) -> None:
        self._clock = clock
        self._log = log
        self._settings = settings
        self._seed = seed
        self._running: dict[str, Slot] = {}
        self._addresses = Index()
        self._kept = 0
        self._by_age: deque[int] = deque()
        self._oldest: tuple[str, float] | None = None

    def __len__(self) -> int:
        return len(self._running) + self._kept

    def open(self, name: str, key: str, *, path: str, fingerprint: str, request_id: str) -> tuple[bool, Slot]:
        """Return whether this request is the first with its key, and the key's slot.

        Raises ApiError: 400 `idempotency_error` for another path or other parameters, 409
        `idempotency_key_in_use` while the first request is running.
        """
        if len(key) > KEY_CHARACTERS_MAX:
            raise bad_request(
                f"Idempotency keys can have up to {KEY_CHARACTERS_MAX} characters; yours has {len(key)}."
            )
        slot = self._running.get(name) or self._load(name)
        if slot is None:
            self._forget_oldest()
            slot = self._running[name] = Slot(path, fingerprint, self._clock.now(), request_id)
            return True, slot
        _check_same_request(slot, key, path, fingerprint)
        if slot.answer is None:
            message = (
                "There is currently another in-progress request using this Idempotent Key (that probably "
                "means you submitted twice, and the other request is still going through): "
                f"{key}. Please try again later."
            )
            raise ApiError(409, message, code="idempotency_key_in_use")
        return False, slot

    def running(self, name: str) -> Slot | None:
        """Return the slot of a key whose first request is running."""
        return self._running.get(name)

    def hold(self, name: str, slot: Slot) -> None:
        """Put a key in use again whose first request was running when the simulator stopped."""
        self._running[name] = slot

    def store(self, name: str, slot: Slot, answer: Answer) -> None:
        """Keep the answer of the first request."""
        slot.answer = answer
        address = self._log.append(
            *("key", name, slot.path, slot.fingerprint, slot.opened_at),
            *(slot.request_id, answer.status, answer.headers),
            body=answer.body,
        )
        if self._running.get(name) is slot:
            del self._running[name]
        self._keep(name, address)

    def abandon(self, name: str, slot: Slot) -> None:
        """Forget a key whose request did not begin to execute."""
        if slot.answer is None and self._running.get(name) is slot:
            del self._running[name]

    def restore(self, address: int, name: str) -> None:
        """Take a key from the log."""
        self._keep(name, address)

    def _keep(self, name: str, address: int) -> None:
        self._kept += name not in self._addresses
        self._addresses.put(name, address)
        self._by_age.append(address)

    def _load(self, name: str) -> Slot | None:
        address = self._addresses.get(name)
        if address is None:
            return None
        (_, _, path, fingerprint, opened_at, request_id, status, headers), body = self._log.load(address)
        if self._is_forgotten(name, opened_at):
            return None
        return Slot(path, fingerprint, opened_at, request_id, Answer(status, body, headers, executed=True))

    def _is_forgotten(self, name: str, opened_at: float) -> bool:
        settings = self._settings()
        kept_seconds = settings.key_retention_seconds
        if settings.keys_kept_longer:
            kept_seconds *= 1 + KEPT_LONGER_FRACTION * draw_fraction("kept longer", name, seed=self._seed)
        return self._clock.now() - opened_at >= kept_seconds

    def _forget_oldest(self) -> None:
        # A few at a time: after a jump of the clock a million may be due.
        for _ in range(FORGOTTEN_AT_ONCE_MAX):
            if not self._by_age:
                return
            if self._oldest is None:
                (_, name, _, _, opened_at, *_), _ = self._log.load(self._by_age[0])
                self._oldest = name, opened_at
            name, opened_at = self._oldest
            if not self._is_forgotten(name, opened_at):
                return
            self._oldest = None
            if self._addresses.get(name) == self._by_age.popleft():
                self._addresses.drop(name)
                self._kept -= 1


def _check_same_request(slot: Slot, key: str, path: str, fingerprint: str) -> None:
    if slot.path != path:
        message = (
            "Keys for idempotent requests can only be used for the same endpoint they were first used for "
            f"('{path}' vs '{slot.path}'). Try using a key other than '{key}' if you meant to execute a "
            "different request."
        )
        raise ApiError(400, message, kind="idempotency_error")
    if slot.fingerprint != fingerprint:
        message = (
            "Keys for idempotent requests can only be used with the same parameters they were first used "
            f"with. Try using a key other than '{key}' if you meant to execute a different request."
        )
        raise ApiError(400, message, kind="idempotency_error")


def fingerprint_of(pairs: list[tuple[str, str]]) -> str:
    """Return a hash of the parameters that does not depend on their order."""
    text = "\0".join(f"{name}\1{value}" for name, value in sorted(pairs))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
