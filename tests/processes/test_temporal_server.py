from pathlib import Path

from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from deploy.processes import start_time_of
from deploy.temporal_server import NAMESPACE, RETENTION, TemporalServer


async def test_the_namespace_keeps_closed_workflows(temporal_server: TemporalServer) -> None:
    """Workflow ids protect against a second run for ten years, not for the day that is Temporal's default."""
    client = await Client.connect(temporal_server.address, namespace=NAMESPACE)
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    assert answer.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION


async def test_a_running_workflow_survives_a_killed_server(tmp_path: Path, task_queue: str) -> None:
    """A server killed with SIGKILL is back at its address and still runs what it ran; stopped, it is gone."""
    server = TemporalServer(tmp_path / "temporal", headless=True)
    await server.start()
    try:
        address = server.address
        client = await Client.connect(address, namespace=NAMESPACE)
        await client.start_workflow("AnyWorkflow", id="kept", task_queue=task_queue)
        server.kill()
        await server.start()
        assert server.address == address
        client = await Client.connect(address, namespace=NAMESPACE)
        description = await client.get_workflow_handle("kept").describe()
        assert description.status is WorkflowExecutionStatus.RUNNING
        pid = server.pid
    finally:
        await server.stop()
    assert pid is not None
    assert start_time_of(pid) is None
