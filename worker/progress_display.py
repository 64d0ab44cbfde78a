"""A run's progress on stderr: a live bar on a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from worker.console_output import open_console
from worker.run_view import RunView, name_state
from worker.waiting import Display

PLAIN_LINE_SECONDS = 5.0
_SHOWN = (
    "succeeded", "processing", "declined", "needs_customer", "refused", "review", "canceled", "skipped",
    "unknown",
)  # fmt: skip


@contextmanager
def progress_display() -> Iterator[Display]:
    """Yield what fits stderr."""
    if sys.stderr.isatty():
        with _live_bar() as bar:
            yield bar
    else:
        yield PlainLines(lambda line: print(line, file=sys.stderr, flush=True))


def describe_outcomes(view: RunView) -> str:
    """Return the counts that are not 0, in one line."""
    counts = view.counts
    return ", ".join(f"{counts[name]} {name}" for name in _SHOWN if counts[name])


class PlainLines:
    """At most one line in 5 s, and one for every new phase."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._last_phase = self._last_line = ""
        self._last_at = 0.0
        self._last_settled = 0

    def update(self, view: RunView) -> None:
        """Write a line, if it is time for one."""
        now = time.monotonic()
        phase = name_state(view.document())
        if phase == self._last_phase and now - self._last_at < PLAIN_LINE_SECONDS:
            return
        rate = (view.settled - self._last_settled) / (now - self._last_at) if self._last_at else 0.0
        speed = f" ({rate:.1f}/s)" if phase == self._last_phase and rate > 0 else ""
        counts = f": {view.settled}/{view.lines}{speed} {describe_outcomes(view)}" if view.lines else ""
        line = f"{phase}{counts}".rstrip()
        if line != self._last_line:  # a run that waits says so once
            self._write(line)
        self._last_line = line
        self._last_phase, self._last_at, self._last_settled = phase, now, view.settled


class _LiveBar:
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=None, outcomes="")

    def update(self, view: RunView) -> None:
        self._progress.update(
            self._task,
            description=name_state(view.document()),
            total=view.lines or None,
            completed=view.settled,
            outcomes=describe_outcomes(view),
        )


@contextmanager
def _live_bar() -> Iterator[Display]:
    from rich import progress as bars  # noqa: PLC0415 - only a terminal needs it
    from rich.text import Text  # noqa: PLC0415 - see above

    class Rate(bars.ProgressColumn):
        """Lines per second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=30),
        bars.MofNCompleteColumn(),
        Rate(),
        bars.TimeRemainingColumn(compact=True),
        bars.TextColumn("{task.fields[outcomes]}"),
    )
    with bars.Progress(*columns, console=open_console(sys.stderr), speed_estimate_period=10) as progress:
        yield _LiveBar(progress)
