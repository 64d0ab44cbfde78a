"""The keys that payloads are encrypted with on their way to Temporal: read once, never shown.

The first key encrypts and every key decrypts. A key is replaced in three steps, each rolled out everywhere
before the next: the new key is added at the end; it is moved to the front; the old key goes once Temporal
keeps no history and no schedule from before the second step (a schedule keeps the key that it was made under,
since its memo can't be changed). Whoever lacks the first key of another process can't read it.
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretBytes, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from workflows.domain.errors import RefusedToStart

KEYS_VARIABLE = "CHARGEONCE_PAYLOAD_KEYS"
FILE_VARIABLE = "CHARGEONCE_PAYLOAD_KEYS_FILE"
KEY_BYTES = 32  # AES-256
# Shorter than a key is in base64: what was written without its id, or in the wrong order, is never an id.
_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_HOW = "write ID:KEY, with KEY from `openssl rand -base64 32`"


@dataclass(frozen=True, slots=True)
class PayloadKeys:
    """Keys by their ids, the one that encrypts first. At least one."""

    by_id: dict[str, SecretBytes]

    @property
    def first_id(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self.by_id))


class PayloadSettings(BaseSettings):
    """Where the keys are: in the variable itself or in a file. Neither: payloads are not encrypted."""

    model_config = SettingsConfigDict(env_prefix="CHARGEONCE_", frozen=True, extra="ignore")

    payload_keys: SecretStr | None = None
    """`id:key`, separated by commas, each key 32 bytes in base64: the first encrypts, all decrypt."""
    payload_keys_file: Path | None = None
    """A file with the same, where a line break separates as a comma does."""

    @field_validator("payload_keys", "payload_keys_file", mode="before")
    @classmethod
    def _none_if_empty(cls, value: object) -> object:
        return value or None


def load_payload_keys() -> PayloadKeys | None:
    """Return the keys of the environment; None where payloads are not encrypted.

    Raises:
        RefusedToStart: They can't be read, or can't be right. Names the place of a fault, never a value.
    """
    settings = PayloadSettings()
    if settings.payload_keys is not None and settings.payload_keys_file is not None:
        raise RefusedToStart(f"{KEYS_VARIABLE} and {FILE_VARIABLE} are both set: set one")
    if settings.payload_keys is not None:
        return parse_payload_keys(settings.payload_keys, KEYS_VARIABLE)
    if settings.payload_keys_file is None:
        return None
    try:
        text = SecretStr(settings.payload_keys_file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RefusedToStart(f"{FILE_VARIABLE} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:  # which repeats what it could not read
        raise RefusedToStart(f"{FILE_VARIABLE} names a file that is not text") from None
    return parse_payload_keys(text, f"the file of {FILE_VARIABLE}")


def parse_payload_keys(text: SecretStr, where: str) -> PayloadKeys:
    """Return the keys that `text` lists; raises RefusedToStart, which names `where` and the place in it."""
    keys: dict[str, SecretBytes] = {}
    for place, entry in enumerate(_entries_of(text.get_secret_value()), start=1):
        key_id, colon, encoded = (part.strip() for part in entry.partition(":"))
        if not colon or _KEY_ID.fullmatch(key_id) is None:
            raise RefusedToStart(f"entry {place} of {where} does not begin with the id of a key: {_HOW}")
        try:
            key = SecretBytes(base64.b64decode(encoded, validate=True))
        except (binascii.Error, ValueError):
            raise RefusedToStart(f"the key in entry {place} of {where} is not base64: {_HOW}") from None
        if len(key) != KEY_BYTES:
            raise RefusedToStart(
                f"the key in entry {place} of {where} has {len(key)} bytes in place of {KEY_BYTES}: {_HOW}"
            )
        if key_id in keys:
            raise RefusedToStart(f"entry {place} of {where} has the id of an entry before it")
        keys[key_id] = key
    if not keys:
        raise RefusedToStart(f"{where} lists no key: {_HOW}, or leave it unset")
    return PayloadKeys(keys)


def _entries_of(text: str) -> Iterable[str]:
    return (entry for part in re.split(r"[,\n]", text) if (entry := part.strip()))
