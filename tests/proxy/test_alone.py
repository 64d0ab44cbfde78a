"""The proxy for any other job: from an empty PostgreSQL to a capped key, with nothing else configured."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from deploy.postgres import PostgresServer
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.conftest import drive
from tests.proxy.stage import ACCOUNT, CARD, CUSTOMER, REAL_KEY, Caller
from worker.cli import app
from worker.proxy.server import open_proxy
from worker.proxy.settings import load_proxy_settings
from workflows.domain.errors import RefusedToStart

ROLES = ("alone_owner", "alone_app", "alone_cap")
ISSUE = ("vault", "issue", "--allow", "billing", "--cap", "usd=25.00", "--daily")


@dataclass
class Shell:
    """What a shell has in its environment, and where the empty database is, per role."""

    monkeypatch: pytest.MonkeyPatch
    urls: dict[str, str]
    sim: RunningSim

    def export(self, **variables: str) -> None:
        """Set variables."""
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    async def type(self, *words: str) -> tuple[int, str]:
        """Type a command; its exit code and what it printed."""
        result = await asyncio.to_thread(CliRunner().invoke, app, list(words))
        return result.exit_code, " ".join(result.output.split())

    async def type_json(self, *words: str) -> dict[str, Any]:
        """Type a command that ends well; its object."""
        result = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"])
        assert result.exit_code == 0, result.output
        document: dict[str, Any] = json.loads(result.stdout)
        return document


@pytest.fixture(scope="session")
def empty_database(postgres_server: PostgresServer) -> dict[str, str]:
    """Three roles and a database that the first of them owns, as the README has a superuser make them."""

    async def create() -> None:
        connection = await postgres_server.connect_superuser()
        try:
            for role in ROLES:
                await connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret_of_{role}'")
            await connection.execute("CREATE DATABASE alone OWNER alone_owner")
        finally:
            await connection.close()

    drive(create())
    return {
        role: f"postgresql://{role}:secret_of_{role}@127.0.0.1:{postgres_server.port}/alone" for role in ROLES
    }


@pytest.fixture
async def shell(empty_database: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shell]:
    """A shell in which nothing is set, and a Stripe with one customer."""
    for name in os.environ:
        if name.startswith(("CHARGEONCE_", "STRIPE_", "TEMPORAL_")):
            monkeypatch.delenv(name)
    async with running_sim() as sim:
        sim.seed(CUSTOMER, CARD)
        yield Shell(monkeypatch, empty_database, sim)


async def test_from_an_empty_database_to_a_capped_key(shell: Shell) -> None:
    """Each step says what it lacks; nothing asks for a key, secret or Temporal that it does not need."""
    owner, worker, cap = (shell.urls[role] for role in ROLES)
    exit_code, said = await shell.type("migrate")
    assert (exit_code, "CHARGEONCE_OWNER_DATABASE_URL" in said) == (4, True)
    exit_code, said = await shell.type("migrate", "--database-url", owner, "--app-role", "nosuch")
    assert (exit_code, 'CREATE ROLE "nosuch" LOGIN' in said) == (4, True), said
    exit_code, said = await shell.type("migrate", "--database-url", worker)
    assert (exit_code, "owner of its database" in said) == (4, True), said

    shell.export(CHARGEONCE_OWNER_DATABASE_URL=owner)
    exit_code, said = await shell.type("migrate")
    assert exit_code == 0, said
    for words in (("audit",), ("vault", "list"), ("vault", "revoke", "vk_test_x", "--reason", "r")):
        exit_code, said = await shell.type(*words)
        assert (exit_code, "CHARGEONCE_DATABASE_URL is not set" in said) == (4, True), said
    with pytest.raises(RefusedToStart, match="CHARGEONCE_PROXY_DATABASE_URL is not set"):
        load_proxy_settings()

    # Roles that are there and were granted nothing.
    shell.export(
        CHARGEONCE_DATABASE_URL=worker, CHARGEONCE_PROXY_DATABASE_URL=cap, STRIPE_SECRET_KEY=REAL_KEY,
        CHARGEONCE_STRIPE_API_BASE=shell.sim.url,
    )  # fmt: skip
    exit_code, said = await shell.type("vault", "list")
    assert (exit_code, "--app-role" in said) == (4, True), said
    with pytest.raises(RefusedToStart, match="--proxy-role alone_cap"):
        async with open_proxy(load_proxy_settings()):
            pass
    exit_code, said = await shell.type("migrate", "--app-role", "alone_app", "--proxy-role", "alone_cap")
    assert (exit_code, "granted alone_app and alone_cap" in said) == (0, True), said
    await _use_it(shell)


async def _use_it(shell: Shell) -> None:
    settings = load_proxy_settings()
    shell.monkeypatch.delenv("STRIPE_SECRET_KEY")
    async with open_proxy(settings) as (url, _):
        exit_code, said = await shell.type(*ISSUE, "--account", ACCOUNT)
        assert (exit_code, "in place of https://api.stripe.com" in said) == (0, True), said
        shell.export(CHARGEONCE_PROXY_URL=url)
        exit_code, said = await shell.type(*ISSUE, "--account", "acct_other")
        assert (exit_code, f"serves {ACCOUNT} (test)" in said) == (4, True), said
        exit_code, said = await shell.type(*ISSUE, "--account", ACCOUNT, "--live")
        assert exit_code == 4, said
        issued = await shell.type_json(*ISSUE, "--account", ACCOUNT, "--label", "shop agent")
        assert issued["proxy_url"] == url
        async with aiohttp.ClientSession() as session:
            agent = Caller(session, url, issued["key"])
            assert (await agent.pay(2_000, name="a")).status == 200
            assert (await agent.pay(501, name="b")).code == "spend_cap_exceeded"
        exit_code, said = await shell.type("vault", "list")
        assert "shop agent acct_sim billing valid 20.00 USD of 25.00 USD today" in said, said
        exit_code, said = await shell.type("audit", "--key", issued["key_id"], "--since", "1h")
        assert "5.01 USD spend_cap_exceeded" in said, said
        assert "20.00 USD forward 200 executed 20.00 USD" in said, said
        assert "asked: the amount in the request" in said
    exit_code, said = await shell.type(*ISSUE, "--account", ACCOUNT)
    assert (exit_code, "is not known" in said) == (0, True), said
