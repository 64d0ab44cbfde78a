"""Keys as the environment names them, and what is said of those that can't be right."""

import base64
import os
from pathlib import Path

import pytest

from tests.codec.keyring import SECRETS, written
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE, PayloadSettings, load_payload_keys
from worker.temporal_client import connect_temporal
from workflows.domain.errors import RefusedToStart


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


@pytest.mark.parametrize("value", [None, ""])
def test_without_keys_nothing_is_encrypted(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    """Not set and empty are the same."""
    if value is not None:
        monkeypatch.setenv(KEYS_VARIABLE, value)
        monkeypatch.setenv(FILE_VARIABLE, value)
    assert load_payload_keys() is None


def test_the_first_key_is_the_one_that_encrypts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is the list's; spaces and a last comma do no harm."""
    monkeypatch.setenv(KEYS_VARIABLE, f" new : {SECRETS['new']} ,old:{SECRETS['old']},")
    keys = load_payload_keys()
    assert keys is not None
    assert keys.first_id == "new"
    assert [base64.b64encode(key.get_secret_value()).decode() for key in keys.by_id.values()] == [
        SECRETS["new"],
        SECRETS["old"],
    ]


def test_a_file_holds_keys_a_line_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a secret is mounted into a container."""
    file = tmp_path / "payload_keys"
    file.write_text(written("new") + "\n" + written("old") + "\n")
    monkeypatch.setenv(FILE_VARIABLE, str(file))
    keys = load_payload_keys()
    assert keys is not None
    assert list(keys.by_id) == ["new", "old"]


KEY = SECRETS["new"]
FAULTS = {
    "no id": (KEY, "entry 1 of CHARGEONCE_PAYLOAD_KEYS does not begin with the id of a key"),
    "an empty id": (f":{KEY}", "entry 1 of .* does not begin with the id"),
    "in the wrong order": (f"{KEY}:new", "entry 1 of .* does not begin with the id"),
    "an id with a blank": (f"a b:{KEY}", "entry 1 of .* does not begin with the id"),
    "an id too long": (f"{'k' * 33}:{KEY}", "entry 1 of .* does not begin with the id"),
    "not base64": (f"old:{SECRETS['old']},new:{KEY[:-2]}!=", "the key in entry 2 of .* is not base64"),
    "base64 with a letter too many": (f"new:{KEY[:9]}!{KEY[9:]}", "the key in entry 1 of .* is not base64"),
    "letters that are not ASCII": (f"new:{KEY[:-2]}é=", "the key in entry 1 of .* is not base64"),
    "half a key": (
        f"new:{base64.b64encode(os.urandom(16)).decode()}",
        "the key in entry 1 of .* has 16 bytes in place of 32",
    ),
    "no key": ("new:", "the key in entry 1 of .* has 0 bytes in place of 32"),
    "twice": (f"new:{KEY},new:{SECRETS['old']}", "entry 2 of .* has the id of an entry before it"),
    "nothing but commas": (" , ,", "CHARGEONCE_PAYLOAD_KEYS lists no key"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_keys_that_can_not_be_right_are_told_by_their_place(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The message says where the fault is and how to mend it, and repeats nothing of what was written."""
    value, message = FAULTS[name]
    monkeypatch.setenv(KEYS_VARIABLE, value)
    with pytest.raises(RefusedToStart, match=message) as refused:
        load_payload_keys()
    assert refused.value.__cause__ is None
    for part in value.replace(",", ":").split(":"):
        assert len(part) < 8 or part not in str(refused.value)


def test_a_file_that_can_not_be_read_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not there, or no text: neither goes on without encryption."""
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "absent"))
    with pytest.raises(RefusedToStart, match=f"{FILE_VARIABLE} can't be read: No such file"):
        load_payload_keys()
    (tmp_path / "absent").write_bytes(b"\xff\xfe")
    with pytest.raises(RefusedToStart, match="not text"):
        load_payload_keys()
    (tmp_path / "absent").write_bytes(b"")
    with pytest.raises(RefusedToStart, match=f"the file of {FILE_VARIABLE} lists no key"):
        load_payload_keys()


def test_two_places_for_keys_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever set both may mean either."""
    monkeypatch.setenv(KEYS_VARIABLE, written("new"))
    monkeypatch.setenv(FILE_VARIABLE, "/nonexistent")
    with pytest.raises(RefusedToStart, match="both set"):
        load_payload_keys()


def test_no_key_shows_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither printed nor dumped."""
    monkeypatch.setenv(KEYS_VARIABLE, written("new"))
    settings = PayloadSettings()
    assert (
        KEY not in repr(settings) + str(settings) + repr(settings.model_dump()) + settings.model_dump_json()
    )


async def test_a_client_is_not_made_with_keys_that_can_not_be_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before Temporal is asked anything: nothing may go there in the open by mistake."""
    monkeypatch.setenv(KEYS_VARIABLE, "new:short")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    with pytest.raises(RefusedToStart, match="entry 1"):
        await connect_temporal(within_seconds=0.5)
