"""A process of its own: a worker with an activity per Stripe call, and the client that waits for it."""

import asyncio
import json
import sys
import time

import uvloop
from pydantic import BaseModel, ConfigDict, Field
from temporalio import activity
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.gateway.requests import StripeAccount, confirm_request, create_request
from activities.gateway.stripe_gateway import StripeGateway
from deploy.bench.customers import Due
from deploy.bench.jobs import LoopResult
from deploy.bench.per_call_workflow import Batch, ChargePerCall
from worker.temporal_client import connect_temporal
from workflows.domain.answer import Answer
from workflows.domain.errors import ChargeonceError
from workflows.domain.keys import ChargeId, Operation, key_for

TASK_QUEUE = "bench-per-call"
BATCH_CHARGES = 500
ACCOUNT = StripeAccount("acct_sim", connected=False)


class PerCallJob(BaseModel):
    """How many customers of which label are charged, and how many at once."""

    model_config = ConfigDict(frozen=True)

    url: str
    secret_key: str
    label: str
    charges: int = Field(ge=1)
    at_once: int = Field(ge=1)


class StripeActivities:
    """One activity per call, with a stable key: as safe as this way of doing it gets."""

    def __init__(self, gateway: StripeGateway) -> None:
        self._gateway = gateway

    @activity.defn(name="bench_create")
    async def create(self, due: Due) -> str:
        """Make the PaymentIntent and return its id."""
        key = key_for(Operation.CREATE, due.identity, 1)
        request = create_request(
            amount_minor=due.amount_minor, currency="usd", customer=due.customer,
            payment_method=due.payment_method, charge_id=ChargeId(due.identity), create_key=key,
            period="2031-01", line="base", run="bench",
        )  # fmt: skip
        answer = await self._gateway.post(
            Operation.CREATE, account=ACCOUNT, path=request.path, parameters=request.parameters, key=key
        )
        return _intent(answer)[0]

    @activity.defn(name="bench_confirm")
    async def confirm(self, payment_intent: str, due: Due) -> str:
        """Confirm the PaymentIntent and return its status."""
        key = key_for(Operation.CONFIRM, due.identity, 1)
        request = confirm_request(payment_intent, due.payment_method)
        answer = await self._gateway.post(
            Operation.CONFIRM, account=ACCOUNT, path=request.path, parameters=request.parameters, key=key
        )
        return _intent(answer)[1]


def _intent(answer: Answer) -> tuple[str, str]:
    if answer.payment_intent is None:
        raise ChargeonceError(f"no PaymentIntent in the answer: {answer.message}")
    return answer.payment_intent.id, answer.payment_intent.status


async def _run(job: PerCallJob) -> LoopResult:
    client = await connect_temporal()
    async with StripeGateway(api_key=job.secret_key, api_base=job.url, connections=job.at_once) as gateway:
        activities = StripeActivities(gateway)
        worker = Worker(
            client,
            task_queue=TASK_QUEUE,
            workflows=[ChargePerCall],
            activities=[activities.create, activities.confirm],
            workflow_runner=SandboxedWorkflowRunner(
                restrictions=SandboxRestrictions.default.with_passthrough_modules("deploy", "workflows")
            ),
            max_concurrent_activities=job.at_once,
        )
        async with worker:
            batches = _batches(job)
            began, cpu_began = time.perf_counter(), time.process_time()
            succeeded = await asyncio.gather(
                *(
                    client.execute_workflow(
                        ChargePerCall.run,
                        batch,
                        id=batch.workflow_id,
                        task_queue=TASK_QUEUE,
                    )
                    for batch in batches
                )
            )
            return LoopResult(
                seconds=time.perf_counter() - began,
                cpu_seconds=time.process_time() - cpu_began,
                succeeded=sum(succeeded),
            )


def _batches(job: PerCallJob) -> list[Batch]:
    firsts = range(0, job.charges, BATCH_CHARGES)
    at_once = max(1, job.at_once // len(firsts))
    return [
        Batch(label=job.label, first=first, count=min(BATCH_CHARGES, job.charges - first), at_once=at_once)
        for first in firsts
    ]


def main() -> None:
    """Read a job as JSON on standard input, write its result as JSON on standard output."""
    job = PerCallJob.model_validate(json.load(sys.stdin))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(_run(job))
    print(result.model_dump_json())


if __name__ == "__main__":
    main()
