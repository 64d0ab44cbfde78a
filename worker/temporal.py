"""The Temporal worker: registers workflows and activities, says when it is ready, drains on SIGTERM."""

import json
import os
from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.inbox import InboxWorker
from activities.launch import LaunchActivities
from activities.ledger.calendar import CalendarLedger
from activities.ledger.notifications import NotificationLedger
from activities.reconcile import ReconcileActivities
from activities.refund import RefundActivities
from worker.build import read_build_id
from worker.inbox_loop import working_inbox
from worker.notify_loop import attending
from worker.serving import stop_on_signal
from worker.settings import Settings
from worker.temporal_client import connect_temporal
from worker.wiring import Parts, open_parts
from workflows.billing_run import BillingRun
from workflows.launch import LaunchRun
from workflows.launch_reconcile import LaunchReconcile
from workflows.notify import DeliverNotifications
from workflows.policies import TIMINGS
from workflows.reconcile import Reconcile
from workflows.refund import RefundCharge

PASSED_THROUGH = (
    "workflows.contracts",
    "workflows.control_contracts",
    "workflows.follow_up_contracts",
    "workflows.launch_contracts",
    "workflows.launch_reconcile_contracts",
    "workflows.notify_contracts",
    "workflows.policies",
    "workflows.reconcile_contracts",
    "workflows.refund_contracts",
    "workflows.domain",
)
# Slices wait for the limiter or for their account most of the time, and those that wait hold nothing. There
# are places for those of many runs at once and some to spare: neither a pause nor another account's run must
# ever wait until a slice has ended.
ACTIVITIES_AT_ONCE = 1_000


def build_worker(client: Client, parts: Parts) -> Worker:
    """Return a worker for every workflow and activity of the project."""
    settings, timing = parts.settings, TIMINGS[parts.settings.timing]
    runs, charges, control = parts.run_activities, parts.charge_activities, parts.control_activities
    notify, follow_ups = parts.notification_activities, parts.follow_up_activities
    launch = LaunchActivities(
        calendar=CalendarLedger(parts.pool), runs=parts.runs, accounts=parts.accounts, client=client
    )
    reconcile = ReconcileActivities(parts.pool, parts.accounts)
    refunds = RefundActivities(parts.pool, parts.accounts)
    return Worker(
        client,
        task_queue=settings.task_queue,
        build_id=read_build_id(),
        workflows=[BillingRun, DeliverNotifications, LaunchReconcile, LaunchRun, Reconcile, RefundCharge],
        activities=[
            runs.lock_run,
            runs.plan_run,
            runs.give_up_run,
            runs.read_due,
            runs.begin_settling,
            runs.close_run,
            charges.charge_slice,
            charges.settle_due,
            follow_ups.plan_follow_ups,
            follow_ups.read_follow_ups_due,
            follow_ups.follow_up_due,
            control.approve_run,
            control.hold_run,
            control.resume_run,
            control.close_breaker,
            control.cancel_run,
            control.raise_cap,
            control.read_canary,
            control.release_canary,
            notify.claim_notifications,
            notify.deliver_notification,
            notify.give_up_notification,
            launch.prepare_launch,
            launch.find_winner,
            reconcile.open_reconciliation,
            reconcile.scan_slice,
            reconcile.suspect_unseen,
            reconcile.look_at_suspects,
            reconcile.find_missed_events,
            reconcile.close_reconciliation,
            refunds.carry_refund,
        ],
        workflow_runner=SandboxedWorkflowRunner(
            restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH)
        ),
        max_concurrent_activities=ACTIVITIES_AT_ONCE,
        graceful_shutdown_timeout=timedelta(seconds=timing.drain),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=timing.sticky_queue),
        max_heartbeat_throttle_interval=timedelta(seconds=timing.heartbeat / 3),
        default_heartbeat_throttle_interval=timedelta(seconds=timing.heartbeat / 3),
        disable_eager_activity_execution=True,
    )


async def run_worker(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT, then drain: finish what is in flight, begin nothing new.

    Raises:
        RefusedToStart: Database or Temporal is not there, or the live key was not spoken for.
    """
    stop = stop_on_signal()
    client = await connect_temporal(quiet=False)
    database_url = settings.database_url.get_secret_value()
    async with (
        open_parts(settings) as parts,
        working_inbox(
            InboxWorker(parts.pool, parts.accounts), database_url, sweep_seconds=settings.inbox_sweep_seconds
        ),
        attending(client, NotificationLedger(parts.pool), settings),
        build_worker(client, parts),
    ):
        if settings.ready_file is not None:
            settings.ready_file.write_text(json.dumps({"pid": os.getpid()}))
        await stop.wait()
