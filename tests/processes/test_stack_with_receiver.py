import asyncio
import shutil
from pathlib import Path

import asyncpg
import pytest

from deploy.devstack import StackOptions, running_stack
from deploy.stripe_sim.client import call_sim
from tests.activities.dashboard import post

OPTIONS = StackOptions(
    workers=0,
    proxy=False,
    web=True,
    durable=False,
    headless=True,
    restarts=False,
    postgres_port=None,
    temporal_port=None,
    temporal_ui_port=None,
    simulator_port=None,
    web_port=None,
)


@pytest.fixture
def home(fresh_cluster: Path, tmp_path: Path) -> Path:
    """A home in which the PostgreSQL cluster exists already: making one takes longest."""
    shutil.copytree(fresh_cluster, tmp_path / "home" / "postgres")
    return tmp_path / "home"


async def test_a_stack_receives_its_simulator_s_events(home: Path) -> None:
    """What happens at the simulated Stripe is in the inbox, also after a second start on another port."""
    for start in (1, 2):
        async with running_stack(home, OPTIONS) as stack:
            info = stack.info
            assert info.web_url is not None
            await post(
                info.stripe_sim_url,
                "/v1/payment_intents",
                amount=500,
                currency="usd",
                key=info.stripe_secret_key,
            )
            connection = await asyncpg.connect(info.database_url, timeout=10)
            async with asyncio.timeout(20):
                while await connection.fetchval("SELECT count(*) FROM inbox_events") < start:  # noqa: ASYNC110 - nobody signals
                    await asyncio.sleep(0.05)
            await connection.close()
            endpoints = call_sim(info.stripe_sim_url, "GET", "/_sim/webhooks")["endpoints"]
            assert [one["url"] for one in endpoints] == [f"{info.web_url}/webhooks/stripe"]
