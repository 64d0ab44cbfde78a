"""Ids that carry their number, so that nothing needs to remember which is which.

An id is the prefix, 16 hex digits of a hash of seed, account and number, and the number itself in 8 more.
"""

from deploy.stripe_sim.draws import make_id

_HASH_CHARACTERS = 16
_NUMBER_CHARACTERS = 8


def make_numbered_id(prefix: str, account_id: str, number: int, *, seed: int) -> str:
    """Return the id of an account's object of this kind and number (from 0 to 16^8)."""
    head = make_id(prefix, account_id, number, seed=seed)[: len(prefix) + 1 + _HASH_CHARACTERS]
    return f"{head}{number:0{_NUMBER_CHARACTERS}x}"


def read_number(prefix: str, account_id: str, object_id: str, *, seed: int) -> int | None:
    """Return the number in an id, or None if no object of this account and kind could have it."""
    digits = object_id[-_NUMBER_CHARACTERS:]
    if not all(digit in "0123456789abcdef" for digit in digits) or not digits:
        return None
    number = int(digits, 16)
    return number if object_id == make_numbered_id(prefix, account_id, number, seed=seed) else None
