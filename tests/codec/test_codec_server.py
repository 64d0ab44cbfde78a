"""The codec server over real sockets: the protocol, who may ask, and what it makes of anything else."""

import asyncio
import base64
import gzip
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload

from tests.codec.keyring import SECRETS, codec_of, plain, written
from tests.conftest import drive
from tests.forking import Nursery
from tests.proxy.secret_scan import malformed_requests, send_raw
from worker import listening
from worker.codec_server import app
from worker.codec_server.server import open_codec_server
from worker.codec_server.settings import CodecSettings, load_codec_settings
from worker.payload_codec import ENCODING, KEY_ID_FIELD
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE
from workflows.domain.errors import RefusedToStart

TOKEN = "a-synthetic-token-of-tests"
UI = "http://127.0.0.1:8233"
ELSEWHERE = "http://127.0.0.1:8234"


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEYS_VARIABLE, written("new", "old"))
    monkeypatch.delenv(FILE_VARIABLE, raising=False)


@dataclass
class Counter:
    """A server at `url`, and somebody who asks it."""

    url: str
    session: aiohttp.ClientSession

    async def ask(
        self, path: str, body: bytes | str, *, method: str = "POST", **headers: str
    ) -> tuple[int, str, dict[str, str]]:
        """Return status, text and headers of the answer; underlines in headers' names are hyphens."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.request(method, self.url + path, data=body, headers=sent) as response:
            return response.status, await response.text(), dict(response.headers)

    async def translate(self, path: str, *payloads: Payload, **headers: str) -> list[Payload]:
        """Return what the server makes of payloads."""
        status, text, _ = await self.ask(path, document(*payloads), **headers)
        assert status == 200, text
        return [
            Payload(
                metadata={name: base64.b64decode(value) for name, value in one["metadata"].items()},
                data=base64.b64decode(one["data"]),
            )
            for one in json.loads(text)["payloads"]
        ]


def document(*payloads: Payload) -> str:
    """Return a body of the protocol."""
    return json.dumps(
        {
            "payloads": [
                {
                    "metadata": {
                        name: base64.b64encode(value).decode() for name, value in one.metadata.items()
                    },
                    "data": base64.b64encode(one.data).decode(),
                }
                for one in payloads
            ]
        }
    )


@asynccontextmanager
async def open_counter(**changes: Any) -> AsyncIterator[Counter]:
    """Run a codec server in this event loop, for the UI alone and without a token."""
    settings = CodecSettings(**{"port": 0, "ui_origin": UI, **changes})
    async with open_codec_server(settings) as url, aiohttp.ClientSession() as session:
        yield Counter(url, session)


async def test_it_encodes_as_workers_do_and_decodes_what_they_wrote() -> None:
    """Several payloads at once, in order, of any of the keys, and some that were never encrypted."""
    first, second = plain(b'"first"'), plain(bytes(range(256)))
    async with open_counter() as counter:
        sealed = await counter.translate("/encode", first, second)
        assert [one.metadata[KEY_ID_FIELD] for one in sealed] == [b"new", b"new"]
        assert await codec_of("new").decode(sealed) == [first, second]
        from_before = await codec_of("old").encode([first])
        assert await counter.translate("/decode", *from_before, *sealed, plain()) == [
            first, first, second, plain(),
        ]  # fmt: skip


async def test_what_is_left_out_or_null_is_empty() -> None:
    """As proto3 JSON has it: a payload without data, without metadata, and none at all."""
    async with open_counter() as counter:
        for body in (
            '{"payloads":[{"metadata":{"encoding":"YmluYXJ5L251bGw="},"data":null}]}',
            '{"payloads":[{"metadata":{"encoding":"YmluYXJ5L251bGw="}}]}',
        ):
            _, text, _ = await counter.ask("/decode", body)
            assert json.loads(text) == {
                "payloads": [{"metadata": {"encoding": "YmluYXJ5L251bGw="}, "data": ""}]
            }
        for body in ('{"payloads":[]}', "{}"):
            assert json.loads((await counter.ask("/decode", body))[1]) == {"payloads": []}


async def test_the_page_of_the_ui_may_ask() -> None:
    """The preflight of its browser is answered without a token, and so is what it asks then with one."""
    async with open_counter(token=SecretStr(TOKEN)) as counter:
        status, text, headers = await counter.ask(
            "/decode",
            b"",
            method="OPTIONS",
            Origin=UI,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers="authorization,content-type,x-namespace",
        )
        assert (status, text) == (204, "")
        assert headers["Access-Control-Allow-Origin"] == UI
        assert headers["Access-Control-Allow-Methods"] == "POST"
        assert headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, X-Namespace"
        assert headers["Vary"] == "Origin"
        assert "Access-Control-Allow-Credentials" not in headers
        status, _, headers = await counter.ask(
            "/decode", document(plain()), Origin=UI, Authorization=f"Bearer {TOKEN}", X_Namespace="default"
        )
        assert (status, headers["Access-Control-Allow-Origin"]) == (200, UI)
        assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("ui_origin", [UI, None])
@pytest.mark.parametrize("origin", [ELSEWHERE, "null", "", UI + "/", UI.upper(), f"{UI}.elsewhere.test"])
async def test_no_other_page_may_ask(ui_origin: str | None, origin: str) -> None:
    """Neither a preflight nor a request; nor a page under a name that was made to lead here."""
    async with open_counter(ui_origin=ui_origin) as counter:
        for method, path in (("OPTIONS", "/decode"), ("POST", "/decode"), ("POST", "/encode")):
            status, text, headers = await counter.ask(path, document(plain()), method=method, Origin=origin)
            assert (status, text) == (403, "")
            assert "Access-Control-Allow-Origin" not in headers
        status, _, _ = await counter.ask("/decode", document(), Origin=counter.url)
        assert status == 403


@pytest.mark.parametrize(
    "said",
    [
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        "Bearer é",
    ],
)
async def test_without_the_token_nothing_is_decrypted(said: str) -> None:
    """401 before the body is looked at, and not a word more; the page of the UI may see that it is 401."""
    async with open_counter(token=SecretStr(TOKEN)) as counter:
        for body in (document(plain()), "not JSON"):
            status, text, headers = await counter.ask("/decode", body, Authorization=said, Origin=UI)
            assert (status, text) == (401, "")
            assert (headers["WWW-Authenticate"], headers["Access-Control-Allow-Origin"]) == ("Bearer", UI)
        status, _, _ = await counter.ask("/decode", document(plain()))
        assert status == 401
        assert await counter.translate("/decode", plain(), Authorization=f"Bearer {TOKEN}") == [plain()]


HOSTILE = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"payloads":[{"data":"\xff"}]}',
    "a list": b"[]",
    "no list": b'{"payloads":{}}',
    "a number as payload": b'{"payloads":[1]}',
    "a number as data": b'{"payloads":[{"data":1}]}',
    "a list as metadata": b'{"payloads":[{"metadata":[]}]}',
    "bad base64": b'{"payloads":[{"data":"c3ludGhldGlj!"}]}',
    "base64 cut short": b'{"payloads":[{"data":"c3ludGhldGl"}]}',
    "base64 that is not ASCII": '{"payloads":[{"data":"éééé"}]}'.encode(),
    "bad base64 in metadata": b'{"payloads":[{"metadata":{"encoding":"json/plain"}}]}',
    "half a surrogate": b'{"payloads":[{"metadata":{"\\ud800":"eA=="}}]}',
    "a deep nest": b"[" * 100_000,
    "a deep nest in a payload": b'{"payloads":[' + b'{"metadata":' * 50_000,
}


async def test_a_hostile_body_is_refused_without_a_word_of_it() -> None:
    """400 for each, the same words for all, and the next request is answered as ever."""
    async with open_counter() as counter:
        for name, body in HOSTILE.items():
            for path in ("/encode", "/decode"):
                status, text, _ = await counter.ask(path, body)
                assert (status, text) == (400, "no payloads in JSON with base64"), name
        assert await counter.translate("/decode", plain()) == [plain()]


async def test_a_huge_body_is_not_read() -> None:
    """413, also where it is small on the wire and huge when it is unpacked."""
    huge = b'{"payloads":[{"data":"' + b"A" * 900_000 + b'"}]}'
    async with open_counter(body_bytes_max=100_000) as counter:
        status, text, _ = await counter.ask("/decode", huge)
        assert (status, text) == (413, "")
        status, text, _ = await counter.ask("/decode", gzip.compress(huge), Content_Encoding="gzip")
        assert (status, text) == (413, "")
        assert await counter.translate("/decode", plain()) == [plain()]


async def test_a_body_that_never_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """408, however long its length says that it is."""
    monkeypatch.setattr(app, "READ_SECONDS", 0.05)
    monkeypatch.setattr(listening, "DRAIN_SECONDS", 0.05)  # the server goes on reading what it has refused
    async with open_counter() as counter:
        head = b"POST /decode HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
        assert b" 408 " in await send_raw(counter.url, head)


async def test_what_can_not_be_opened_is_said_with_the_id_of_its_key() -> None:
    """A key that is not configured, and a payload that was changed: 400, readable in the UI."""
    [unknown] = await codec_of("other").encode([plain()])
    [changed] = await codec_of("new").encode([plain()])
    changed.data = changed.data[:-1] + bytes([changed.data[-1] ^ 1])
    hostile = Payload(metadata={"encoding": ENCODING, KEY_ID_FIELD: b"\x1b[2J<script>"}, data=b"x" * 40)
    async with open_counter() as counter:
        for payload, words in (
            (unknown, "the key 'other', which is not configured here"),
            (changed, "does not open with the key 'new'"),
            (hostile, r"'\x1b[2J<script>'"),
        ):
            status, text, headers = await counter.ask("/decode", document(plain(), payload), Origin=UI)
            assert status == 400
            assert words in text
            assert headers["Content-Type"].startswith("text/plain")
            assert headers["Access-Control-Allow-Origin"] == UI


async def test_only_the_protocol_is_there() -> None:
    """Other paths and methods are nothing's business, and health says that it lives."""
    async with open_counter() as counter:
        assert (await counter.ask("/download", document()))[0] == 404
        assert (await counter.ask("/decode", b"", method="GET"))[0] == 405
        status, text, _ = await counter.ask("/health", b"", method="GET")
        assert (status, json.loads(text)) == (200, {"alive": True})


