"""A process that delivers events as fast as they are acknowledged, and again whatever was not.

Reads one JSON object from standard input: `url`, `secret`, `bodies` (texts) and `connections`. Prints a line
once the first event is acknowledged, and at the end one JSON object: the ids that were acknowledged, and the
milliseconds that each acknowledgement took.
"""

import asyncio
import json
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import uvloop

from workflows.domain.webhook_signature import sign

PAUSE_SECONDS = 0.05
ANSWER_SECONDS = 15.0


@dataclass
class Hammer:
    """What is to be delivered, and what came of it."""

    host: str
    port: int
    path: str
    secret: bytes
    waiting: deque[bytes]
    acknowledged: list[str] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    repeated: int = 0

    async def deliver(self) -> None:
        """Deliver over one connection after the other until nothing waits."""
        while self.waiting:
            try:
                reader, writer = await asyncio.open_connection(self.host, self.port)
            except OSError:
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            try:
                await self._deliver_over(reader, writer)
            except (OSError, EOFError, TimeoutError):
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                writer.close()

    async def _deliver_over(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while self.waiting:
            body = self.waiting.popleft()
            began = time.perf_counter()
            try:
                writer.write(self._request(body))
                async with asyncio.timeout(ANSWER_SECONDS):
                    status = await _read_status(reader)
            except BaseException:
                self._again(body)
                raise
            if status == 200:
                self.milliseconds.append((time.perf_counter() - began) * 1_000)
                if not self.acknowledged:
                    print("acknowledged", flush=True)
                self.acknowledged.append(json.loads(body)["id"])
            else:
                self._again(body)
                await asyncio.sleep(PAUSE_SECONDS)

    def _again(self, body: bytes) -> None:
        self.repeated += 1
        self.waiting.append(body)

    def _request(self, body: bytes) -> bytes:
        signature = sign(self.secret, body, at_epoch_seconds=int(time.time()))
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
            f"Stripe-Signature: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


async def _read_status(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    lowered = head.lower()
    place = lowered.find(b"content-length:")
    if place >= 0:
        await reader.readexactly(int(lowered[place + 15 : lowered.index(b"\r\n", place)]))
    return int(head.split(b" ", 2)[1])


async def run(order: dict[str, Any]) -> None:
    """Deliver everything and print what came of it."""
    parts = urlsplit(order["url"])
    waiting = deque(body.encode() for body in order["bodies"])
    hammer = Hammer(parts.hostname or "", parts.port or 0, parts.path, order["secret"].encode(), waiting)
    began = time.perf_counter()
    await asyncio.gather(*(hammer.deliver() for _ in range(order["connections"])))
    print(
        json.dumps(
            {
                "acknowledged": hammer.acknowledged,
                "milliseconds": hammer.milliseconds,
                "repeated": hammer.repeated,
                "seconds": time.perf_counter() - began,
            }
        )
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(json.load(sys.stdin)))
