"""A command that has said everything ends, also where a call to Temporal was cut off on the way out."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from temporalio.client import Client

from deploy.temporal_server import NAMESPACE, TemporalServer

CHECKOUT = Path(__file__).resolve().parents[2]
COMMAND = """
import asyncio
import os
from worker.temporal_client import connect_temporal

async def wait_and_give_up():
    client = await connect_temporal()
    client.itself = client  # a cycle, as a real command has them: gone only in Python's last collection
    handle = client.get_workflow_handle(os.environ["RUN"])
    waits = [asyncio.ensure_future(handle.result()) for _ in range(30)]
    await asyncio.sleep(0.5)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)

asyncio.run(wait_and_give_up())
print("said everything", flush=True)
"""


async def test_a_wait_that_is_given_up_lets_its_process_end(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """Calls cut off at the last moment don't keep the process: its end waits for no thread of the SDK."""
    client = await Client.connect(temporal_server.address, namespace=NAMESPACE)
    handle = await client.start_workflow("AnyWorkflow", id=task_queue, task_queue=task_queue)
    try:
        environment = os.environ | {
            "TEMPORAL_ADDRESS": temporal_server.address,
            "PYTHONPATH": str(CHECKOUT),
            "RUN": task_queue,
        }
        for _ in range(3):
            ended = await asyncio.to_thread(
                subprocess.run,
                [sys.executable, "-c", COMMAND],
                capture_output=True,
                text=True,
                check=False,
                env=environment,
                timeout=40,
            )
            assert (ended.returncode, ended.stdout) == (0, "said everything\n"), ended.stderr
    finally:
        await handle.terminate()
