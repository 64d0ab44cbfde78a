"""What a vault key looks like, and how that of a run is made: derived, so that nobody has to keep it.

Whoever holds the vault secret derives a run's key from what anyone may know (run, account, mode, scope,
serial); the database keeps the SHA-256 and the public id, which is derived too, so the same key is never
issued twice. One more on the serial makes another key.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.errors import invariant

VAULT_SECRET_BYTES_MIN = 32
CHANCE_BYTES = 64  # what `random_vault_key` makes a key of

_SECRET_DIGITS = 43  # 256 bits in base 62
_ID_DIGITS = 10
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SEPARATOR = "\x1f"
# One secret, two purposes that never meet: what is public of a key tells nothing about the rest of it.
_KEY_PURPOSE, _ID_PURPOSE = "chargeonce vault key 1", "chargeonce vault key id 1"
_KEY = re.compile(
    rf"(?P<key_id>vk_(?P<mode>test|live)_[0-9A-Za-z]{{{_ID_DIGITS}}})[0-9A-Za-z]{{{_SECRET_DIGITS}}}"
)


class Mode(StrEnum):
    """Whether a key stands for a test key or a live key of Stripe's: the proxy never mixes them."""

    TEST = "test"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class VaultKey:
    """What is known of a vault key without being it: what is stored, and the id by which people name it."""

    key_id: str
    mode: Mode
    sha256: bytes  # of the whole key; a salt would add nothing to 256 bits of entropy


def parse_vault_key(text: str) -> VaultKey | None:
    """Return what is known of a text that has the shape of a vault key, None for any other text."""
    match = _KEY.fullmatch(text)
    if match is None:
        return None
    return VaultKey(match["key_id"], Mode(match["mode"]), hashlib.sha256(text.encode()).digest())


def format_vault_key(mode: Mode, id_digits: str, secret_digits: str) -> str:
    """Return the key: `vk_test_`, 10 digits that are its public id, 43 that are secret, all in base 62."""
    key = f"vk_{mode.value}_{id_digits}{secret_digits}"
    invariant(len(id_digits) == _ID_DIGITS and parse_vault_key(key) is not None, "that is no vault key")
    return key


def derive_vault_key(secret: bytes, *, run_id: str, account: str, mode: Mode, scope: str, serial: int) -> str:
    """Return the vault key of a run for one use of it. The same for the same values, on any machine.

    Args:
        secret: The vault secret, 32 bytes or more.
        run_id: The run.
        account: Whose money.
        mode: Test or live.
        scope: What the key is for, a name; what it may do is decided by the row in the database.
        serial: From 1.
    """
    invariant(
        len(secret) >= VAULT_SECRET_BYTES_MIN, f"a vault secret has at least {VAULT_SECRET_BYTES_MIN} bytes"
    )
    invariant(serial >= 1, f"serials start at 1, not {serial}")
    fields = (run_id, account, mode.value, scope, str(serial))
    invariant(all(_SEPARATOR not in field for field in fields), "a field holds the separator")
    digests = [
        hmac.digest(secret, _SEPARATOR.join((purpose, *fields)).encode(), "sha256")
        for purpose in (_ID_PURPOSE, _KEY_PURPOSE)
    ]
    return _key_of(mode, *digests)


def random_vault_key(mode: Mode, chance: bytes) -> str:
    """Return a vault key made of 64 random bytes, for a use that is no run's."""
    invariant(len(chance) == CHANCE_BYTES, f"a vault key is made of {CHANCE_BYTES} random bytes")
    half = CHANCE_BYTES // 2
    return _key_of(mode, chance[:half], chance[half:])


def _key_of(mode: Mode, id_bytes: bytes, secret_bytes: bytes) -> str:
    return format_vault_key(mode, _base62(id_bytes, _ID_DIGITS), _base62(secret_bytes, _SECRET_DIGITS))


def _base62(digest: bytes, digits: int) -> str:
    """Return the lowest digits of 32 bytes in base 62; 43 of them are all there are."""
    number, letters = int.from_bytes(digest), []
    for _ in range(digits):
        number, index = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[index])
    return "".join(reversed(letters))
