"""The simulator's own time: real time plus an offset, or frozen."""

import time
from collections.abc import Callable


class SimClock:
    """Time that a test, a drill or an operator can move."""

    def __init__(self) -> None:
        self.offset_seconds = 0.0
        self.frozen_at: float | None = None
        # Called after each move: what was due later may be due now.
        self.on_move: list[Callable[[], None]] = []
        self._date_second = -1
        self._date = ""

    def now(self) -> float:
        """Return the simulated time in Unix seconds."""
        if self.frozen_at is not None:
            return self.frozen_at
        return time.time() + self.offset_seconds

    def advance(self, seconds: float) -> None:
        """Move the clock by so many seconds, frozen or not."""
        self.offset_seconds += seconds
        if self.frozen_at is not None:
            self.frozen_at += seconds
        self._tell()

    def set_offset(self, seconds: float) -> None:
        """Run this many seconds ahead of real time, and thaw."""
        self.offset_seconds = seconds
        self.frozen_at = None
        self._tell()

    def freeze(self, at: float) -> None:
        """Stand still at this Unix time."""
        self.frozen_at = at
        self._tell()

    def unfreeze(self) -> None:
        """Go on from where the clock stood, so that thawing never moves time."""
        if self.frozen_at is not None:
            self.offset_seconds = self.frozen_at - time.time()
            self.frozen_at = None
            self._tell()

    def _tell(self) -> None:
        for listener in self.on_move:
            listener()

    def restore(self, offset_seconds: float, frozen_at: float | None) -> None:
        """Stand where the clock stood when it was written down."""
        self.offset_seconds, self.frozen_at = offset_seconds, frozen_at

    def http_date(self) -> str:
        """Return the simulated time as a `Date` header, built once a second."""
        second = int(self.now())
        if second != self._date_second:
            parts = time.gmtime(second)
            # strftime's names follow the locale, HTTP's do not.
            day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[parts.tm_wday]
            month = "JanFebMarAprMayJunJulAugSepOctNovDec"[3 * parts.tm_mon - 3 : 3 * parts.tm_mon]
            self._date = (
                f"{day}, {parts.tm_mday:02d} {month} {parts.tm_year} "
                f"{parts.tm_hour:02d}:{parts.tm_min:02d}:{parts.tm_sec:02d} GMT"
            )
            self._date_second = second
        return self._date

    def describe(self) -> dict[str, float | None]:
        """Return the clock as the admin API shows it."""
        return {"now": self.now(), "offset_seconds": self.offset_seconds, "frozen_at": self.frozen_at}
