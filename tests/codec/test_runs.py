"""Encrypted runs on a real Temporal server: what it keeps of them, and keys that change on the way."""

import asyncio
import base64
import os
import re
import subprocess

import pytest
from pydantic import SecretStr
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from deploy.temporal_server import TemporalServer, find_temporal
from tests.codec.keyring import SECRETS, keys_of, written
from tests.codec.sealed import bytes_of, connect, key_ids_of, payloads_of, worker_of
from tests.workflows.fake_ledger import DEADLINE_SECONDS, PLAN_HASH, FakeLedger
from tests.workflows.stage import WHO, RunHandle, Stage, count, decide, finish, progress_once, sandbox
from worker.codec_server.server import open_codec_server
from worker.codec_server.settings import CodecSettings
from worker.payload_codec import ENCODING, PayloadUnreadable, converter_for
from worker.payload_keys import FILE_VARIABLE, KEYS_VARIABLE
from worker.temporal_client import connect_temporal, read_trouble
from workflows.billing_run import BillingRun
from workflows.contracts import Approval, Timing

APPROVAL = Approval(who=WHO, reason="a reason to be kept", plan_hash=PLAN_HASH)
TROUBLE = "the card of cus_synthetic is gone"
# What a run's messages say: its source and hash, who started it, who approved it and why, and a failure.
SAID = (b"charges.csv", b"0" * 64, b"a test", WHO.encode(), b"a reason to be kept", b"cus_synthetic")
TASK_FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED


async def run_through(stage: Stage) -> RunHandle:
    """Carry a run through a failed plan, approval and two slices."""
    stage.ledger.plan_errors = [RuntimeError(TROUBLE)]
    handle = await stage.start()
    await progress_once(handle, lambda progress: progress.phase == "approve")
    await decide(handle, "approve", APPROVAL)
    report = await finish(handle)
    assert (report.phase, report.counts) == ("closed", {"succeeded": 20})
    return handle


