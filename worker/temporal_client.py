"""Where Temporal is, by its own standard environment configuration, and handles of runs there."""

import asyncio
import ctypes
import logging
from datetime import timedelta
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.envconfig import ClientConfig
from temporalio.exceptions import FailureError
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode

from worker.payload_codec import converter_for
from worker.payload_keys import load_payload_keys
from workflows.billing_run import BillingRun
from workflows.contracts import RunProgress
from workflows.domain.echo import readable
from workflows.domain.errors import RefusedToStart

CONNECT_SECONDS = 10.0
QUERY_SECONDS = 3.0

RunHandle = WorkflowHandle[BillingRun, Any]


async def connect_temporal(*, quiet: bool = True, within_seconds: float = CONNECT_SECONDS) -> Client:
    """Return a client of the server that TEMPORAL_ADDRESS and its siblings name.

    `quiet` is for commands: what the SDK has to say belongs into a worker's log, not between results.

    Raises:
        RefusedToStart: It does not answer within `within_seconds`, or the keys of payloads can't be right.
    """
    if quiet:
        logging.getLogger("temporalio").setLevel(logging.ERROR)
    converter = converter_for(load_payload_keys())
    config = ClientConfig.load_client_connect_config()
    address = config.get("target_host", "localhost:7233")
    config["target_host"] = address
    # The SDK's core logs to stdout, which belongs to the command's result.
    runtime = Runtime(telemetry=TelemetryConfig(logging=None))
    # Never dropped: Python's last collection would wait in there for a thread that, if a call had just been
    # cut off, waits for Python. A command that had said everything would hang instead of ending.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(runtime))
    try:
        async with asyncio.timeout(within_seconds):
            return await Client.connect(**config, data_converter=converter, runtime=runtime)
    except (TimeoutError, RuntimeError, RPCError) as error:
        reason = str(error).splitlines()[0] if str(error) else "no answer"
        raise RefusedToStart(f"Temporal does not answer at {address}: {reason}") from error


async def read_progress(handle: RunHandle) -> RunProgress | None:
    """Return the workflow's own counters, or None where no worker answers within 3 s."""
    try:
        return await handle.query(BillingRun.progress, rpc_timeout=timedelta(seconds=QUERY_SECONDS))
    except Exception:  # noqa: BLE001 - progress is a courtesy: the ledger has the numbers
        return None


async def read_trouble(handle: WorkflowHandle[Any, Any]) -> str | None:
    """Return why a workflow's work is being tried again, in one line; None where none is, or no answer."""
    try:
        described = await handle.describe(rpc_timeout=timedelta(seconds=QUERY_SECONDS))
        failures = [
            await described.data_converter.decode_failure(activity.last_failure)  # may be encrypted
            for activity in described.raw_description.pending_activities
            if activity.HasField("last_failure")
        ]
    except Exception:  # noqa: BLE001 - a courtesy, as above
        return None
    if not failures:
        return None
    message = failures[0].message if isinstance(failures[0], FailureError) else str(failures[0])
    return readable(" ".join(message.split()))


async def wake(handle: RunHandle) -> RunProgress:
    """Wake the run at once: it asks the ledger what is due now.

    Raises:
        RefusedToStart: There is no such run at Temporal, it has ended, or no worker took the update.
    """
    try:
        progress: RunProgress = await handle.execute_update(
            "tick", result_type=RunProgress, rpc_timeout=timedelta(seconds=CONNECT_SECONDS)
        )
        return progress
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise RefusedToStart(f"run {handle.id} does not run any more: nothing to wake") from error
        raise RefusedToStart(
            f"run {handle.id} could not be woken: {error.message}. Is a worker running?"
        ) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise RefusedToStart(f"run {handle.id} could not be woken: no worker answered") from error


async def is_running(client: Client, run_id: str) -> bool:
    """Return whether a workflow of the run runs now."""
    try:
        described = await client.get_workflow_handle(run_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False  # Temporal keeps what has ended for a while only; the ledger keeps it for good
        raise
    return described.status is WorkflowExecutionStatus.RUNNING