async def test_what_is_hardly_http_is_refused_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """A status with no body, and neither answer nor log repeats what came."""
    requests = malformed_requests(TOKEN)
    async with open_counter(token=SecretStr(TOKEN)) as counter:
        answers = await asyncio.gather(*(send_raw(counter.url, request) for request in requests.values()))
    for name, answer in zip(requests, answers, strict=True):
        assert answer.partition(b"\r\n\r\n")[2] == b"", name
        assert int(answer.split()[1]) in {400, 403, 404, 417}, name
    assert TOKEN not in b"".join(answers).decode() + caplog.text
    assert "Traceback" not in caplog.text


async def test_nothing_of_keys_token_or_payloads_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is asked, well or badly."""
    caplog.set_level("DEBUG")
    async with open_counter(token=SecretStr(TOKEN)) as counter:
        for body in (document(plain(b"a synthetic plaintext")).encode(), *HOSTILE.values()):
            await counter.ask("/encode", body, Authorization=f"Bearer {TOKEN}")
            await counter.ask("/encode", body)
    for secret in (TOKEN, "a synthetic plaintext", *SECRETS.values()):
        assert secret not in caplog.text
        assert base64.b64encode(secret.encode()).decode() not in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "codec.example.test"])
async def test_others_are_let_in_with_a_token_only(host: str) -> None:
    """Beyond this machine anybody could have payloads decrypted: refused before it listens."""
    settings = CodecSettings(host=host, port=0)
    with pytest.raises(RefusedToStart, match="CHARGEONCE_CODEC_TOKEN"):
        async with open_codec_server(settings):
            pass
    settings.model_copy(update={"token": SecretStr(TOKEN)}).refuse_open_door()


async def test_a_server_without_a_key_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could decode nothing, and would encode nothing."""
    monkeypatch.delenv(KEYS_VARIABLE)
    with pytest.raises(RefusedToStart, match="no key to decrypt with: set CHARGEONCE_PAYLOAD_KEYS"):
        async with open_codec_server(CodecSettings(port=0)):
            pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("UI_ORIGIN", "*"),
        ("UI_ORIGIN", "127.0.0.1:8233"),
        ("UI_ORIGIN", "http://127.0.0.1:8233/"),
        ("UI_ORIGIN", "http://UI.example.test"),
        ("UI_ORIGIN", "http://"),
        ("UI_ORIGIN", "http://127.0.0.1:8233\r\nX: y"),
        ("TOKEN", "short"),
        ("TOKEN", "a token with a line\nbreak in it"),
        ("PORT", "70000"),
    ],
)
def test_settings_that_can_not_be_right_are_named_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """One line that names the variable."""
    monkeypatch.setenv(f"CHARGEONCE_CODEC_{name}", value)
    with pytest.raises(RefusedToStart, match=f"CHARGEONCE_CODEC_{name}$") as refused:
        load_codec_settings()
    assert value not in str(refused.value).replace("CHARGEONCE_CODEC_", "") or value == "*"


