"""How an answer leaves when it does not leave whole: cut off, stalled, or in crumbs."""

import asyncio
import contextlib
import socket
import struct
from typing import Final

from deploy.stripe_sim.incoming import Pacing

CRUMBS_MAX: Final = 64
# l_onoff = 1, l_linger = 0: closing sends RST instead of FIN.
_NO_LINGER: Final = struct.pack("ii", 1, 0)


async def deliver(transport: asyncio.Transport, data: bytes, body_bytes: int, pacing: Pacing) -> None:
    """Send an answer whose last `body_bytes` are its body, as slowly or incompletely as `pacing` says."""
    half = len(data) - body_bytes + body_bytes // 2
    first, rest = data[:half], b"" if pacing.cut else data[half:]
    if pacing.drip_seconds:
        await _drip(transport, first + rest, body_bytes, pacing.drip_seconds)
    else:
        transport.write(first)
        await asyncio.sleep(pacing.stall_seconds)
        transport.write(rest)
    if pacing.cut:
        end_connection(transport, pacing.cut)


def end_connection(transport: asyncio.Transport, how: str) -> None:
    """Close a connection in good order, or reset it."""
    if how == "reset":
        with contextlib.suppress(OSError):
            plain: socket.socket = transport.get_extra_info("socket")
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        transport.abort()
    else:
        transport.close()


async def _drip(transport: asyncio.Transport, data: bytes, body_bytes: int, seconds: float) -> None:
    head, body = data[: len(data) - body_bytes], data[len(data) - body_bytes :]
    crumbs = max(1, min(CRUMBS_MAX, len(body)))
    transport.write(head)
    for number in range(crumbs):
        await asyncio.sleep(seconds / crumbs)
        transport.write(body[len(body) * number // crumbs : len(body) * (number + 1) // crumbs])
