import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from deploy.temporal_server import TemporalServer
from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.fakes import FakeRunActivities, fake_activities
from tests.workflows.stage import Stage, build_worker, connect, decide, finish, progress_once, sandbox
from workflows import notify_contracts
from workflows.contracts import Canary, HoldKind, RunKey, RunReport, Timing
from workflows.notify import DeliverNotifications
from workflows.notify_contracts import Claim, Claimed, DeliveryReport, DeliveryRequest, Waiting
from workflows.policies import DELIVERIES, delivering

DEADLINE_SECONDS = 30.0


@dataclass
class FakeOutbox(notify_contracts.NotificationActivities):
    """What waits, by destination, and how many tries of each fail."""

    failures: dict[str, int]
    tries: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    given_up: list[str] = field(default_factory=list)
    deliverers: list[str] = field(default_factory=list)

    @activity.defn(name="claim_notifications")
    async def claim_notifications(self, claim: Claim) -> Claimed:
        """Give everything."""
        self.deliverers.append(claim.deliverer)
        named = enumerate(self.failures, start=1)
        return Claimed(waiting=tuple(Waiting(notification_id=id_, destination=name) for id_, name in named))

    @activity.defn(name="deliver_notification")
    async def deliver_notification(self, waiting: Waiting) -> None:
        """Fail as often as it was told to."""
        name = waiting.destination
        self.tries[name].append(time.monotonic())
        if len(self.tries[name]) <= self.failures[name]:
            raise ApplicationError(f"{name}: HTTP 503", type="NotDelivered")

    @activity.defn(name="give_up_notification")
    async def give_up_notification(self, waiting: Waiting) -> None:
        """Note it."""
        self.given_up.append(waiting.destination)

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Everything, for a worker."""
        return [self.claim_notifications, self.deliver_notification, self.give_up_notification]


async def deliver(client: Client, task_queue: str, outbox: FakeOutbox) -> DeliveryReport:
    """Deliver what waits in `outbox`, and return what came of it."""
    worker = Worker(
        client,
        task_queue=task_queue,
        workflows=[DeliverNotifications],
        activities=outbox.activities,
        workflow_runner=sandbox(),
        disable_eager_activity_execution=True,
    )
    request = DeliveryRequest(run=RunKey(run_id="run", account="acct_fake"), timing=Timing.TESTS)
    async with worker, asyncio.timeout(DEADLINE_SECONDS):
        report: DeliveryReport = await client.execute_workflow(
            DeliverNotifications.run, request, id=f"notify/{task_queue}", task_queue=task_queue
        )
    return report


async def test_the_third_try_is_taken(temporal_server: TemporalServer, task_queue: str) -> None:
    """A destination that fails twice is tried a third time, each pause at least twice the one before."""
    outbox = FakeOutbox({"webhook": 2})
    report = await deliver(await connect(temporal_server.address), task_queue, outbox)
    assert (report.delivered, report.given_up) == (1, 0)
    first, second, third = outbox.tries["webhook"]
    pause_seconds = DELIVERIES[Timing.TESTS].first_pause
    assert second - first >= pause_seconds
    assert third - second >= 2 * pause_seconds
    assert outbox.deliverers == [f"notify/{task_queue}"]


async def test_a_broken_destination_holds_up_no_other(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """One that never answers is tried for its whole time and given up; the others had it at once."""
    outbox = FakeOutbox({"webhook": 1_000, "slack": 0, "email": 1})
    report = await deliver(await connect(temporal_server.address), task_queue, outbox)
    assert (report.delivered, report.given_up) == (2, 1)
    assert outbox.given_up == ["webhook"]
    assert (len(outbox.tries["slack"]), len(outbox.tries["email"])) == (1, 2)
    assert len(outbox.tries["webhook"]) >= 2
    assert max(outbox.tries["slack"] + outbox.tries["email"]) < outbox.tries["webhook"][-1]


async def test_an_empty_outbox_is_no_trouble(temporal_server: TemporalServer, task_queue: str) -> None:
    """Where nobody is to be told, the deliverer ends at once."""
    report = await deliver(await connect(temporal_server.address), task_queue, FakeOutbox({}))
    assert report == DeliveryReport()


def test_in_production_it_is_tried_for_three_days_more_and_more_rarely() -> None:
    """From seconds to an hour between tries: an outage over a weekend is survived with some eighty tries."""
    seconds, policy = DELIVERIES[Timing.PRODUCTION], delivering(Timing.PRODUCTION)
    assert timedelta(seconds=seconds.give_up_after) == timedelta(days=3)
    assert policy.maximum_attempts == 0
    pause, waited, pauses = seconds.first_pause, 0.0, []
    while waited + pause < seconds.give_up_after:
        pauses.append(pause)
        waited += pause
        pause = min(pause * policy.backoff_coefficient, seconds.pause_max)
    assert pauses[:4] == [2, 4, 8, 16]
    assert pauses == sorted(pauses)
    assert max(pauses) == 3_600
    assert 72 <= len(pauses) <= 96


class AnnouncingRunActivities(FakeRunActivities):
    """The ledger's part of a run whose close leaves something to deliver."""

    @activity.defn(name="close_run")
    async def close_run(self, run: RunKey) -> RunReport:
        """Close, and say that two notifications wait."""
        return (await super().close_run(run)).model_copy(update={"notifications": 2})


