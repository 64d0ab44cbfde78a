import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from deploy.postgres import Database
from deploy.temporal_server import TemporalServer
from worker.failures import CommandFailed
from worker.starting import begin_run
from worker.workflow_state import WorkflowState, workflow_state
from workflows.contracts import RunRequest, Timing


async def test_a_workflow_lost_before_its_lock_keeps_no_period(
    database: Database, temporal_server: TemporalServer, task_queue: str
) -> None:
    """Terminated without a row it charged nobody, so its id starts again, once; one that runs is refused."""
    client = await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)
    request = RunRequest(
        account="acct_lost",
        period="2031-03",
        run_id=f"billing-run/acct_lost/{task_queue}",
        source="charges.csv",
        source_sha256="ab",
        started_by="tests",
        timing=Timing.TESTS,
    )
    async with open_pool(database.app_url, connections=1) as pool:
        lost = await start(client, pool, request, task_queue)
        with pytest.raises(CommandFailed, match="phase starting"):
            await start(client, pool, request, task_queue)
        await client.get_workflow_handle(lost).terminate("nobody was working on it yet")
        again = await start(client, pool, request, task_queue)
        assert again == lost
        with pytest.raises(CommandFailed, match="owns this period already"):
            await start(client, pool, request, task_queue)
        await client.get_workflow_handle(again).terminate("the test is over")


async def test_a_run_whose_workflow_was_lost_is_told_as_such(
    database: Database, temporal_server: TemporalServer, task_queue: str
) -> None:
    """Its row keeps the period and nobody works on it: whoever starts again is told to recover it."""
    client = await Client.connect(temporal_server.address, data_converter=pydantic_data_converter)
    run_id = f"billing-run/acct_lost/{task_queue}"
    request = RunRequest(
        account="acct_lost", period="2031-03", run_id=run_id, source="charges.csv", source_sha256="ab",
        started_by="tests", timing=Timing.TESTS,
    )  # fmt: skip
    async with open_pool(database.app_url, connections=1) as pool:
        ledger = RunLedger(pool)
        await start(client, pool, request, task_queue)
        await ledger.lock(
            run_id, account="acct_lost", period="2031-03", owner="first", source="charges.csv",
            source_sha256="ab", started_by="tests",
        )  # fmt: skip
        assert await workflow_state(client, ledger, run_id) is WorkflowState.RUNNING
        assert await workflow_state(None, ledger, run_id) is WorkflowState.UNKNOWN
        await client.get_workflow_handle(run_id).terminate("by hand")
        assert await workflow_state(client, ledger, run_id) is WorkflowState.LOST
        with pytest.raises(CommandFailed, match=f"workflow was lost.*chargeonce run recover {run_id}"):
            await start(client, pool, request, task_queue)
        await ledger.fail(run_id, "the test is over")
        assert await workflow_state(client, ledger, run_id) is WorkflowState.ENDED


async def start(client: Client, pool: Pool, request: RunRequest, task_queue: str) -> str:
    """Start the run where no worker listens, and return its id."""
    return (await begin_run(client, RunLedger(pool), request, task_queue=task_queue)).id
