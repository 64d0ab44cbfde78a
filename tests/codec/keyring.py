"""Keys that are made up anew for each process of tests, and payloads to try them on."""

import base64
import os

from pydantic import SecretStr
from temporalio.api.common.v1 import Payload

from worker.payload_codec import EncryptingCodec
from worker.payload_keys import KEY_BYTES, PayloadKeys, parse_payload_keys

SECRETS = {name: base64.b64encode(os.urandom(KEY_BYTES)).decode() for name in ("old", "new", "other")}


def written(*names: str) -> str:
    """Return keys as the environment lists them; each name has a key of its own."""
    return ",".join(f"{name}:{SECRETS[name]}" for name in names)


def keys_of(text: str) -> PayloadKeys:
    """Return the keys that a text lists."""
    return parse_payload_keys(SecretStr(text), "a test")


def codec_of(*names: str) -> EncryptingCodec:
    """Return a codec that encrypts with the first of these keys."""
    return EncryptingCodec(keys_of(written(*names)))


def plain(data: bytes = b'{"run_id":"synthetic"}') -> Payload:
    """Return a payload as a converter makes them."""
    return Payload(metadata={"encoding": b"json/plain"}, data=data)
