"""What a destination is: a name, and one try to tell it something.

Addresses come from the operator's environment alone, never from a source, a customer or Stripe, so nobody
outside can point them anywhere. They may hold secrets (a path of a webhook, a password of a mail server), so
they stay in this process: ledger, histories, logs and errors know destinations by their names.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from workflows.domain.errors import ChargeonceError

TRY_SECONDS_MAX = 10.0
BODY_BYTES_MAX = 64 * 1024
LOOPBACK_HOSTS = frozenset(
    {"localhost", "127.0.0.1", "::1"}
)  # where nothing that is in the clear is overheard

Payload = Mapping[str, Any]


class NotDelivered(ChargeonceError):
    """A destination did not take a notification. The message is ours: no address, nothing the peer wrote."""


class Destination(Protocol):
    """Somebody who is to be told."""

    @property
    def name(self) -> str:
        """`webhook`, `slack` or `email`."""

    async def deliver(self, payload: Payload) -> str:
        """Tell it once and return what it answered, in a few words of ours.

        Raises:
            NotDelivered: It did not take it, or nobody knows whether it did.
        """
