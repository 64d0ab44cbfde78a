"""What a command prints: its result on stdout (--json: one object, nothing else), all else on stderr."""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from workflows.domain.echo import readable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_WIDTH_WITHOUT_TERMINAL = 240


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def result(self, document: Mapping[str, Any], render: Callable[[], Iterable["RenderableType"]]) -> None:
        """Print the result: `document` with --json, else what `render` makes of it."""
        if self.as_json:
            print(to_json(document), flush=True)
            return
        if sys.stdout is None:  # closed by the caller (`>&-`), who wants the exit code alone
            return
        _print_parts(open_console(sys.stdout), render())

    def show(self, parts: Iterable["RenderableType"]) -> None:
        """Show something to people that is not the result."""
        _print_parts(open_console(sys.stderr), parts)

    def notice(self, text: str) -> None:
        """Say something that is not the result."""
        print(readable(text), file=sys.stderr, flush=True)

    def failure(self, message: str, details: Mapping[str, Any]) -> None:
        """Say in one line why there is no result; with --json as {"error": ..., **details} on stdout."""
        if self.as_json:
            print(to_json({"error": message, **details}), flush=True)
        else:
            print(f"chargeonce: {readable(message)}", file=sys.stderr, flush=True)


def _print_parts(console: "Console", parts: Iterable["RenderableType"]) -> None:
    for part in parts:
        # As it stands: neither [bold] nor :key: in a reason or the name of a source means anything.
        if isinstance(part, str):
            part = readable(part)  # noqa: PLW2901 - nothing prints it as it was
        console.print(part, highlight=False, markup=False, emoji=False, soft_wrap=isinstance(part, str))


def to_json(document: Mapping[str, Any]) -> str:
    """Return one line of JSON; times are in ISO 8601."""
    return json.dumps(document, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def open_console(stream: Any) -> "Console":
    """Return a console that keeps lines whole where there is no terminal, since scripts read them."""
    from rich.console import Console  # noqa: PLC0415 - commands that print JSON start faster without

    return Console(file=stream, width=None if stream.isatty() else _WIDTH_WITHOUT_TERMINAL)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "") -> "RenderableType":
    """Return a table; numbers stand on the right."""
    from rich.table import Table  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    cells = list(rows)
    made = Table(
        title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(columns)
    )
    for index, name in enumerate(columns):
        numeric = bool(cells) and all(isinstance(row[index], int | float | None) for row in cells)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        made.add_row(*(Text("" if cell is None else readable(str(cell))) for cell in row))
    return made
