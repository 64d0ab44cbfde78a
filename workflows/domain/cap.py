"""The cap: the most that a run may ever move, per currency (DESIGN.md section 5).

The approved total plus a tenth, rounded down: a cap may be a little too tight, never too wide.

What counts against it is held before a request leaves, per (account, PaymentIntent). `judge_outcome` says
what an answer determines about the request it answers, and `stand_of` what a PaymentIntent's status means for
what is held; the ledger's `vault_count` releases by these two and by nothing else.
"""

from collections.abc import Mapping
from enum import StrEnum

from workflows.domain.errors import invariant
from workflows.domain.money import parse_currency, round_down_to_step
from workflows.domain.vault import Effect

CAP_PERCENT = 110

_MOVES_NOTHING = frozenset({Effect.READ, Effect.HARMLESS})
_NOT_EXECUTED = frozenset({400, 401, 403, 404, 429})


def cap_for(total_by_currency: Mapping[str, int]) -> dict[str, int]:
    """Return the cap in minor units for each currency of the approved totals (0 or more, minor units).

    Rounded down to an amount that is chargeable in its currency. A currency that is not in the totals has no
    cap, which means nothing of it may move.

    Raises:
        InvalidInput: Unknown currency.
    """
    caps: dict[str, int] = {}
    for currency, total_minor in total_by_currency.items():
        invariant(total_minor >= 0, f"an approved total is not negative: {total_minor} {currency}")
        code = parse_currency(currency)
        invariant(code not in caps, f"two totals for {code}")
        caps[code] = round_down_to_step(total_minor * CAP_PERCENT // 100, code)
    return caps


def fits(cap: int, spent: int, amount: int) -> bool:
    """Tell whether `amount` may still move when `spent` of `cap` has (one currency, minor units, 0 or more).

    Exactly the cap fits.
    """
    invariant(cap >= 0, f"a cap is not negative: {cap}")
    invariant(spent >= 0, f"spent is not negative: {spent}")
    invariant(amount >= 0, f"an amount is not negative: {amount}")
    return spent + amount <= cap


class Outcome(StrEnum):
    """What an answer determines about the one request that it answers."""

    EXECUTED = "executed"  # Stripe did what was asked, or tried and declined
    NOT_EXECUTED = "not_executed"  # this request did nothing and will do nothing
    UNKNOWN = "unknown"  # it may have, or may still
    READ = "read"  # there was nothing to execute


def judge_outcome(
    effect: Effect, *, http_status: int | None, code: str | None, names_object: bool
) -> Outcome:
    """Return what an answer determines, by the rules of the verdict table (`workflows.domain.verdict`).

    Args:
        effect: What the request could do.
        http_status: None where no complete answer came.
        code: The error's code, if there is one.
        names_object: Whether the answer shows the PaymentIntent or refund that it is about, readably.
    """
    if effect in _MOVES_NOTHING:
        return Outcome.READ
    if http_status is None:
        return Outcome.UNKNOWN
    if 200 <= http_status < 300 or http_status == 402:
        return Outcome.EXECUTED if names_object else Outcome.UNKNOWN
    if http_status in _NOT_EXECUTED or (http_status == 409 and code == "idempotency_key_in_use"):
        return Outcome.NOT_EXECUTED
    return Outcome.UNKNOWN


class Stand(StrEnum):
    """What a PaymentIntent's status means for the money that is held for it."""

    SETTLES = "settles"  # the money has moved
    ENDS = "ends"  # it never will
    WAITS = "waits"  # nothing moves unless somebody confirms again: an open request may
    MOVES = "moves"  # it may move without another request: goes on being held


def stand_of(status: str) -> Stand:
    """Return what a status means for what is held. A status nobody knows may move money."""
    match status:
        case "succeeded":
            return Stand.SETTLES
        case "canceled":
            return Stand.ENDS
        case "requires_payment_method" | "requires_confirmation":
            return Stand.WAITS
        case _:
            return Stand.MOVES
