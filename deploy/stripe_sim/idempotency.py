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
from typing import Any, Final

from deploy.stripe_sim.clock import SimClock
from deploy.stripe_sim.draws import draw_fraction
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.settings import Settings

KEY_CHARACTERS_MAX: Final = 255
KEPT_LONGER_FRACTION: Final = 0.5

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body as they go out; `executed` answers are stored under the key."""

    status: int
    body: bytes
    headers: dict[str, str]
    executed: bool


@dataclass(slots=True)
class Slot:
    """One key. While `body` is None its first request is running."""

    path: str
    fingerprint: str
    opened_at: float
    request_id: str
    status: int = 0
    body: bytes | None = None
    headers: dict[str, str] | None = None


class KeyRing:
    """All keys of all accounts."""

    def __init__(self, *, clock: SimClock, log: Log, settings: Callable[[], Settings], seed: int) -> None:
        self._clock = clock
        self._log = log
        self._settings = settings
        self._seed = seed
        self._slots: dict[Name, Slot] = {}
        self._by_age: deque[tuple[Name, Slot]] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    def open(
        self, account: str, key: str, *, path: str, fingerprint: str, request_id: str
    ) -> tuple[bool, Slot]:
        """Return whether this request is the first with its key, and the key's slot.

        Raises ApiError: 400 `idempotency_error` for another path or other parameters, 409
        `idempotency_key_in_use` while the first request is running.
        """
        if len(key) > KEY_CHARACTERS_MAX:
            raise bad_request(
                f"Idempotency keys can have up to {KEY_CHARACTERS_MAX} characters; yours has {len(key)}."
            )
        name = (account, key)
        slot = self._slots.get(name)
        if slot is not None and slot.body is not None and self._is_forgotten(name, slot):
            slot = None
        if slot is None:
            self._forget_oldest()
            slot = Slot(path, fingerprint, self._clock.now(), request_id)
            self._slots[name] = slot
            return True, slot
        _check_same_request(slot, key, path, fingerprint)
        if slot.body is None:
            message = (
                "There is currently another in-progress request using this Idempotent Key (that probably "
                "means you submitted twice, and the other request is still going through): "
                f"{key}. Please try again later."
            )
            raise ApiError(409, message, code="idempotency_key_in_use")
        return False, slot

    def store(self, account: str, key: str, slot: Slot, answer: Answer) -> None:
        """Keep the answer of the first request."""
        slot.status, slot.body, slot.headers = answer.status, answer.body, answer.headers
        self._by_age.append(((account, key), slot))
        self._log.append(
            "key", account, key, slot.path, slot.fingerprint, slot.opened_at, slot.request_id, answer.status,
            answer.body.decode(), answer.headers,
        )  # fmt: skip

    def abandon(self, account: str, key: str, slot: Slot) -> None:
        """Forget a key whose request did not begin to execute."""
        if self._slots.get((account, key)) is slot and slot.body is None:
            del self._slots[account, key]

    def restore(self, values: list[Any]) -> None:
        """Take a key from the log."""
        account, key, path, fingerprint, opened_at, request_id, status, body, headers = values
        slot = Slot(path, fingerprint, opened_at, request_id, status, body.encode(), headers)
        self._slots[account, key] = slot
        self._by_age.append(((account, key), slot))

    def _is_forgotten(self, name: Name, slot: Slot) -> bool:
        settings = self._settings()
        kept_seconds = settings.key_retention_seconds
        if settings.keys_kept_longer:
            kept_seconds *= 1 + KEPT_LONGER_FRACTION * draw_fraction("kept longer", *name, seed=self._seed)
        return self._clock.now() - slot.opened_at >= kept_seconds

    def _forget_oldest(self) -> None:
        while self._by_age:
            name, slot = self._by_age[0]
            if not self._is_forgotten(name, slot):
                return
            self._by_age.popleft()
            if self._slots.get(name) is slot:
                del self._slots[name]


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
