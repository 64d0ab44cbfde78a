"""A whole system for one test: ledger, simulator, Temporal, and worker processes that can be killed."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateStage
from temporalio.common import WorkflowIDReusePolicy
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.sources.csv_file import sha256_of
from deploy.postgres import Database
from deploy.stripe_sim.testing import RunningSim
from deploy.temporal_server import TemporalServer
from tests.forking import Forked, Nursery
from workflows.billing_run import BillingRun
from workflows.contracts import Decision, RunInput, RunReport, RunRequest, Timing
from workflows.domain.retry_policy import NOTHING_AFTERWARDS

ACCOUNT = "acct_sim"
PERIOD = "2031-03"
DEADLINE_SECONDS = 60


@dataclass
class World:
    """Everything that a run needs, and a hand on its processes."""

    database: Database
    sim: RunningSim
    temporal: TemporalServer
    nursery: Nursery
    task_queue: str
    folder: Path
    client: Client
    workers: list[Forked] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        """A Temporal server is shared by tests, so the id carries the test's queue."""
        return f"billing-run/{ACCOUNT}/{PERIOD}/{self.task_queue}"

    async def start_worker(self, *, crash_at: str | None = None) -> Forked:
        """Start a worker process; it may die at `crash_at`, by its own hand."""
        environment = {
            **os.environ,
            "CHARGEONCE_DATABASE_URL": self.database.app_url,
            "STRIPE_SECRET_KEY": "sk_test_synthetic",
            "CHARGEONCE_STRIPE_API_BASE": self.sim.url,
            "CHARGEONCE_TASK_QUEUE": self.task_queue,
            "CHARGEONCE_TIMING": "tests",
            "CHARGEONCE_RATE_PER_SECOND": "500",
            "CHARGEONCE_TIMEOUT_SECONDS": "5",
            "CHARGEONCE_REQUESTS_AT_ONCE": "16",
            "TEMPORAL_ADDRESS": self.temporal.address,
            "TEMPORAL_NAMESPACE": "default",
        }
        if crash_at is not None:
            environment["CRASH_AT"] = crash_at
        log = self.folder / f"worker-{len(self.workers)}.log"
        worker = self.nursery.fork("tests.crash.dying_worker:main", environment=environment, output=log)
        self.workers.append(worker)
        return worker

    def write_source(self, lines: int) -> Path:
        """Write a source of `lines` customers, seed the simulator with them, and return its path."""
        path = self.folder / "charges.csv"
        rows = ["customer,currency,amount_minor,payment_method"]
        for number in range(lines):
            customer, method = f"cus_crash_{number:04d}", _method(number)
            self.sim.seed(customer, method)
            rows.append(f"{customer},usd,{1_000 + number},{method}")
        path.write_text("\n".join(rows) + "\n")
        return path

    async def start_run(self, source: Path, *, slice_size: int = 20) -> WorkflowHandle[BillingRun, RunReport]:
        """Start the run as the command line does."""
        request = RunRequest(
            account=ACCOUNT,
            period=PERIOD,
            run_id=self.run_id,
            source=str(source),
            source_sha256=sha256_of(source),
            started_by="a crash test",
            approve_any=True,
            slice_size=slice_size,
            slices_at_once=2,
            timing=Timing.TESTS,
            retry_policy=NOTHING_AFTERWARDS,
        )
        return await self.client.start_workflow(
            BillingRun.run,
            RunInput(request=request),
            id=self.run_id,
            task_queue=self.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        )

    async def wait_for_requests(self, count: int) -> None:
        """Wait until the simulator has seen `count` requests."""
        async with asyncio.timeout(2 * DEADLINE_SECONDS):
            while len(self.sim.requests) < count:  # noqa: ASYNC110 - the journal has no event to wait for
                await asyncio.sleep(0.005)

    async def wait_for_hold(self, handle: WorkflowHandle[BillingRun, RunReport]) -> None:
        """Wait until the run is held, by whomever."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (await handle.query(BillingRun.progress)).hold is None:  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.05)

    async def wait_for_idleness(self, handle: WorkflowHandle[BillingRun, RunReport]) -> None:
        """Wait until all that is left of the run waits for a time to come."""
        progress = BillingRun.progress
        async with asyncio.timeout(DEADLINE_SECONDS):
            while (await handle.query(progress)).waiting_until_epoch_seconds is None:  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.05)

    async def cancel(self, handle: WorkflowHandle[BillingRun, RunReport]) -> None:
        """Cancel the run as the command line does; a worker may die while it answers."""
        decision = Decision(who="a crash test", reason="scripted")
        await handle.start_update(BillingRun.cancel, decision, wait_for_stage=WorkflowUpdateStage.ACCEPTED)

    async def open_payment_intents(self) -> list[str]:
        """Return the PaymentIntents at Stripe that were never confirmed and still could be."""
        async with StripeGateway(api_key="sk_test_synthetic", api_base=self.sim.url) as gateway:
            listed = await gateway.list_payment_intents(
                StripeAccount(ACCOUNT, connected=False),
                customer=None,
                created_from_epoch_seconds=0,
                created_to_epoch_seconds=None,
                started_epoch_seconds=0.0,
            )
        assert listed.complete
        return [one.id for one in listed.payment_intents if one.status == "requires_confirmation"]

    async def wait_for_death(self, worker: Forked) -> None:
        """Wait until the worker has killed itself; anything else is a failure, with its log."""
        code = await asyncio.wait_for(worker.wait(), DEADLINE_SECONDS)
        assert code == -signal.SIGKILL, f"exit code {code}:\n{self.logs()}"

    async def story(self) -> str:
        """Return what is open and why, for a failure's message."""
        connection = await asyncpg.connect(self.database.owner_url)
        try:
            rows = await connection.fetch(
                "SELECT c.charge_id, c.state, c.reason, c.due_at - ledger_now() AS due_in,"
                " d.decision, d.reason AS why"
                " FROM charges c LEFT JOIN decisions d USING (charge_id)"
                " WHERE c.state IN ('planned', 'creating', 'prepared', 'confirming') LIMIT 20"
            )
        finally:
            await connection.close()
        return "\n".join(str(dict(row)) for row in rows) + "\n" + self.logs()

    def logs(self) -> str:
        """What the workers wrote."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("worker-*.log")))

    async def finish(self, handle: WorkflowHandle[BillingRun, RunReport]) -> RunReport:
        """Wait for the run's end; a run that does not end tells its story."""
        try:
            return await asyncio.wait_for(handle.result(), DEADLINE_SECONDS)
        except TimeoutError:
            raise AssertionError(f"the run did not end:\n{await self.story()}") from None

    async def stop_workers(self) -> None:
        """End what still runs."""
        for worker in self.workers:
            worker.terminate()
        for worker in self.workers:
            try:
                await asyncio.wait_for(worker.wait(), 15)
            except TimeoutError:
                worker.kill()
                await worker.wait()


