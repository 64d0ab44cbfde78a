"""What the codec makes of payloads, and which of them it refuses to open."""

import base64
import itertools
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.api.failure.v1 import Failure
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DefaultFailureConverterWithEncodedAttributes
from temporalio.exceptions import ApplicationError

from tests.codec.keyring import SECRETS, codec_of, keys_of, plain, written
from tests.conftest import drive
from worker.payload_codec import (
    ENCODING,
    KEY_ID_FIELD,
    NONCE_BYTES,
    EncryptingCodec,
    PayloadUnreadable,
    converter_for,
)

PAYLOADS = st.builds(
    Payload,
    metadata=st.dictionaries(st.text(max_size=20), st.binary(max_size=40)),
    data=st.binary(max_size=2_000),
)


@given(st.lists(PAYLOADS, max_size=5))
def test_any_payload_comes_back_as_it_went(payloads: list[Payload]) -> None:
    """Data and metadata of any kind, in order; even such as look encrypted already."""
    codec = codec_of("new", "old")

    async def there_and_back() -> list[Payload]:
        return await codec.decode(await codec.encode(payloads))

    assert drive(there_and_back()) == payloads


async def test_nothing_of_a_payload_is_readable() -> None:
    """Only the encoding and the id of the key stand beside the ciphertext."""
    [sealed] = await codec_of("new").encode([plain(b"a source's name")])
    assert dict(sealed.metadata) == {"encoding": ENCODING, KEY_ID_FIELD: b"new"}
    assert b"source" not in sealed.data
    assert b"json" not in sealed.data


async def test_no_nonce_is_used_twice() -> None:
    """The same payload is another ciphertext each time."""
    sealed = await codec_of("new").encode([plain()] * 1_000)
    assert len({payload.data[:NONCE_BYTES] for payload in sealed}) == len(sealed)
    assert len({payload.data[NONCE_BYTES:] for payload in sealed}) == len(sealed)


async def test_what_was_never_encrypted_passes_through() -> None:
    """A history from before the keys were there is read as ever."""
    before = [plain(), Payload(), Payload(metadata={"encoding": b"binary/null"})]
    assert await codec_of("new").decode(before) == before


async def test_processes_one_step_of_a_rotation_apart_read_each_other() -> None:
    """In both directions; only who skips a step, or drops a key too early, has what it can't open."""
    steps = [codec_of("old"), codec_of("old", "new"), codec_of("new", "old"), codec_of("new")]
    sealed = [await codec.encode([plain()]) for codec in steps]
    assert [one.metadata[KEY_ID_FIELD] for [one] in sealed] == [b"old", b"old", b"new", b"new"]
    for earlier, later in itertools.pairwise(range(len(steps))):
        assert await steps[later].decode(sealed[earlier]) == [plain()]
        assert await steps[earlier].decode(sealed[later]) == [plain()]
    with pytest.raises(PayloadUnreadable, match="'new'"):
        await steps[0].decode(sealed[2])
    with pytest.raises(PayloadUnreadable, match="'old'"):
        await steps[3].decode(sealed[1])


async def test_a_key_that_is_missing_is_named_with_what_to_do() -> None:
    """Whoever reads the message knows which key to add, and where."""
    sealed = await codec_of("other").encode([plain()])
    with pytest.raises(PayloadUnreadable, match=r"the key 'other', .* add it to CHARGEONCE_PAYLOAD_KEYS"):
        await codec_of("new", "old").decode(sealed)


async def test_another_key_under_the_same_id_opens_nothing() -> None:
    """The message names the id and neither key."""
    sealed = await codec_of("new").encode([plain()])
    with pytest.raises(PayloadUnreadable, match="does not open with the key 'new'") as refused:
        await converter_for(keys_of(f"new:{SECRETS['other']}")).decode(sealed)
    assert refused.value.__cause__ is None
    assert not any(secret in repr(refused.value) for secret in SECRETS.values())


