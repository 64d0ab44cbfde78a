"""`chargeonce run tick`: wake a run."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from activities.ledger.database import open_pool
from activities.ledger.runs import RunLedger
from worker.console_output import Output
from worker.environment import load_settings
from worker.run_advice import describe_recovery
from worker.run_follow import follow_run
from worker.run_view import name_state, view_run
from worker.temporal_client import RunHandle, connect_temporal, wake
from worker.workflow_state import WorkflowState, workflow_state
from workflows.domain.errors import RefusedToStart

if TYPE_CHECKING:
    from rich.console import RenderableType


async def tick_run(output: Output, run_id: str, *, wait: bool) -> None:
    """Wake a run, and with `wait` follow it until nothing more is due. One that has ended needs no waking.

    Raises:
        RefusedToStart: There is no such run, or no worker that could wake it.
        typer.Exit: 1, with `wait`: it is not finished.
    """
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        ledger = RunLedger(pool)
        await ledger.read(run_id)
        client = await connect_temporal()
        handle: RunHandle = client.get_workflow_handle(run_id)
        try:
            await wake(handle)
        except RefusedToStart:
            match await workflow_state(client, ledger, run_id):
                case WorkflowState.ENDED:
                    output.notice(f"{run_id} has ended: there was nothing to wake")
                case WorkflowState.LOST:
                    raise RefusedToStart(
                        f"nobody was woken: the workflow of {run_id} was lost, and only a new one carries it "
                        f"on: {describe_recovery(run_id)}"
                    ) from None
                case _:
                    raise
        if wait:
            # Whoever wakes a run that waits for a person is told so, and does not wait for that person here.
            await follow_run(output, handle, pool, settings, person_seconds=0.0)
            return
        document = (await view_run(ledger, run_id)).document()
    output.result(document, lambda: _render_tick(document))


def _render_tick(document: Mapping[str, Any]) -> Iterable["RenderableType"]:
    yield f"{document['run']}: {name_state(document)}; look again with chargeonce run show {document['run']}"
