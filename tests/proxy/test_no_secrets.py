"""No secret leaves the processes that need it, whatever dies and whatever fails on the way."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from temporalio.client import Client

from activities.ledger.database import open_pool
from deploy.devstack import DevStack
from tests.proxy.secret_scan import (
    dump_database,
    find_secrets,
    malformed_requests,
    read_histories,
    read_logs,
    secrets_of,
    send_raw,
)
from tests.proxy.small_stack import DEADLINE_SECONDS, RUN, books_of, command, small_stack, start_run, until
from tests.secret_watch import SecretFound, refuse_secrets_in_histories
from worker.json_over_http import ask_json
from worker.temporal_client import connect_temporal

LINES = 80
FAULTS = {
    "faults": [
        {"name": "lost-answer", "place": "after", "match": {"nth": 17}, "effect": {"kind": "drop"}},
        {"name": "error", "match": {"nth": 23}, "effect": {"kind": "error", "status": 500}},
    ]
}


@asynccontextmanager
async def stack_with_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[DevStack, Client]]:
    """Yield a stack that has gone through a run in which worker and proxy were killed, and Stripe failed."""
    async with small_stack(home, monkeypatch, rate_per_second=200) as stack:
        await asyncio.to_thread(ask_json, stack.info.stripe_sim_url, "PUT", "/_sim/faults", FAULTS)
        await start_run(stack, lines=LINES)
        await until(stack, f"SELECT count(*) >= {LINES // 4} FROM charges WHERE state = 'succeeded'")
        stack.kill_worker(0)
        assert stack.proxy is not None
        stack.proxy.kill()
        await crash(stack)
        await until(stack, "SELECT bool_and(phase = 'closed') FROM billing_runs")
        yield stack, await connect_temporal()


async def crash(stack: DevStack) -> None:
    """Keep what commands print that fail: with no proxy, with no Stripe, with another database."""
    nowhere = "http://127.0.0.1:9"
    info = stack.info
    by_stripe_key = {
        "CHARGEONCE_PROXY_URL": "",
        "STRIPE_SECRET_KEY": info.stripe_secret_key,
        "CHARGEONCE_STRIPE_API_BASE": nowhere,
    }
    without = (
        {"CHARGEONCE_PROXY_URL": nowhere},
        by_stripe_key,
        {"CHARGEONCE_DATABASE_URL": info.database_url.replace("/chargeonce", "/nowhere")},
    )
    printed = ""
    for variables in without:
        failed = await command(stack, "verify", RUN, CHARGEONCE_TRACEBACK="1", **variables)
        assert failed.returncode != 0
        printed += failed.stdout + failed.stderr
    (stack.home / "logs" / "crash.log").write_text(printed)


async def knock(stack: DevStack, secret: str) -> None:
    """Keep what the proxy says to requests that are hardly HTTP."""
    assert stack.info.proxy_url is not None
    requests = malformed_requests(secret).values()
    answers = await asyncio.gather(*(send_raw(stack.info.proxy_url, request) for request in requests))
    assert all(answers)
    (stack.home / "logs" / "knock.log").write_bytes(b"".join(answers))


async def plant(stack: DevStack, client: Client, secret: str) -> None:
    """Write a secret where it must never be: into a log, a table, and a workflow's history."""
    (stack.home / "logs" / "planted.log").write_text(f"Authorization: Bearer {secret}\n")
    async with open_pool(stack.info.database_url, connections=1) as pool:
        await pool.execute(
            "INSERT INTO run_events (run_id, at, action, who, reason) "
            "VALUES ($1, ledger_now(), 'paused', 'x', $2)",
            RUN,
            f"by {secret}",
        )
    await client.start_workflow("Planted", secret, id=f"planted-{uuid.uuid4()}", task_queue="nobody")


@pytest.mark.timeout(240)
@pytest.mark.plants_secrets
async def test_no_secret_is_written_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After faults, kills and bad HTTP no key, vault secret or password is found; planted ones are.

    The books agree all the same, and no reservation is left over from the kill.
    """
    async with stack_with_run(tmp_path / "home", monkeypatch) as (stack, client):
        secrets = await secrets_of(stack.info, stack.info.stripe_secret_key)
        keys = [secret.decode() for name, secret in secrets.items() if name.startswith("vault key")]
        assert len(keys) >= 3
        await knock(stack, keys[0])
        logs, database = read_logs(stack.home), dump_database(stack.info)
        histories = await read_histories(client)
        assert {"logs/proxy.log", "logs/worker-0.log", "logs/crash.log", "logs/knock.log"} <= logs.keys()
        assert any(RUN in place for place in histories)
        assert b"vault_calls" in database["database"]
        assert find_secrets(secrets, {**logs, **database, **histories}) == []

        books = await books_of(stack)
        assert books["agree"] is True, books
        assert books["backstop"] is True
        assert await _held(stack) == 0

        await plant(stack, client, keys[0])
        places = {**read_logs(stack.home), **dump_database(stack.info)}
        async with asyncio.timeout(DEADLINE_SECONDS):  # a new workflow is listed a moment later
            while not any(place.startswith("history of planted") for place in places):
                places |= await read_histories(client)
        with pytest.raises(SecretFound, match="history of planted"):
            await refuse_secrets_in_histories(stack.info.temporal_address)
        found = find_secrets(secrets, places)
        assert {hit.partition(" in ")[2].partition("-")[0] for hit in found} == {
            "logs/planted.log", "database", "history of planted",
        }  # fmt: skip


async def _held(stack: DevStack) -> int:
    async with open_pool(stack.info.database_url, connections=1) as pool:
        return int(await pool.fetchval("SELECT coalesce(sum(held_minor), 0) FROM vault_budgets"))
