"""Where the real key comes from, and how a new one is taken up without a restart."""

import asyncio
import json
from pathlib import Path

import pytest

from deploy.postgres import Database
from tests.proxy.stage import Stage, open_stage, proxy_settings
from worker.proxy.real_keys import RealKey
from worker.proxy.server import open_proxy
from worker.proxy.settings import load_proxy_settings
from workflows.domain.errors import RefusedToStart
from workflows.domain.vault_keys import Mode

DEADLINE_SECONDS = 10


async def _until_accepted(stage: Stage, key: str, url: str) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while (await stage.caller(key, url).get("/v1/account")).status != 200:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)


async def test_a_new_key_in_the_file_is_taken_up(stage: Stage, tmp_path: Path) -> None:
    """The key was rolled: the file has the new one, and the proxy goes on without a restart."""
    file = tmp_path / "stripe-key"
    file.write_text("sk_test_old\n")
    key = await stage.issue({"usd": 1_000})
    settings = proxy_settings(stage.database, stage.sim.url, stripe_secret_key=None, stripe_key_file=file)
    async with open_proxy(settings) as (url, _):
        assert (await stage.caller(key, url).get("/v1/account")).status == 200
        stage.sim.change(accept_keys=["sk_test_new"])
        assert (await stage.caller(key, url).get("/v1/account")).status == 401
        file.write_text("sk_test_new\n")
        await _until_accepted(stage, key, url)


async def test_a_401_and_a_signal_have_the_command_run_again(stage: Stage, tmp_path: Path) -> None:
    """A command's key is asked for again when Stripe rejects the old one, and when told to."""
    file = tmp_path / "printed.key"
    file.write_text("sk_test_old")
    key = await stage.issue({"usd": 1_000})
    settings = proxy_settings(
        stage.database, stage.sim.url, stripe_secret_key=None, stripe_key_command=f"cat {file}"
    )
    async with open_proxy(settings) as (url, refresh):
        stage.sim.change(accept_keys=["sk_test_new"])
        file.write_text("sk_test_new")
        await _until_accepted(stage, key, url)
        stage.sim.change(accept_keys=["sk_test_newer"])
        file.write_text("sk_test_newer")
        refresh()
        await _until_accepted(stage, key, url)


async def test_accounts_may_have_keys_of_their_own(stage: Stage) -> None:
    """A map of account and key: each account is reached by its own, and Stripe is not asked whose it is."""
    keys = json.dumps({"acct_sim": "sk_test_a", "acct_b": "sk_test_b"})
    key = await stage.issue({"usd": 1_000})
    settings = proxy_settings(stage.database, stage.sim.url, stripe_secret_key=None, account_keys=keys)
    before = len(stage.sim.requests)
    async with open_proxy(settings) as (url, _):
        assert len(stage.sim.requests) == before
        assert (await stage.caller(key, url).get("/v1/account")).status == 200


async def test_without_a_usable_key_nothing_starts(database: Database) -> None:
    """No key, a live one that nobody spoke for, a broken map, a failing command: refused, unrepeated."""
    async with open_stage(database) as stage:
        wrong: list[dict[str, object]] = [
            {"stripe_secret_key": None},
            {"stripe_secret_key": "sk_live_theRealOne"},
            {"stripe_secret_key": None, "account_keys": "{sk_live_x"},
            {"stripe_secret_key": None, "stripe_key_command": "echo sk_live_x; exit 3"},
            {"stripe_secret_key": None, "stripe_key_file": "/nowhere/key"},
        ]
        for changes in wrong:
            with pytest.raises(RefusedToStart) as refused:
                async with open_proxy(proxy_settings(database, stage.sim.url, **changes)):
                    pass
            assert "sk_live" not in str(refused.value), changes


def test_settings_that_can_not_be_right_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal names the setting and not its value."""
    monkeypatch.delenv("CHARGEONCE_PROXY_DATABASE_URL", raising=False)
    monkeypatch.setenv("CHARGEONCE_PROXY_PORT", "sk_live_pasted")
    with pytest.raises(RefusedToStart) as refused:
        load_proxy_settings()
    assert "sk_live" not in str(refused.value)
    assert "port" in str(refused.value).lower()


def test_two_database_connections_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are kept for good by who counts against caps, so nothing else would ever get one."""
    monkeypatch.setenv("CHARGEONCE_PROXY_DATABASE_URL", "postgresql://cap@127.0.0.1/ledger")
    monkeypatch.setenv("CHARGEONCE_PROXY_DATABASE_CONNECTIONS", "2")
    with pytest.raises(RefusedToStart, match="CHARGEONCE_PROXY_DATABASE_CONNECTIONS can't be right"):
        load_proxy_settings()


def test_a_real_key_shows_nothing_of_itself() -> None:
    """Neither a traceback nor a log that shows the object shows the key."""
    assert "sk_test_x" not in repr(RealKey("sk_test_x", Mode.TEST, connected=False))
