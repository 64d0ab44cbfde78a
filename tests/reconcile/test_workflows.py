import pytest
from temporalio.client import WorkflowFailureError, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from deploy.temporal_server import TemporalServer
from tests.reconcile.fake_books import ORDER, REQUEST, FakeBooks, FakeRefunds, build_worker
from tests.reconcile.record_histories import FOLDER
from tests.workflows.stage import connect, sandbox
from workflows.reconcile import Reconcile
from workflows.refund import RefundCharge

NAMES = ("customers_listed", "refunded", "scanned", "waited")


async def replay(text: str) -> None:
    """Replay as the project's worker would; raises where it does not fit."""
    replayer = Replayer(
        workflows=[Reconcile, RefundCharge],
        workflow_runner=sandbox(),
        data_converter=pydantic_data_converter,
    )
    await replayer.replay_workflow(WorkflowHistory.from_json("recorded", text))


@pytest.mark.parametrize("name", NAMES)
async def test_a_recorded_history_replays(name: str) -> None:
    """What began under an earlier version goes on under this one."""
    await replay((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    assert {path.stem for path in FOLDER.glob("*.json")} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "step"), [("scanned", "suspect_unseen"), ("waited", "carry_refund"), ("scanned", "scan_slice")]
)
async def test_a_change_of_commands_is_noticed(name: str, step: str) -> None:
    """A history that the workflow would not have written fails to replay."""
    text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
    kind = '"activityType": {\n     "name": '
    changed = text.replace(f'{kind}"{step}"', f'{kind}"other"')
    assert changed != text
    with pytest.raises(NondeterminismError):
        await replay(changed)


async def test_a_reconciliation_takes_its_steps_in_order(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """Every slice is scanned, whatever failed first, before anything is looked at; the report comes last."""
    books = FakeBooks(failures={"slice 1": 2, "look": 1})
    client = await connect(temporal_server.address)
    async with build_worker(client, task_queue, books.activities):
        handle = await client.start_workflow(
            Reconcile.run, REQUEST, id=f"reconcile/{task_queue}", task_queue=task_queue
        )
        report = await handle.result()
        progress = await handle.query(Reconcile.progress)
    assert (report.charges, progress.step, progress.slices_done, progress.left) == (9, "closed", 3, 0)
    scanned = books.asked[1:4]
    assert sorted(scanned) == ["slice 0", "slice 1", "slice 2"]
    assert books.asked[0] == "open"
    assert books.asked[4:] == ["unseen", "look", "look", "look", "events", "close"]


async def test_a_run_that_is_not_there_fails_it_at_once(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """Nobody waits for a reconciliation of nothing."""
    books = FakeBooks(refused="the ledger has no run 'x'")
    client = await connect(temporal_server.address)
    async with build_worker(client, task_queue, books.activities):
        with pytest.raises(WorkflowFailureError) as failure:
            await client.execute_workflow(
                Reconcile.run, REQUEST, id=f"reconcile/{task_queue}", task_queue=task_queue
            )
    assert failure.value.cause is not None
    assert "no run 'x'" in str(failure.value.cause.__cause__)
    assert books.asked == []


@pytest.mark.parametrize("ends", ["made", "refused", "review"])
async def test_a_refund_goes_on_until_it_ends(
    temporal_server: TemporalServer, task_queue: str, ends: str
) -> None:
    """It asks again, at most a second later under this timing, and returns what it came to."""
    refunds = FakeRefunds(steps=3, ends=ends)
    client = await connect(temporal_server.address)
    async with build_worker(client, task_queue, refunds.activities):
        step = await client.execute_workflow(
            RefundCharge.run, ORDER, id=f"refund/{task_queue}", task_queue=task_queue
        )
    assert (step.state, refunds.taken) == (ends, 3)