def test_the_token_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in what is printed of the settings."""
    monkeypatch.setenv("CHARGEONCE_CODEC_TOKEN", TOKEN)
    settings = load_codec_settings()
    assert settings.token is not None
    assert settings.host == "127.0.0.1"
    assert TOKEN not in repr(settings) + settings.model_dump_json()


def test_the_command_serves_until_it_is_told_to_stop(nursery: Nursery, tmp_path: Path) -> None:
    """`chargeonce codec-server`: ready file, an answer, exit code 0; without keys it is refused, with 4."""
    ready, log = tmp_path / "ready.json", tmp_path / "log"
    environment = os.environ | {"CHARGEONCE_CODEC_TOKEN": TOKEN, "CHARGEONCE_HOME": str(tmp_path / "home")}
    words = ["codec-server", "--listen", "127.0.0.1:0", "--ready-file", str(ready)]
    server = nursery.fork("deploy.cli:main", environment=environment, output=log, arguments=words)

    async def ask() -> None:
        async with asyncio.timeout(60):
            while not (ready.exists() and ready.read_text()):
                assert server.returncode is None, log.read_text()
                await asyncio.sleep(0.02)
        async with aiohttp.ClientSession() as session:
            counter = Counter(json.loads(ready.read_text())["url"], session)
            [sealed] = await codec_of("old").encode([plain()])
            assert await counter.translate("/decode", sealed, Authorization=f"Bearer {TOKEN}") == [plain()]

    try:
        drive(ask())
        server.send_signal(signal.SIGTERM)
        assert server.wait_here(deadline_seconds=30) == 0
    finally:
        server.kill()
    assert not any(secret in log.read_text() for secret in (TOKEN, *SECRETS.values()))
    keyless = {name: value for name, value in environment.items() if name != KEYS_VARIABLE}
    refused = nursery.type_command(words, environment=keyless)
    assert refused.returncode == 4
    assert "there is no key to decrypt with" in refused.stderr
