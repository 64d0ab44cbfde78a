"""Payloads are encrypted before they leave for Temporal, and decrypted when they come back.

AES-256-GCM with a random nonce of 96 bits; NIST SP 800-38D section 8.3 bounds that to 2**32 payloads a key,
some hundred thousand runs of a million charges. Encoding and key id travel beside the ciphertext and are
bound to it. What was never encrypted is passed through, so that histories from before go on; an attacker who
may write into Temporal's database can therefore put plain payloads there. What stays readable at Temporal:
workflow ids, types, task queues, search attributes and times.
"""

import os
from collections.abc import Sequence
from dataclasses import replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes, PayloadCodec

from worker.payload_keys import KEYS_VARIABLE, PayloadKeys
from workflows.domain.echo import echo
from workflows.domain.errors import ChargeonceError

ENCODING = b"binary/encrypted"  # what Temporal's samples and UI call it
ENCODING_FIELD = "encoding"
KEY_ID_FIELD = "encryption-key-id"
NONCE_BYTES = 12


class PayloadUnreadable(ChargeonceError):
    """An encrypted payload can't be opened; the message names the key and says what to do."""


class EncryptingCodec(PayloadCodec):
    """Encrypts with the first of its keys and decrypts with the one that a payload names."""

    def __init__(self, keys: PayloadKeys) -> None:
        self._first_id = keys.first_id
        self._ciphers = {key_id: AESGCM(key.get_secret_value()) for key_id, key in keys.by_id.items()}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return each payload, whole and with its metadata, inside an encrypted one."""
        return [self._encrypt(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Return what `encode` was given; what is not encrypted as it is. Raises PayloadUnreadable."""
        return [self._decrypt(payload) for payload in payloads]

    def _encrypt(self, payload: Payload) -> Payload:
        nonce, key_id = os.urandom(NONCE_BYTES), self._first_id.encode()
        sealed = self._ciphers[self._first_id].encrypt(nonce, payload.SerializeToString(), _bound(key_id))
        return Payload(metadata={ENCODING_FIELD: ENCODING, KEY_ID_FIELD: key_id}, data=nonce + sealed)

    def _decrypt(self, payload: Payload) -> Payload:
        if payload.metadata.get(ENCODING_FIELD) != ENCODING:
            return payload
        key_id = payload.metadata.get(KEY_ID_FIELD, b"")
        shown = echo(key_id.decode(errors="replace"))
        cipher = self._ciphers.get(key_id.decode(errors="replace"))
        if cipher is None:
            raise PayloadUnreadable(
                f"a payload was encrypted with the key {shown}, which is not configured here: add it to "
                f"{KEYS_VARIABLE}, at the end of the list"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            return Payload.FromString(cipher.decrypt(nonce, sealed, _bound(key_id)))
        except (InvalidTag, ValueError):  # the latter for a nonce that is cut short
            raise PayloadUnreadable(
                f"a payload does not open with the key {shown}: it was changed, or {KEYS_VARIABLE} has "
                "another key under that id"
            ) from None


def converter_for(keys: PayloadKeys | None) -> DataConverter:
    """Return how messages become payloads: in the open without keys.

    With keys, messages and stack traces of failures are encrypted as well: Temporal shows "Encoded failure".
    """
    if keys is None:
        return pydantic_data_converter
    return replace(
        pydantic_data_converter,
        payload_codec=EncryptingCodec(keys),
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
    )


def _bound(key_id: bytes) -> bytes:
    return ENCODING + b"\0" + key_id  # neither holds a NUL, so no two pairs bind to the same bytes
