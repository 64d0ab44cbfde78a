"""A worker process as it is deployed, with keys in its environment, a real ledger and a real Temporal."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deploy.postgres import Database
from deploy.stripe_sim.testing import running_sim
from deploy.temporal_server import TemporalServer
from tests.codec.keyring import SECRETS, written
from tests.codec.sealed import bytes_of, key_ids_of
from tests.forking import Nursery
from tests.processes.test_many_accounts import LINES, Town, finish, worker_for
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE
from worker.temporal_client import connect_temporal

ACCOUNT, PERIOD = "acct_sealed", "2031-03"


@dataclass
class Sealed:
    """A town whose worker reads its keys from a file, and what its commands are typed with."""

    town: Town
    environment: dict[str, str]


@pytest.fixture
async def sealed(
    database: Database,
    temporal_server: TemporalServer,
    task_queue: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Sealed]:
    """One worker with two keys."""
    (tmp_path / "payload_keys").write_text(written("new", "old").replace(",", "\n"))
    environment = {
        "CHARGEONCE_DATABASE_URL": database.app_url,
        "TEMPORAL_ADDRESS": temporal_server.address,
        "TEMPORAL_NAMESPACE": "default",
        FILE_VARIABLE: str(tmp_path / "payload_keys"),
    }
    monkeypatch.delenv(KEYS_VARIABLE, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with running_sim() as sim:
        town = Town(sim, await connect_temporal(), task_queue, tmp_path)
        commands = os.environ | {
            "STRIPE_SECRET_KEY": "sk_test_synthetic",
            "CHARGEONCE_STRIPE_API_BASE": sim.url,
            "CHARGEONCE_CONNECTED_ACCOUNTS": ACCOUNT,
            "CHARGEONCE_TASK_QUEUE": task_queue,
        }
        async with worker_for([ACCOUNT], town=town, environment=environment):
            yield Sealed(town, commands)


async def test_a_run_of_a_deployed_worker_is_encrypted_from_end_to_end(
    sealed: Sealed, nursery: Nursery
) -> None:
    """Everybody is charged once, Temporal keeps ciphertext, and no log or message holds a key."""
    town = sealed.town
    handles = await town.bill([ACCOUNT], PERIOD)
    [report] = await finish(handles)
    assert (report.phase, report.counts["succeeded"]) == ("closed", LINES)
    assert sorted(town.paid(ACCOUNT, PERIOD).values()) == [1] * LINES
    history = await handles[ACCOUNT].fetch_history()
    assert set(key_ids_of(history)) == {"new"}
    raw = bytes_of(history)
    for said in (f"{ACCOUNT}-{PERIOD}.csv", "cus_", "pi_", "succeeded"):
        assert said.encode() not in raw
    shown: Any = nursery.type_command(
        ["run", "show", report.run_id, "--json"], environment=sealed.environment
    )
    assert shown.returncode == 0, shown.stderr
    written_down = (town.folder / "worker.log").read_text() + shown.stdout + shown.stderr
    assert not [name for name, secret in SECRETS.items() if secret in written_down]
    environment = {**sealed.environment, KEYS_VARIABLE: SECRETS["new"]}
    del environment[FILE_VARIABLE]
    refused = nursery.type_command(["run", "tick", report.run_id], environment=environment)
    assert refused.returncode == 4
    assert "entry 1 of CHARGEONCE_PAYLOAD_KEYS does not begin with the id of a key" in refused.stderr
    assert SECRETS["new"] not in refused.stdout + refused.stderr
