import asyncio
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from deploy.ports import choose_port
from deploy.processes import ChildFailed, start_time_of
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


async def test_a_stranger_on_our_port_is_not_taken_for_our_server(tmp_path: Path) -> None:
    """A port lost to another stack's server, at a restart or in a race, is never used as if it were ours."""
    ours = TemporalServer(tmp_path / "ours", headless=True)
    await ours.start()
    ours.kill()
    stranger = TemporalServer(tmp_path / "stranger", port=ours.port, headless=True)
    try:
        await stranger.start()
        assert stranger.port == ours.port
        with pytest.raises(ChildFailed):
            await ours.start()
        assert not ours.running
        assert stranger.running
    finally:
        await ours.stop()
        await stranger.stop()


async def test_two_servers_that_wish_for_the_same_port_at_once_are_two(tmp_path: Path) -> None:
    """Of two stacks started at once, the one that loses the port gets another, not the other's server."""
    wished = choose_port()
    servers = [TemporalServer(tmp_path / name, port=wished, headless=True) for name in ("one", "two")]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        assert len({server.port for server in servers}) == 2
        assert all(server.running for server in servers)
    finally:
        await asyncio.gather(*(server.stop() for server in servers))
