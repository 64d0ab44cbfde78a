"""Decide about a run from Python: approve, pause, resume, cancel, raise its cap, recover it.

Each decision goes through the run's own workflow, which writes it into the ledger with who, when and why, and
answers with the counts whole. A decision that can't be taken raises RefusedToStart, and nothing has changed.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeVar

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.ledger.runs import Run, RunLedger
from worker.reasons import REASON_RULE
from worker.run_advice import describe_recovery
from worker.run_view import ENDED_PHASES
from worker.settings import Settings
from worker.temporal_client import RunHandle, is_running
from workflows.billing_run import BillingRun
from workflows.contracts import Approval, CapRaise, Decision, RunInput, RunRequest, Standing
from workflows.domain.errors import InvalidInput, RefusedToStart

DECIDE_SECONDS = 20.0

Made = TypeVar("Made", bound=Decision)

_RIGHT = {
    "who": "who decides has 1 to 200 characters that can be seen, and no control characters",
    "reason": REASON_RULE,
    "plan_hash": "a plan's hash has 1 to 200 characters",
    "caps_minor": "a cap is an amount from 0 up that the ledger can hold",
}


async def approve_run(client: Client, run_id: str, plan_hash: str, *, who: str, reason: str) -> Standing:
    """Let a planned run charge. `plan_hash` is the hash of the plan that was looked at, and of no other.

    Raises:
        InvalidInput: `who`, `reason` or the hash is empty, too long or no plain text.
        RefusedToStart: The plan has another hash, or there is nothing to approve; nothing has changed. Or
            nobody answered within 20 s, and the audit trail says what became of it.
    """
    approval = decision_of(Approval, who=who, reason=reason, plan_hash=plan_hash)
    return await _decide(client, run_id, "approve", approval)


async def pause_run(client: Client, run_id: str, *, who: str, reason: str) -> Standing:
    """Let a run start nothing new; what is in flight is finished. Raises as `approve_run` does."""
    return await _decide(client, run_id, "pause", decision_of(Decision, who=who, reason=reason))


async def resume_run(client: Client, run_id: str, *, who: str, reason: str) -> Standing:
    """Let a held run go on, whatever it was held for. Raises as `approve_run` does."""
    return await _decide(client, run_id, "resume", decision_of(Decision, who=who, reason=reason))


async def cancel_run(client: Client, run_id: str, *, who: str, reason: str) -> Standing:
    """End a run safely: nothing new starts, and what is open is canceled at Stripe. It can't be undone.

    Raises as `approve_run` does.
    """
    return await _decide(client, run_id, "cancel", decision_of(Decision, who=who, reason=reason))


async def raise_cap(
    client: Client, run_id: str, caps_minor: Mapping[str, int], *, who: str, reason: str
) -> Standing:
    """Raise the caps of some currencies to these amounts, in minor units; a run held at its cap goes on.

    Raises as `approve_run` does; a lower cap, or a currency that the plan does not have, is refused.
    """
    wanted = decision_of(CapRaise, who=who, reason=reason, caps_minor=dict(caps_minor))
    return await _decide(client, run_id, "raise_cap", wanted)


async def recover_run(
    client: Client, ledger: RunLedger, settings: Settings, run_id: str, *, who: str, reason: str
) -> RunHandle:
    """Start a new workflow for a run whose own is gone, and return its handle.

    The run goes on from where the ledger says: what waits for approval waits on, what is held stays held. A
    slice of the old workflow that survived it somewhere commits no intent any more for what it had claimed.

    Raises:
        InvalidInput: `who` or `reason` is empty, too long or no plain text.
        RefusedToStart: There is no such run, it has ended, or its workflow runs.
    """
    by = decision_of(Decision, who=who, reason=reason)
    run = await ledger.read(run_id)
    if run.phase in ENDED_PHASES:
        raise RefusedToStart(f"{run_id} has ended ({run.phase}): there is nothing to recover")
    if await is_running(client, run_id):
        raise RefusedToStart(
            f"the workflow of {run_id} runs: there is nothing to recover. Where it does not get on, "
            f"`chargeonce run show {run_id}` says why"
        )
    try:
        return await client.start_workflow(
            BillingRun.run,
            RunInput(request=_request_again(run, settings, by)),
            id=run_id,
            task_queue=settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        raise RefusedToStart(f"somebody else has just recovered {run_id}") from None


def _request_again(run: Run, settings: Settings, by: Decision) -> RunRequest:
    """Return what the run was asked for, under the settings of today and the name of its dead owner."""
    return RunRequest.model_validate(
        {
            "account": run.account,
            "period": run.period,
            "run_id": run.run_id,
            "source": run.source,
            "source_sha256": run.source_sha256,
            "started_by": run.started_by,
            **(run.request or {}),
            "slices_at_once": settings.slices_at_once,
            "timing": settings.timing,
            "recovered_owner": run.owner,
            "recovered_by": by,
        }
    )


async def _decide(client: Client, run_id: str, update: str, decision: Decision) -> Standing:
    handle = client.get_workflow_handle(run_id)
    try:
        standing: Standing = await handle.execute_update(
            update,
            decision,
            result_type=Standing,
            rpc_timeout=timedelta(seconds=DECIDE_SECONDS),
        )
        return standing
    except WorkflowUpdateFailedError as error:
        raise RefusedToStart(f"nothing has changed: {_reason_of(error)}") from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise RefusedToStart(_nobody_answered(run_id, update)) from error
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise RefusedToStart(
                f"no workflow of {run_id} runs, so nothing has changed. Where `chargeonce run show {run_id}` "
                f"says that it has not ended, its workflow was lost: "
                f"{describe_recovery(run_id)}"
            ) from error
        raise RefusedToStart(f"{_nobody_answered(run_id, update)} ({error.message})") from error


def _reason_of(error: WorkflowUpdateFailedError) -> str:
    cause = error.cause
    return getattr(cause, "message", None) or str(cause)


def _nobody_answered(run_id: str, update: str) -> str:
    return (
        f"nobody answered for {run_id} within {DECIDE_SECONDS:.0f} s: is a worker running? Whether it was "
        f"decided ({update}) is in the audit trail: chargeonce run events {run_id}"
    )


def decision_of(kind: type[Made], **fields: object) -> Made:
    """Return a decision. Raises InvalidInput where who, why or what it says can't be right."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        wrong = sorted({str(part["loc"][0]) for part in error.errors() if part["loc"]})
        raise InvalidInput("; ".join(_RIGHT.get(name, f"{name} can't be right") for name in wrong)) from None
