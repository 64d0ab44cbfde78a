"""What the simulator's own book and journal say: every number about money or requests is theirs."""

from collections.abc import Iterator
from typing import Any

from deploy.stripe_sim.client import call_sim
from workflows.domain.errors import ChargeonceError

PAGE = 5_000


class BookDisagrees(ChargeonceError):
    """The book does not show that everybody was charged once, so no speed is worth reporting."""


def read_summary(url: str) -> dict[str, Any]:
    """Return the book's sums, double charges by identity included."""
    summary: dict[str, Any] = call_sim(url, "GET", "/_sim/book/summary?identity=chargeonce_charge")
    return summary


def charged_once(url: str, before: dict[str, Any], charges: int) -> None:
    """Check that since `before` the book shows `charges` payments, each of another identity.

    Raises:
        BookDisagrees: It does not.
    """
    after = read_summary(url)
    moved = after["movements"] - before["movements"]
    doubles = len(after["double_charges"])
    if moved != charges or doubles:
        raise BookDisagrees(f"{charges} were due, the book has {moved} payments, {doubles} double charges")


def read_journal(url: str, since: int) -> Iterator[dict[str, Any]]:
    """Yield the requests on the wire after the first `since` ones, in order."""
    while True:
        page = call_sim(url, "GET", f"/_sim/journal?since={since}&limit={PAGE}")["requests"]
        if not page:
            return
        yield from page
        since += len(page)
