"""The cap: the most that a run may ever move, per currency (DESIGN.md section 5).

The approved total plus a tenth, rounded down: a cap may be a little too tight, never too wide.
"""

from collections.abc import Mapping

from workflows.domain.errors import invariant
from workflows.domain.money import parse_currency, round_down_to_step

CAP_PERCENT = 110


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
