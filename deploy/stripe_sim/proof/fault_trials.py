"""Every kind of fault at every place it can stand, tried on one confirm over a real socket.

A trial says what the client must be told, how much money must have moved by then, and what the same key must
give when it is sent again.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from deploy.stripe_sim.proof.wire_requests import make_confirm, make_create, read_intent_id
from deploy.stripe_sim.testing import RunningSim, running_sim

ANSWER_SECONDS_MAX: Final = 10.0
LATER_SECONDS: Final = 3_600.0


@dataclass(frozen=True)
class Trial:
    """One fault and what must come of it; `later` is the money moved once the clock has gone on."""

    kind: str
    place: str
    told: str
    moved: int
    again: str
    effect: dict[str, Any] = field(default_factory=dict)
    later: int = 1

    @property
    def name(self) -> str:
        """Return what the trial is called."""
        details = " ".join(f"{name}={value}" for name, value in self.effect.items())
        return f"{self.kind} {self.place} {details}".strip()


_STORED: Final = {"status": 500, "stored": True}
TRIALS: Final = (
    Trial("delay", "before", "200", 1, "200 replayed", {"seconds": 0.02}),
    Trial("delay", "after", "200", 1, "200 replayed", {"seconds": 0.02}),
    Trial("delay", "body", "200", 1, "200 replayed", {"seconds": 0.02}),
    Trial("drop", "before", "closed", 0, "200"),
    Trial("drop", "after", "closed", 1, "200 replayed"),
    Trial("drop", "body", "cut", 1, "200 replayed"),
    Trial("reset", "before", "reset", 0, "200"),
    Trial("reset", "after", "reset", 1, "200 replayed"),
    Trial("reset", "body", "reset", 1, "200 replayed"),
    Trial("drip", "body", "200", 1, "200 replayed", {"seconds": 0.05}),
    Trial("garbage", "before", "200 unreadable", 0, "200"),
    Trial("garbage", "after", "200 unreadable", 1, "200 replayed"),
    Trial("garbage", "body", "200 unreadable", 1, "200 replayed"),
    Trial("html", "before", "502 unreadable", 0, "200"),
    Trial("html", "after", "502 unreadable", 1, "200 replayed"),
    Trial("error", "before", "503", 0, "200", {"status": 503}),
    Trial("error", "after", "503", 1, "200 replayed", {"status": 503}),
    Trial("error", "before", "500", 0, "500 replayed", _STORED, later=0),
    Trial("error", "after", "500", 1, "500 replayed", _STORED),
    Trial("error", "before", "401", 0, "200", {"status": 401}),
    Trial("error", "before", "409", 0, "200", {"status": 409}),
    Trial("error", "before", "429", 0, "200", {"status": 429}),
    Trial("error", "before", "429", 0, "200", {"status": 429, "code": "lock_timeout"}),
    Trial("hold", "before", "closed", 0, "409", {"seconds": LATER_SECONDS}),
    Trial("late", "before", "500", 0, "500 replayed", {"seconds": LATER_SECONDS}),
)


@dataclass(frozen=True)
class Outcome:
    """What came of a trial, in the same terms."""

    told: str
    moved: int
    again: str
    later: int


async def try_fault(trial: Trial, *, seed: int = 1) -> Outcome:
    """Run one trial in a simulator of its own."""
    async with running_sim(seed=seed) as sim:
        sim.clock.freeze(1_790_000_000)
        sim.seed("cus_1", "pm_card_visa_1")
        _, created = await ask(sim, make_create(1))
        confirm = make_confirm(1, read_intent_id(created))
        sim.set_faults(
            {
                "name": "trial",
                "match": {"path": "/confirm$", "only": [1]},
                "place": trial.place,
                "effect": {"kind": trial.kind, **trial.effect},
            }
        )
        told, _ = await ask(sim, confirm)
        moved = len(sim.movements)
        again, _ = await ask(sim, confirm)
        sim.clock.advance(LATER_SECONDS)
        return Outcome(told, moved, again, len(sim.movements))


async def ask(sim: RunningSim, request: bytes) -> tuple[str, bytes]:
    """Send a request on a connection of its own; return what the client was told, in words, and the bytes."""
    async with _connect(sim.url) as (reader, writer), asyncio.timeout(ANSWER_SECONDS_MAX):
        writer.write(request)
        answer = bytearray()
        try:
            while not _is_whole(answer):
                piece = await reader.read(65_536)
                if not piece:
                    return ("cut" if answer else "closed"), bytes(answer)
                answer += piece
        except ConnectionResetError:
            return "reset", bytes(answer)
        return _describe(bytes(answer)), bytes(answer)


@asynccontextmanager
async def _connect(url: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _is_whole(answer: bytearray) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return len(body) >= int(length.split(b":")[1])


def _describe(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = [head.split(b" ", 2)[1].decode()]
    if b"\r\nidempotent-replayed: true" in head.lower():
        words.append("replayed")
    try:
        json.loads(body)
    except ValueError:
        words.append("unreadable")
    return " ".join(words)