async def test_a_history_holds_nothing_readable_of_an_encrypted_run(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """Inputs, results, updates, failures: each payload is encrypted, and no word of them stands elsewhere."""
    client = await connect(temporal_server.address, "new")
    ledger = FakeLedger(approved=False)
    async with worker_of(client, task_queue, ledger):
        handle = await run_through(Stage(client, task_queue, ledger))
    stranger = Stage(await connect(temporal_server.address), task_queue, ledger)
    histories = await stranger.histories(handle)
    assert len(payloads_of(histories[0])) > 20
    for history in histories:
        assert {payload.metadata["encoding"] for payload in payloads_of(history)} == {ENCODING}
        assert set(key_ids_of(history)) == {"new"}
    raw = bytes_of(*histories)
    assert not [said for said in SAID if said in raw]


async def test_the_same_run_in_the_open_would_be_noticed(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """The look above finds each of those words where nothing is encrypted."""
    client = await connect(temporal_server.address)
    ledger = FakeLedger(approved=False)
    async with worker_of(client, task_queue, ledger):
        stage = Stage(client, task_queue, ledger)
        raw = bytes_of(*await stage.histories(await run_through(stage)))
    assert [said for said in SAID if said not in raw] == []


async def test_a_key_is_replaced_in_the_middle_of_a_run(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """Begun under the old key, ended under the new one; it replays with both, and not without the old one."""
    ledger = FakeLedger(approved=False)
    before = await connect(temporal_server.address, "old")
    async with worker_of(before, task_queue, ledger):
        handle = await Stage(before, task_queue, ledger).start()
        await progress_once(handle, lambda progress: progress.phase == "approve")
    after = await connect(temporal_server.address, "new", "old")
    same: RunHandle = after.get_workflow_handle_for(BillingRun.run, handle.id)
    async with worker_of(after, task_queue, ledger):
        await decide(same, "approve", APPROVAL)
        report = await finish(same)
    assert report.counts == {"succeeded": 20}
    history = await same.fetch_history()
    ids = key_ids_of(history)
    assert set(ids) == {"old", "new"}
    assert ids == sorted(ids, reverse=True)
    await replay(history, "new", "old")
    with pytest.raises(RuntimeError, match="PayloadUnreadable"):
        await replay(history, "new")


async def replay(history: WorkflowHistory, *names: str) -> None:
    """Replay as a worker with these keys would; raises where it can't."""
    converter = converter_for(keys_of(written(*names)))
    replayer = Replayer(workflows=[BillingRun], workflow_runner=sandbox(), data_converter=converter)
    await replayer.replay_workflow(history)


async def test_a_worker_without_the_key_holds_a_run_up_and_harms_nothing(
    temporal_server: TemporalServer, task_queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log names the key; the run goes on once a worker has it, and no history or log holds a key."""
    ledger = FakeLedger()
    client = await connect(temporal_server.address, "new")
    keyless = await connect(temporal_server.address, "old")
    handle = await Stage(client, task_queue, ledger).start()
    async with worker_of(keyless, task_queue, ledger), asyncio.timeout(DEADLINE_SECONDS):
        while not count(await handle.fetch_history(), TASK_FAILED):  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.02)
    assert "the key 'new', which is not configured here" in caplog.text
    assert not ledger.calls
    async with worker_of(client, task_queue, ledger):
        assert (await finish(handle)).counts == {"succeeded": 20}
    raw = bytes_of(await handle.fetch_history())
    for secret in SECRETS.values():
        assert secret not in caplog.text
        assert secret.encode() not in raw


async def test_a_command_without_the_key_says_which_one_it_lacks(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """A result that can't be read is an error that names the key, not an empty answer."""
    ledger = FakeLedger()
    client = await connect(temporal_server.address, "new")
    async with worker_of(client, task_queue, ledger):
        handle = await Stage(client, task_queue, ledger).start()
        await finish(handle)
    keyless = await connect(temporal_server.address, "old")
    with pytest.raises(PayloadUnreadable, match="the key 'new', which is not configured here"):
        await keyless.get_workflow_handle_for(BillingRun.run, handle.id).result()


async def test_why_an_activity_is_tried_again_is_read_through_the_codec(
    temporal_server: TemporalServer, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run show` says what went wrong, though Temporal itself knows of an encoded failure only."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    monkeypatch.setenv(KEYS_VARIABLE, written("new"))
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    client = await connect_temporal()
    ledger = FakeLedger(plan_errors=[RuntimeError(TROUBLE)] * 1_000)
    async with worker_of(client, task_queue, ledger), asyncio.timeout(DEADLINE_SECONDS):
        handle = await Stage(client, task_queue, ledger).start(timing=Timing.PRODUCTION)
        while (trouble := await read_trouble(handle)) is None:  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.02)
        described = await handle.describe()
        assert trouble == TROUBLE
        assert b"cus_synthetic" not in described.raw_description.SerializeToString()
        await handle.terminate()


async def test_temporals_own_command_line_reads_a_run_through_the_codec_server(
    temporal_server: TemporalServer, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`temporal workflow show` sees ciphertext alone, and with endpoint and token what the run was asked."""
    monkeypatch.setenv(KEYS_VARIABLE, written("new"))
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    client = await connect(temporal_server.address, "new")
    ledger = FakeLedger()
    async with worker_of(client, task_queue, ledger):
        handle = await Stage(client, task_queue, ledger).start()
        await finish(handle)
    token = "a-synthetic-token-of-tests"
    async with open_codec_server(CodecSettings(port=0, token=SecretStr(token))) as url:
        sealed = await show(temporal_server, handle.id)
        opened = await show(
            temporal_server, handle.id, "--codec-endpoint", url, "--codec-auth", f"Bearer {token}"
        )
    assert b"charges.csv" not in data_in(sealed.stdout)
    assert b"charges.csv" in data_in(opened.stdout)


def data_in(shown: str) -> bytes:
    """Return the data of all payloads that a command showed."""
    found = re.findall(r'"data": "([^"]+)"', shown)
    assert found
    return b" ".join(base64.b64decode(data) for data in found)


async def show(server: TemporalServer, workflow_id: str, *options: str) -> "subprocess.CompletedProcess[str]":
    """Return what Temporal's command line says of a workflow's history."""
    return await asyncio.to_thread(
        subprocess.run,
        [
            str(find_temporal()), "workflow", "show", "--workflow-id", workflow_id,
            "--address", server.address, "--output", "json", "--disable-config-file", "--disable-config-env",
            *options,
        ],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"NO_PROXY": "127.0.0.1"},
    )  # fmt: skip
