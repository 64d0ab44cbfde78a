"""Which requests a fault meets."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Match:
    """What is left out always matches.

    `path` and `key` are regular expressions, searched; `method` is one method, or `*`. `customer` is the
    customer of the request or of the PaymentIntent that it names, `account` the account that it is for. Of
    the requests that match so far, the fault meets every `nth`, or those in `only`, from `from_request` to
    `to_request`, each with `probability`, until it has met `times` of them.
    """

    method: str = "POST"
    path: str = "^/v1/"
    nth: int = 0
    only: tuple[int, ...] = ()
    key: str | None = None
    customer: str | None = None
    account: str | None = None
    probability: float = 1.0
    from_request: int = 0
    to_request: int = 0
    times: int = 0

    def meets_count(self, count: int) -> bool:
        """Return whether the request of this number, counted from 1, is one of those meant."""
        if count < self.from_request or (self.to_request and count > self.to_request):
            return False
        return not (self.nth and count % self.nth) and not (self.only and count not in self.only)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a fault may look at. `seen` says how often the key was on the wire, this time included."""

    method: str
    path: str
    account: str
    key: str | None
    seen: int
    customer: Callable[[], str | None]
