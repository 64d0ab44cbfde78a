"""Notifications that nobody delivers any more find somebody again, by themselves or when a person says so."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Worker

from activities.ledger.database import open_pool
from activities.ledger.notifications import NotificationLedger
from activities.notifiers.slack import SlackChannel
from activities.notify import NotificationActivities
from deploy.postgres import Database
from deploy.temporal_server import TemporalServer
from tests.activities.books import ACCOUNT, RUN, Books
from tests.activities.receivers import web_receiver
from tests.conftest import drive
from tests.ledger.planting import close_run
from tests.processes.test_notify_commands import type_json
from tests.workflows.stage import sandbox
from worker.notify_loop import attend
from worker.settings import Settings
from workflows.contracts import RunKey, Timing
from workflows.notify import DeliverNotifications
from workflows.notify_contracts import DeliveryRequest


@pytest.fixture
def settings(
    database: Database, temporal_server: TemporalServer, task_queue: str, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    """The settings of a worker, in the environment as well."""
    variables = {
        "CHARGEONCE_DATABASE_URL": database.app_url,
        "CHARGEONCE_TASK_QUEUE": task_queue,
        "CHARGEONCE_TIMING": Timing.TESTS,
        "STRIPE_SECRET_KEY": "sk_test_x",
        "TEMPORAL_ADDRESS": temporal_server.address,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return Settings()


@asynccontextmanager
async def outbox(settings: Settings) -> AsyncIterator[tuple[NotificationLedger, Client]]:
    """Yield a ledger whose one run has closed with one notification to deliver, and a client."""
    client = await Client.connect(os.environ["TEMPORAL_ADDRESS"], data_converter=pydantic_data_converter)
    url = settings.database_url.get_secret_value()
    async with open_pool(url, connections=2, destinations=("slack",)) as pool:
        if not await pool.fetchval("SELECT count(*) FROM notifications"):
            await Books(pool, gateway=None, sim=None).open_run()  # type: ignore[arg-type]
            await close_run(pool, RUN)
        yield NotificationLedger(pool), client


async def deliver(ledger: NotificationLedger, client: Client, settings: Settings, deliverer: str) -> int:
    """Work until a deliverer has ended, and return how many requests its destination has seen."""
    async with web_receiver() as receiver:
        notify = NotificationActivities(ledger=ledger, destinations=[SlackChannel(receiver.url)])
        worker = Worker(
            client,
            task_queue=settings.task_queue,
            workflows=[DeliverNotifications],
            activities=[notify.claim_notifications, notify.deliver_notification, notify.give_up_notification],
            workflow_runner=sandbox(),
        )
        async with worker:
            await client.get_workflow_handle(deliverer).result()
    return len(receiver.deliveries)


async def states(ledger: NotificationLedger) -> list[str]:
    """Return the state of every notification."""
    return [one["state"] for one in await ledger.newest(run_id=RUN, limit=10)]


async def test_what_nobody_has_taken_is_delivered(settings: Settings) -> None:
    """The run's workflow was terminated right after its close: its notification is not lost."""
    async with outbox(settings) as (ledger, client):
        assert await attend(client, ledger, settings, after_seconds=3_600) == []
        [deliverer] = await attend(client, ledger, settings, after_seconds=0)
        assert await attend(client, ledger, settings, after_seconds=0) == []  # it is under way
        assert await deliver(ledger, client, settings, deliverer) == 1
        assert await states(ledger) == ["delivered"]
        assert await attend(client, ledger, settings, after_seconds=0) == []


async def test_what_a_lost_deliverer_had_taken_is_delivered(settings: Settings) -> None:
    """A deliverer that runs keeps what it took, however long it pauses; one that was terminated does not."""
    async with outbox(settings) as (ledger, client):
        request = DeliveryRequest(run=RunKey(run_id=RUN, account=ACCOUNT), timing=Timing.TESTS)
        mine = f"notify/{settings.task_queue}"
        handle = await client.start_workflow(
            DeliverNotifications.run, request, id=mine, task_queue=settings.task_queue
        )
        assert len(await ledger.claim(RUN, mine)) == 1
        assert await attend(client, ledger, settings, after_seconds=0) == []
        await handle.terminate("by somebody")
        [deliverer] = await attend(client, ledger, settings, after_seconds=0)
        assert await deliver(ledger, client, settings, deliverer) == 1
        assert await states(ledger) == ["delivered"]


def test_a_person_can_have_it_tried_again(settings: Settings) -> None:
    """Of a named run also what was given up, or what is paused between two tries; otherwise what waits."""

    async def give_up() -> None:
        async with outbox(settings) as (ledger, _):
            [(notification_id, _)] = await ledger.claim(RUN, "notify/of-old")
            await ledger.give_up(notification_id)

    async def delivered() -> tuple[int, list[str]]:
        async with outbox(settings) as (ledger, client):
            seen = await deliver(ledger, client, settings, f"notify/{RUN}/retry")
            return seen, await states(ledger)

    drive(give_up())
    assert type_json("notifications", "retry") == (0, {"retried": []})
    assert type_json("notifications", "retry", "--run", "another")[0] == 4
    again = {"retried": [{"run": RUN, "notifications": 1}]}
    assert type_json("notifications", "retry", "--run", RUN) == (0, again)
    assert type_json("notifications", "retry") == (0, again)  # in place of the one before
    assert drive(delivered()) == (1, ["delivered"])
    assert type_json("notifications", "retry", "--run", RUN) == (0, {"retried": []})
