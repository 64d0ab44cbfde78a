"""`chargeonce vault` and `audit`: a key for any other job, from its issue to its end."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.proxy.stage import ACCOUNT, REAL_KEY, Stage
from worker.cli import app
from worker.json_over_http import ask_json
from worker.typed_settings import read_listen
from workflows.domain.errors import InvalidInput
from workflows.domain.vault_keys import parse_vault_key

Words = tuple[str, ...]
ISSUE = ("vault", "issue", "--account", ACCOUNT, "--label", "a shop agent")


@pytest.fixture
def shell(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that is pointed at the ledger and the proxy."""
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", stage.database.app_url)
    monkeypatch.setenv("CHARGEONCE_PROXY_URL", stage.url)
    monkeypatch.setenv("CHARGEONCE_VAULT_SECRET", "v" * 32)


async def type_json(*words: str) -> tuple[int, dict[str, Any]]:
    """Type a command with --json; its exit code and its object."""
    result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"])
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.usefixtures("shell")
async def test_a_key_is_capped_audited_and_ended_by_command(stage: Stage) -> None:
    """It pays up to its cap and no unit more, every call is on record, and a revocation holds at once."""
    exit_code, issued = await type_json(
        *ISSUE, "--allow", "billing", "--cap", "usd=25.00", "--daily", "--expires", "2h"
    )
    assert exit_code == 0
    known = parse_vault_key(issued["key"])
    assert known is not None
    assert known.key_id == issued["key_id"]
    agent = stage.caller(issued["key"])
    assert (await agent.pay(1_000, name="a")).status == 200
    assert (await agent.pay(1_500, name="b")).status == 200
    assert (await agent.pay(50, name="c")).code == "spend_cap_exceeded"

    _, listed = await type_json("vault", "list")
    [key] = listed["keys"]
    assert (key["label"], key["budget"]["usd"]["settled_minor"], key["standing"]) == (
        "a shop agent",
        2_500,
        "valid",
    )
    assert issued["key"] not in json.dumps(listed)

    _, revoked = await type_json("vault", "revoke", issued["key_id"], "--reason", "the agent is done")
    assert revoked == {"revoked": [issued["key_id"]]}
    assert (await agent.get("/v1/payment_intents")).code == "vault_key_revoked"
    _, audit = await type_json("audit", "--key", issued["key_id"], "--since", "1h")
    decisions = [call["decision"] for call in audit["calls"]]
    assert decisions[:2] == ["vault_key_revoked", "spend_cap_exceeded"]
    assert decisions.count("forward") == 5
    assert {call["idempotency_key"] for call in audit["calls"]} > {"confirm_a", "confirm_b", "confirm_c"}
    assert [call["path"] for call in audit["calls"] if call["decision"] == "vault_key_revoked"] == [
        "/v1/payment_intents"
    ]


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--allow", "billing"), "--cap"),
        (("--allow", "POST /v1/payouts"), "can't be allowed"),
        (("--allow", "reads", "--cap", "usd"), "usd=100.00"),
        (("--allow", "reads", "--cap", "usd=1.005"), "usd"),
        (("--allow", "reads", "--expires", "soon"), "no duration"),
        (("--allow", "reads", "--expires", "500d"), "within a year"),
    ],
)
async def test_what_could_not_be_meant_is_no_key(stage: Stage, words: Words, said: str) -> None:
    """A key without a cap, for an endpoint that can't be counted, or without an end is not issued."""
    exit_code, refusal = await type_json(*ISSUE, *words)
    assert exit_code == 2
    assert said in refusal["error"]
    assert await stage.fetch("SELECT key_id FROM vault_keys") == []


@pytest.mark.usefixtures("shell")
async def test_a_whole_key_that_was_found_can_be_revoked_by_itself(stage: Stage) -> None:
    """Who finds a key where it should not be ends it with what they have, and it is not repeated to them."""
    _, issued = await type_json(*ISSUE, "--allow", "reads")
    _, revoked = await type_json("vault", "revoke", issued["key"], "--reason", "found in a log")
    assert revoked == {"revoked": [issued["key_id"]]}
    exit_code, refusal = await type_json("vault", "revoke", "vk_test_0000000000", "--reason", "typo")
    assert (exit_code, "vk_test_0000000000" in refusal["error"]) == (4, True)
    exit_code, _ = await type_json("vault", "revoke", "--reason", "nothing named")
    assert exit_code == 2
    exit_code, refusal = await type_json("vault", "revoke", issued["key_id"], "--reason", "  ")
    assert (exit_code, "say why" in refusal["error"]) == (2, True)


async def test_the_proxy_is_a_process_of_its_own(stage: Stage, tmp_path: Path) -> None:
    """It says where it listens once it does, serves, and ends well when it is told to."""
    ready = tmp_path / "ready.json"
    words = ("proxy", "--listen", "127.0.0.1:0", "--ready-file", str(ready))
    environment = os.environ | {
        "CHARGEONCE_PROXY_DATABASE_URL": stage.database.proxy_url,
        "CHARGEONCE_ACCOUNT_KEYS": json.dumps({ACCOUNT: REAL_KEY}),
        "CHARGEONCE_STRIPE_API_BASE": stage.sim.url,
    }
    proxy = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.cli", *words, env=environment, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(60):
            while not ready.exists() or not ready.read_text():
                assert proxy.returncode is None
                await asyncio.sleep(0.02)
        url = json.loads(ready.read_text())["url"]
        health = await asyncio.to_thread(ask_json, url, "GET", "/_proxy/health")
        assert (health["ok"], health["accounts"], health["mode"]) == (True, [ACCOUNT], "test")
        proxy.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(proxy.wait(), 30) == 0
    finally:
        if proxy.returncode is None:
            proxy.kill()
            await proxy.wait()


@pytest.mark.parametrize(
    ("text", "place"), [("127.0.0.1:12112", ("127.0.0.1", 12112)), ("[::1]:0", ("::1", 0))]
)
def test_a_place_to_listen_is_address_and_port(text: str, place: tuple[str, int]) -> None:
    """As everywhere else, with brackets around an IPv6 address."""
    assert read_listen(text) == place


@pytest.mark.parametrize("text", ["", "12112", ":12112", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "a:b"])
def test_anything_else_is_no_place_to_listen(text: str) -> None:
    """A typo is a usage error, not a proxy that listens on every address."""
    with pytest.raises(InvalidInput):
        read_listen(text)