def _method(number: int) -> str:
    if number % 11 == 5:
        return f"pm_card_chargeCustomerFail_{number:04d}"
    if number % 13 == 7:
        return f"pm_card_authenticationRequired_{number:04d}"
    return f"pm_card_visa_{number:04d}"


@asynccontextmanager
async def open_world(
    *,
    database: Database,
    sim: RunningSim,
    temporal: TemporalServer,
    nursery: Nursery,
    task_queue: str,
    folder: Path,
) -> AsyncIterator[World]:
    """Yield a world and end its processes afterwards."""
    client = await Client.connect(temporal.address, data_converter=pydantic_data_converter)
    world = World(database, sim, temporal, nursery, task_queue, folder, client)
    try:
        yield world
    finally:
        await world.stop_workers()


def outcomes_of(report: RunReport) -> dict[str, int]:
    """Return what a run's lines came to, those that are 0 left out.

    A decline is final only once no confirm of it may still pay (I12): where a killed worker has left one
    without an answer, the PaymentIntent is canceled first. Here it counts as the decline that it was.
    """
    counts = {name: count for name, count in report.counts.items() if count}
    canceled = counts.pop("canceled", 0)
    if canceled:
        counts["declined"] = counts.get("declined", 0) + canceled
    return counts


def expected_counts(lines: int) -> dict[str, int]:
    """What the payment methods of `lines` customers come to, by the simulator's documented behaviour."""
    methods: Sequence[str] = [_method(number) for number in range(lines)]
    declined = sum("chargeCustomerFail" in method for method in methods)
    needs_customer = sum("authenticationRequired" in method for method in methods)
    counts = {
        "succeeded": lines - declined - needs_customer,
        "declined": declined,
        "needs_customer": needs_customer,
    }
    return {name: count for name, count in counts.items() if count}
