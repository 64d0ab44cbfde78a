"""Timeouts and retry policies, one per contract method, each with its reason."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio.common import RetryPolicy

from workflows.contracts import Timing


@dataclass(frozen=True, slots=True)
class TimingSeconds:
    """One profile of timeouts.

    Heartbeat: how soon a dead worker's slice moves on. Ledger: the same for a statement or two, which do not
    heartbeat. Sticky queue: how soon its workflow does. Poll: how long a wait may sleep before it asks the
    ledger again, since a moved clock wakes no timer; the same for what is waited for over days.
    """

    heartbeat: float
    ledger: float
    sticky_queue: float
    drain: float
    poll_max: float
    retry_max: float
    follow_up_poll_max: float


TIMINGS = {
    # Measured from kill -9 to work going on: 31 s with 30/10, 3.5 s with 1/1 (DESIGN.md section 4).
    Timing.PRODUCTION: TimingSeconds(
        heartbeat=30,
        ledger=30,
        sticky_queue=10,
        drain=45,
        poll_max=600,
        retry_max=60,
        # Polls over weeks would fill histories, and nobody moves a production clock: the whole wait is one
        # timer, since no policy waits longer than this.
        follow_up_poll_max=35 * 86_400,
    ),
    Timing.DEMO: TimingSeconds(
        heartbeat=5, ledger=10, sticky_queue=2, drain=20, poll_max=20, retry_max=5, follow_up_poll_max=20
    ),
    Timing.TESTS: TimingSeconds(
        heartbeat=1, ledger=3, sticky_queue=1, drain=10, poll_max=1, retry_max=1, follow_up_poll_max=1
    ),
}

PLAN_SECONDS = timedelta(days=2)  # a million customers asked how they pay take half a day; heartbeats tell
RECOVER_SECONDS = timedelta(minutes=30)  # every charge that the dead workflow had claimed gets a newer fence
SLICE_SECONDS = timedelta(hours=6)  # a slice under a low rate limit is slow, not dead: heartbeats tell
CLOSE_SECONDS = timedelta(hours=2)  # Stripe is asked about double charges for half an hour at most
LAUNCH_TRY_SECONDS = timedelta(minutes=30)  # hashing the source of a million rows takes seconds to minutes
DELIVERY_TRY_SECONDS = timedelta(seconds=60)  # a notifier gives up by itself after 10 s, or 30 s for mail


@dataclass(frozen=True, slots=True)
class DeliverySeconds:
    """How a notification is tried: the first pause, which doubles up to the longest, and when to give up."""

    first_pause: float
    pause_max: float
    give_up_after: float


DELIVERIES = {
    # Three days outlast a weekend; an hour between tries is soon enough after one.
    Timing.PRODUCTION: DeliverySeconds(first_pause=2, pause_max=3_600, give_up_after=3 * 86_400),
    Timing.DEMO: DeliverySeconds(first_pause=1, pause_max=60, give_up_after=3_600),
    Timing.TESTS: DeliverySeconds(first_pause=0.1, pause_max=1, give_up_after=10),
}


def delivering(timing: Timing) -> RetryPolicy:
    """Try a notification again and again, more and more rarely; the schedule-to-close timeout ends it."""
    seconds = DELIVERIES[timing]
    return RetryPolicy(
        initial_interval=timedelta(seconds=seconds.first_pause),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(seconds=seconds.pause_max),
    )


IDLE_SECONDS = 5.0  # before work is asked for again that was due and on which nothing could be done


def forever(timing: Timing) -> RetryPolicy:
    """Retry without a maximum: every deploy burns an attempt, and giving up would strand charges.

    No error type is exempt. A broken invariant or wrong credentials then stall the run, visibly, until
    somebody mends them; a failed workflow would leave charges in flight with nobody to settle them.
    """
    return RetryPolicy(
        initial_interval=timedelta(seconds=0.5),
        backoff_coefficient=2.0,
        maximum_interval=timedelta(seconds=TIMINGS[timing].retry_max),
    )


def heartbeat(timing: Timing) -> timedelta:
    """Return the heartbeat timeout of slices and planning."""
    return timedelta(seconds=TIMINGS[timing].heartbeat)


def ledger(timing: Timing) -> timedelta:
    """Return the timeout of an activity that runs a statement or two and does not heartbeat."""
    return timedelta(seconds=TIMINGS[timing].ledger)
