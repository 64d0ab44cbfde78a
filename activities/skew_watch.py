"""How far the ledger's clock is off Stripe's, by the newest answer that told (invariant I10).

One per account and process. The time of a send is known to lie between its intent's commit and its answer,
by the ledger's clock; what Stripe's `Date` lies outside of that is skew. So no wait, however long, looks like
it.
"""

import asyncio

from activities.gateway.calls import boottime_seconds
from workflows.domain.window import Ruling, rule_on_skew

LOOK_AGAIN_SECONDS = 1.0


class SkewWatch:
    """The newest skew that an answer showed, and who may ask Stripe for a newer one."""

    def __init__(self) -> None:
        self._skew_seconds: float | None = None
        self._began_seconds = float("-inf")
        self._looked_seconds = float("-inf")
        self.looking = asyncio.Lock()  # one lookup answers for everybody

    def rule(self) -> Ruling | None:
        """Return the wait, with an alarm, that the clocks impose on first sends; None where they agree."""
        return rule_on_skew(self._skew_seconds)

    def observe(self, skew_seconds: float | None, *, began_seconds: float) -> None:
        """Take in what an answer showed; one to an older request than the newest says nothing.

        Args:
            skew_seconds: Ledger's clock minus Stripe's; None where the answer had no `Date`.
            began_seconds: `boottime_seconds` when the request was about to leave.
        """
        if skew_seconds is not None and began_seconds >= self._began_seconds:
            self._skew_seconds, self._began_seconds = skew_seconds, began_seconds

    def may_look(self) -> bool:
        """Whether it is time for another lookup of the clocks; if so, it is the caller's."""
        now = boottime_seconds()
        if now - self._looked_seconds < LOOK_AGAIN_SECONDS:
            return False
        self._looked_seconds = now
        return True


def skew_of_send(
    *, intended_epoch_seconds: float, elapsed_seconds: float, stripe_epoch_seconds: float | None
) -> float | None:
    """Return what a send's answer shows of ledger's clock minus Stripe's; None without a `Date`.

    Args:
        intended_epoch_seconds: The ledger's clock when the intent was committed.
        elapsed_seconds: From there to the answer, 0 or more.
        stripe_epoch_seconds: The answer's `Date`, of one-second grain.
    """
    if stripe_epoch_seconds is None:
        return None
    if stripe_epoch_seconds < intended_epoch_seconds:
        return intended_epoch_seconds - stripe_epoch_seconds
    return min(0.0, intended_epoch_seconds + elapsed_seconds - stripe_epoch_seconds)