def announcing(ledger: FakeLedger, outbox: FakeOutbox) -> Sequence[Callable[..., Any]]:
    """Return the activities of a worker that has somebody to tell."""
    replaced = [AnnouncingRunActivities(ledger).close_run, *outbox.activities]
    names = {one.__name__ for one in replaced}
    return [*replaced, *(one for one in fake_activities(ledger) if one.__name__ not in names)]


def children(history: WorkflowHistory) -> list[str]:
    """Return the ids of the child workflows that a run has started."""
    initiated = [event.start_child_workflow_execution_initiated_event_attributes for event in history.events]
    return [one.workflow_id for one in initiated if one.workflow_id]


async def test_a_run_ends_while_its_destination_is_down(
    temporal_server: TemporalServer, task_queue: str
) -> None:
    """The run returns its report at once; what it leaves behind goes on trying, and ends by itself."""
    client, ledger, outbox = await connect(temporal_server.address), FakeLedger(), FakeOutbox({"webhook": 4})
    async with build_worker(client, task_queue, announcing(ledger, outbox)):
        stage = Stage(client, task_queue, ledger)
        handle = await stage.start()
        report = await finish(handle)
        assert (report.phase, report.notifications) == ("closed", 2)
        assert len(outbox.tries["webhook"]) <= 2
        [deliverer] = children((await stage.histories(handle))[-1])
        assert deliverer.startswith(f"notify/{stage.run_id}/")
        async with asyncio.timeout(DEADLINE_SECONDS):
            await client.get_workflow_handle(deliverer).result()
    assert len(outbox.tries["webhook"]) + len(outbox.given_up) >= 3


async def test_a_hold_by_a_rule_tells_somebody(temporal_server: TemporalServer, task_queue: str) -> None:
    """A canary that waits for a person starts a deliverer; the pause of a person starts none."""
    client, ledger, outbox = await connect(temporal_server.address), FakeLedger(slices=3), FakeOutbox({})
    async with build_worker(client, task_queue, announcing(ledger, outbox)):
        stage = Stage(client, task_queue, ledger)
        handle = await stage.start(canary=Canary(lines=1))
        await progress_once(handle, lambda progress: progress.hold is HoldKind.CANARY)
        await decide(handle, "resume")
        await finish(handle)
        assert len(children((await stage.histories(handle))[-1])) == 2


async def test_a_plan_that_waits_tells_somebody(temporal_server: TemporalServer, task_queue: str) -> None:
    """Before anybody has approved it, a deliverer is under way."""
    client, outbox = await connect(temporal_server.address), FakeOutbox({})
    ledger = FakeLedger(approved=False)
    async with build_worker(client, task_queue, announcing(ledger, outbox)):
        stage = Stage(client, task_queue, ledger)
        handle = await stage.start()
        await progress_once(handle, lambda progress: progress.phase == "approve")
        await decide(handle, "cancel")
        await finish(handle)
        assert len(children((await stage.histories(handle))[-1])) == 2
