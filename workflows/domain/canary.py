"""Whether the rest of a run may follow its canary without anybody looking: one pure rule."""

from dataclasses import dataclass

from workflows.domain.errors import invariant


@dataclass(frozen=True, slots=True)
class CanaryVerdict:
    """Go on or hold, and in one sentence why."""

    goes_on: bool
    reason: str


def judge_canary(
    *, lines: int, declined: int, not_paid_otherwise: int, unknown: int, declined_percent_max: float | None
) -> CanaryVerdict:
    """Return whether the run may go on.

    Without a `declined_percent_max` (0 to 100) somebody always looks. With one the run goes on where every
    line has ended and at most that share of them without money: declined, or otherwise not paid, since a
    canary that Stripe refuses warns no less than one that banks decline. An unknown outcome proves nothing.

    Args:
        lines: How many lines the canary has, 0 or more; the three below are part of it.
        declined: How many ended declined.
        not_paid_otherwise: How many ended refused, canceled, in review or waiting for their customer.
        unknown: How many have not ended.
        declined_percent_max: The share that is allowed, in percent.
    """
    unpaid = declined + not_paid_otherwise
    invariant(0 <= unpaid + unknown <= lines, f"{unpaid} unpaid and {unknown} unknown of {lines} lines")
    found = (
        f"canary of {lines} lines: {lines - unpaid - unknown} paid, {declined} declined, "
        f"{not_paid_otherwise} not paid otherwise, {unknown} unknown"
    )
    rule = f"at most {declined_percent_max or 0:g} % may go unpaid"
    if declined_percent_max is None:
        return CanaryVerdict(goes_on=False, reason=f"{found}; somebody is to look at it")
    if unknown:
        return CanaryVerdict(goes_on=False, reason=f"{found}; what is unknown proves nothing")
    if unpaid * 100 > declined_percent_max * lines:
        return CanaryVerdict(goes_on=False, reason=f"{found}; {rule}")
    return CanaryVerdict(goes_on=True, reason=f"{found}; {rule}")