async def test_a_payload_with_one_bit_changed_does_not_open() -> None:
    """Nonce, ciphertext and tag, each bit of the id of the key, and a move from one key to another."""
    codec = codec_of("new", "old")
    [sealed] = await codec.encode([plain()])
    for place in range(len(sealed.data)):
        for bit in range(8):
            data = bytearray(sealed.data)
            data[place] ^= 1 << bit
            with pytest.raises(PayloadUnreadable):
                await codec.decode([Payload(metadata=sealed.metadata, data=bytes(data))])
    for place in range(len(b"new")):
        key_id = bytearray(b"new")
        key_id[place] ^= 1
        with pytest.raises(PayloadUnreadable, match="not configured"):
            await codec.decode(
                [Payload(metadata={"encoding": ENCODING, KEY_ID_FIELD: bytes(key_id)}, data=sealed.data)]
            )


async def test_a_payload_is_bound_to_the_id_of_its_key() -> None:
    """Two ids for one key: a payload of one does not open under the other."""
    codec = EncryptingCodec(keys_of(f"a:{SECRETS['new']},b:{SECRETS['new']}"))
    [sealed] = await codec.encode([plain()])
    assert await codec.decode([sealed]) == [plain()]
    sealed.metadata[KEY_ID_FIELD] = b"b"
    with pytest.raises(PayloadUnreadable, match="does not open"):
        await codec.decode([sealed])


@pytest.mark.parametrize("length", [0, 1, NONCE_BYTES - 1, NONCE_BYTES, NONCE_BYTES + 15])
async def test_a_payload_that_was_cut_short_does_not_open(length: int) -> None:
    """Less than a nonce, a nonce alone, or less than a tag: refused as any other that was changed."""
    [sealed] = await codec_of("new").encode([plain()])
    with pytest.raises(PayloadUnreadable, match="does not open"):
        await codec_of("new").decode([Payload(metadata=sealed.metadata, data=sealed.data[:length])])


async def test_a_payload_under_another_encoding_is_no_message() -> None:
    """It passes the codec as something that was never encrypted, and the converter knows no such encoding."""
    converter = converter_for(keys_of(written("new")))
    [sealed] = await converter.encode(["text"])
    sealed.metadata["encoding"] = b"binary/encrypteD"
    with pytest.raises(KeyError, match="encrypteD"):
        await converter.decode([sealed])


async def test_a_hostile_id_of_a_key_is_shown_escaped_and_short() -> None:
    """What stands in a history may have been written by somebody else."""
    for key_id in (b"\x1b[2J\xff", b"x" * 100_000):
        hostile = Payload(metadata={"encoding": ENCODING, KEY_ID_FIELD: key_id}, data=b"x" * 40)
        with pytest.raises(PayloadUnreadable) as refused:
            await codec_of("new").decode([hostile])
        assert str(refused.value).isprintable()
        assert len(str(refused.value)) < 300


def test_without_keys_the_converter_is_the_plain_one() -> None:
    """Nothing is wrapped, so nothing costs."""
    assert converter_for(None) is pydantic_data_converter


def fail() -> NoReturn:
    """Raise as an activity does."""
    raise ApplicationError("cus_synthetic can't be charged", "a detail of cus_synthetic")


async def test_failures_are_encrypted_with_their_messages() -> None:
    """What an exception says may hold ids: message and stack trace are payloads too."""
    converter = converter_for(keys_of(written("new")))
    assert converter.failure_converter_class is DefaultFailureConverterWithEncodedAttributes
    failure = Failure()
    with pytest.raises(ApplicationError) as raised:
        fail()
    await converter.encode_failure(raised.value, failure)
    assert b"cus_synthetic" not in failure.SerializeToString()
    assert b"test_codec" not in failure.SerializeToString()
    decoded = await converter.decode_failure(failure)
    assert isinstance(decoded, ApplicationError)
    assert (decoded.message, decoded.details[0]) == (
        "cus_synthetic can't be charged",
        "a detail of cus_synthetic",
    )


def test_no_key_shows_in_a_repr() -> None:
    """Keys, codec and converter are printed without what they keep."""
    keys = keys_of(written("new", "old"))
    codec = codec_of("new")
    shown = "".join(map(repr, (keys, vars(codec), codec, converter_for(keys)))) + str(keys)
    assert "'new'" in shown
    for key in keys.by_id.values():
        assert base64.b64encode(key.get_secret_value()).decode() not in shown
        assert repr(key.get_secret_value())[2:-1] not in shown
