"""Keeps an eye on a run's standing while its charges are carried, so that a decision is seen within a second.

That nothing is begun after a pause does not rest on this: the database refuses the intent. Watching spares
the tries, and tells a cancel from a pause.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from activities.ledger.control import ControlLedger
from workflows.domain.mode import Mode, mode_of

POLL_SECONDS = 0.5
RESTORED = (
    "the ledger was restored, and nothing is sent before Stripe has been asked: chargeonce restore --clear, "
    "then resume the run"
)

_logger = logging.getLogger(__name__)


class RunWatch:
    """The mode of one run, as it was when it was read last."""

    def __init__(self, control: ControlLedger, run_id: str) -> None:
        self._control = control
        self._run_id = run_id
        self._mode = Mode.HELD
        self._restored = False

    @property
    def halted(self) -> str | None:
        """Why nothing at all is done, not even with what is in flight; None where something may be."""
        return RESTORED if self._restored else None

    @property
    def mode(self) -> Mode:
        """What may be done with the run's charges; until the first `refresh`, nothing new."""
        return self._mode

    async def refresh(self) -> None:
        """Read the run's standing now. Whoever had a write refused does so before trying again."""
        stands = await self._control.standing(self._run_id)
        if self._mode is not Mode.CANCELING:  # which is never undone, whatever order the reads come back in
            self._mode = mode_of(
                phase=stands.phase,
                hold=stands.hold,
                canceling=stands.canceling,
                restored=stands.restored,
            )
        self._restored = stands.restored

    async def poll(self) -> None:
        """Refresh twice a second, for ever."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
            except Exception as error:  # noqa: BLE001 - sends in flight must not be lost to a look aside
                _logger.warning("the standing of %s can't be read: %s", self._run_id, error)


@asynccontextmanager
async def watching(control: ControlLedger, run_id: str) -> AsyncIterator[RunWatch]:
    """Yield a watch that has read the run's standing and goes on reading it while the block runs."""
    watch = RunWatch(control, run_id)
    await watch.refresh()
    polling = asyncio.create_task(watch.poll())
    try:
        yield watch
    finally:
        polling.cancel()
        with suppress(asyncio.CancelledError):
            await polling
