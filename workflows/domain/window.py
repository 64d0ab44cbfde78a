"""The window rule: may a key be sent again, must we wait, or is a new version allowed?

Stripe promises to replay a key for 24 hours from its first request and may forget it at any moment after
(https://docs.stripe.com/api/idempotent_requests). Before that, resending is the safest question there is;
after it, resending is a new charge. In between stands a safety margin in which only lookups run.
"""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.errors import invariant

WINDOW_SECONDS = 24 * 60 * 60
SAFETY_MARGIN_SECONDS = 15 * 60
SKEW_SECONDS_MAX = 60


class Permission(StrEnum):
    """What may be done with a key whose outcome is unknown after a lookup."""

    RESEND = "resend"
    WAIT = "wait"
    REKEY = "rekey"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the window permits, why, and for how long to wait where it is WAIT."""

    permission: Permission
    reason: str
    wait_seconds: float = 0.0
    alarm: bool = False


def rule(
    *,
    age_seconds: float,
    lookup_age_seconds: float | None,
    skew_seconds: float | None,
    stored_failure: bool,
) -> Ruling:
    """Return what may be done with the newest key of an operation.

    Args:
        age_seconds: The key's age by the ledger's clock, from its first intent.
        lookup_age_seconds: The key's age when the complete lookup that did not settle the charge began;
            None where there was no complete lookup.
        skew_seconds: Ledger's clock minus Stripe's `Date`; None where it is not known.
        stored_failure: Stripe has replayed a 5xx under this key, so resending only repeats it.
    """
    remaining_seconds = WINDOW_SECONDS - age_seconds
    if lookup_age_seconds is None or skew_seconds is None:
        return Ruling(Permission.WAIT, "no complete lookup at Stripe yet", wait_seconds=30)
    invariant(lookup_age_seconds <= age_seconds, "a lookup can't be younger than now")
    if (skewed := rule_on_skew(skew_seconds)) is not None:
        return skewed
    if age_seconds < WINDOW_SECONDS - SAFETY_MARGIN_SECONDS:
        if stored_failure:
            return Ruling(
                Permission.WAIT,
                "Stripe replays a stored failure: lookups only",
                wait_seconds=remaining_seconds,
            )
        return Ruling(Permission.RESEND, "the same key is safe inside the window")
    if age_seconds < WINDOW_SECONDS:
        return Ruling(
            Permission.WAIT, "too close to the window's end to resend", wait_seconds=remaining_seconds
        )
    if lookup_age_seconds < WINDOW_SECONDS:
        return Ruling(Permission.WAIT, "the window passed after the lookup: look again", wait_seconds=0)
    return Ruling(Permission.REKEY, "the window has passed and a later lookup did not settle it")


def rule_on_skew(skew_seconds: float | None) -> Ruling | None:
    """Return the wait, with an alarm, that a clock too far off Stripe's imposes (I10); None where it is fine.

    Args:
        skew_seconds: Ledger's clock minus Stripe's `Date`; None where it is not known.
    """
    if skew_seconds is None or abs(skew_seconds) <= SKEW_SECONDS_MAX:
        return None
    return Ruling(
        Permission.WAIT,
        f"the ledger's clock is {skew_seconds:+.0f} s off Stripe's; nothing is sent or re-keyed",
        wait_seconds=60,
        alarm=True,
    )
