"""The slots of one bucket that this process has leased, and those who wait for them.

A slot is a moment at which one request may leave. Slots are leased in batches, ahead of need: one statement
serves a tenth of a second or two. Whoever asks while nobody waits and a slot is due goes at once.

Nothing leaves before its slot. A slot that was missed by more than `LATE_SECONDS`, by a process that was
frozen or has nothing to send any more, is lost: others have leased those after it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from activities.ledger.limits import LimitLedger
from workflows.domain.errors import NothingWasSent

LATE_SECONDS = 0.5
AHEAD_SECONDS = 0.15  # so much of the time of a bucket one process holds at most: what is lost with it
FORESEEN_SECONDS = 0.4  # slots leased for requests yet to come; older ones would soon be lost
FORESEEN_SLOTS_MIN = 4  # to foresee fewer gains nothing, and may keep one from other processes
ASK_AGAIN_SECONDS_MAX = 1.0
OUTAGE_PAUSE_SECONDS = 0.1
OUTAGE_PAUSE_SECONDS_MAX = 2.0
TICK_SECONDS = 0.001  # what the timers of event loops are good for

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Batch:
    first_seconds: float
    spacing_seconds: float
    slots: int

    def drop_before(self, seconds: float) -> None:
        missed = int((seconds - self.first_seconds) / self.spacing_seconds) + 1
        self._drop(min(self.slots, missed))

    def take(self) -> None:
        self._drop(1)

    def _drop(self, slots: int) -> None:
        self.slots -= slots
        self.first_seconds += slots * self.spacing_seconds


@dataclass(slots=True)
class _Demand:
    """How many requests left of late: in the running span of time, or the one before if there were more."""

    began_seconds: float
    granted: int = 0
    rate_before: float = 0.0

    def rate_per_second(self, now: float) -> float:
        seconds = now - self.began_seconds
        if seconds < FORESEEN_SECONDS:
            return max(self.rate_before, self.granted / FORESEEN_SECONDS)
        self.rate_before = self.granted / seconds
        self.began_seconds, self.granted = now, 0
        return self.rate_before


class LeasedSlots:
    """One bucket, as one process uses it. Belongs to the event loop that waits at it."""

    def __init__(
        self,
        ledger: LimitLedger,
        account: str,
        endpoint: str,
        *,
        rate_per_second: float,
        clock: Callable[[], float],
    ) -> None:
        """Hold nothing yet; `clock` counts seconds while the machine sleeps, too."""
        self._ledger = ledger
        self._account = account
        self._endpoint = endpoint
        self._rate_max = rate_per_second
        self._clock = clock
        self._share = 1.0
        self._batches: deque[_Batch] = deque()
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._demand = _Demand(clock())
        self._pause_seconds: float | None = None  # of a 429 that the database has not heard of yet
        self._leaser: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def rate_per_second(self) -> float:
        """The rate of the bucket, of all processes together, as of the last lease."""
        return self._rate_max * self._share

    async def acquire(self) -> None:
        """Return when a request may leave."""
        if not self._waiting and self._take():
            self._lease_if_wanted()
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self._lease_if_wanted()
        self._wake_for_the_next()
        try:
            await place
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(place)  # nothing is leased for those who no longer wait
            raise

    def slow_down(self, pause_seconds: float) -> None:
        """Let go of every slot, and tell the database before leasing others."""
        self._batches.clear()
        self._held = 0
        self._pause_seconds = max(pause_seconds, self._pause_seconds or 0.0)
        self._lease_if_wanted()

    def _take(self) -> bool:
        now = self._clock()
        while self._batches:
            batch = self._batches[0]
            if batch.first_seconds > now:
                return False
            before = batch.slots
            is_missed = batch.first_seconds < now - LATE_SECONDS
            if is_missed:
                batch.drop_before(now - LATE_SECONDS)
            else:
                batch.take()
            self._held -= before - batch.slots
            if not batch.slots:
                self._batches.popleft()
            if not is_missed:
                self._demand.granted += 1
                return True
        return False

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            if self._waiting[0].done():  # its caller was cancelled, and has not run yet
                self._waiting.popleft()
            elif self._take():
                self._waiting.popleft().set_result(None)
            else:
                break
        if self._waiting:
            self._lease_if_wanted()
            self._wake_for_the_next()

    def _wake_for_the_next(self) -> None:
        if self._timer is None and self._batches:
            seconds = max(self._batches[0].first_seconds - self._clock(), TICK_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._release)

    def _wanted(self) -> int:
        """Return how many slots to lease now: none before half of what is needed has been used."""
        foreseen = int(self._demand.rate_per_second(self._clock()) * FORESEEN_SECONDS)
        if foreseen < FORESEEN_SLOTS_MIN:
            foreseen = 0
        most = max(1, int(self.rate_per_second * AHEAD_SECONDS))
        needed = min(most, max(len(self._waiting), foreseen))
        return needed - self._held if self._held <= needed // 2 else 0

    def _lease_if_wanted(self) -> None:
        if self._leaser is None and (self._pause_seconds is not None or self._wanted() > 0):
            self._leaser = asyncio.get_running_loop().create_task(self._lease_all())

    async def _lease_all(self) -> None:
        outage_pause_seconds = OUTAGE_PAUSE_SECONDS
        try:
            while self._pause_seconds is not None or self._wanted() > 0:
                try:
                    await self._tell_of_pause()
                    await self._lease()
                    outage_pause_seconds = OUTAGE_PAUSE_SECONDS
                except NothingWasSent as error:
                    _logger.warning("requests wait, none is sent: %s", error)
                    await asyncio.sleep(outage_pause_seconds)
                    outage_pause_seconds = min(2 * outage_pause_seconds, OUTAGE_PAUSE_SECONDS_MAX)
        except Exception as error:  # noqa: BLE001 - those who wait must hear of it, whatever it is
            _logger.warning("the limits of %s can't be used: %s", self._account, error)
            self._fail(error)
        finally:
            self._leaser = None

    async def _tell_of_pause(self) -> None:
        if (pause_seconds := self._pause_seconds) is not None:
            await self._ledger.slow_down(self._account, self._endpoint, pause_seconds=pause_seconds)
            if self._pause_seconds == pause_seconds:
                self._pause_seconds = None

    async def _lease(self) -> None:
        if (wanted := self._wanted()) <= 0 or self._pause_seconds is not None:
            return
        lease = await self._ledger.lease(
            self._account, self._endpoint, rate_per_second=self._rate_max, wanted=wanted
        )
        self._share = lease.share
        if self._pause_seconds is not None:
            return  # a 429 came meanwhile: these slots are too early
        if not lease.slots:
            await asyncio.sleep(min(lease.first_in_seconds, ASK_AGAIN_SECONDS_MAX))
            return
        # Counted from the answer and not from when the database looked at its clock: late, but never early.
        first_seconds = self._clock() + lease.first_in_seconds
        self._batches.append(_Batch(first_seconds, lease.spacing_seconds, lease.slots))
        self._held += lease.slots
        self._release()

    def _fail(self, error: Exception) -> None:
        for place in self._waiting:
            if not place.done():
                place.set_exception(error)
        self._waiting.clear()
