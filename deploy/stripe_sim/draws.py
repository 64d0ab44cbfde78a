"""Ids and dice, all from one seed.

Every number is a hash of the seed and of what it is for. There is no stream position to lose, so a restart
changes nothing, one more fault does not reshuffle the others, and a key meets the same dice however requests
interleave.
"""

import hashlib


def make_id(prefix: str, *parts: object, seed: int) -> str:
    """Return an id of Stripe's look: the prefix and 24 characters."""
    text = f"{seed}\0{prefix}\0" + "\0".join(map(str, parts))
    return f"{prefix}_{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def draw_fraction(*parts: object, seed: int) -> float:
    """Return a number in [0, 1) that depends on the seed and on the parts alone."""
    text = f"{seed}\0" + "\0".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "big") / (1 << 56)
