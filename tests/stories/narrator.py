"""Tells what happens as it happens: a sentence, the command that somebody types, what the run says of itself.

`pytest -s tests/stories` prints it, and it reads as the documentation of what it shows.
"""

import asyncio
import json
import os
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from activities.ledger.database import open_pool
from activities.ledger.runs import RunLedger
from tests.forking import Nursery
from worker.run_view import SETTLED_COUNTS, view_run

COMMAND_SECONDS = 90.0
UNTIL_SECONDS = 60.0
LOOK_AGAIN_SECONDS = 0.1
STANDINGS = (*SETTLED_COUNTS, "unknown", "not_started")

Document = dict[str, Any]


class Narrator:
    """A person at a terminal, with `chargeonce` and a home."""

    def __init__(self, home: Path, database_url: str, nursery: Nursery) -> None:
        unwanted = ("CHARGEONCE_", "STRIPE_", "TEMPORAL_")
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith(unwanted)
        } | {"CHARGEONCE_HOME": str(home)}
        self._home = home
        self._database_url = database_url
        self._nursery = nursery
        print()

    def tell(self, sentence: str) -> None:
        """Say what comes next, and why somebody would do it."""
        print(f"\n{sentence}")

    async def types(self, command: str, *, exit_code: int = 0) -> Document:
        """Type a command, expect its exit code, and return the object that its --json prints."""
        print(f"  $ chargeonce {command.replace(f'{self._home.parent}/', '')}")
        typed = await asyncio.to_thread(
            self._nursery.type_command,
            [*shlex.split(command), "--json"],
            environment=self._environment,
            deadline_seconds=COMMAND_SECONDS,
        )
        assert typed.returncode == exit_code, typed
        assert "Traceback" not in typed.stderr, typed
        document: Document = json.loads(typed.stdout)
        if exit_code:
            print(f"    exit {exit_code}: {document.get('error', 'see above')}")
        return document

    async def looks_at(self, run: str) -> Document:
        """Return what `run show` says, having checked that its counts are whole, and print them."""
        shown = await self.types(f"run show {run}")
        print(f"    {describe(shown)}")
        return shown

    async def waits_until(self, run: str, what: str, holds: Callable[[Document], bool]) -> Document:
        """Look at a run until something holds of it, with the counts whole each time; then look as people do.

        The looks in between are the same view without a new process for each.
        """
        self.tell(f"({what})")
        async with open_pool(self._database_url, connections=1) as pool:
            ledger = RunLedger(pool)

            async def look() -> Document | None:
                document = (await view_run(ledger, run)).document()
                described = describe(document)
                if not holds(document):
                    return None
                print(f"    {described}")
                return document

            return await until(look, what)


def describe(shown: Document) -> str:
    """Return where a run stands, and its counts, which must be whole (I9)."""
    counts = {name: shown[name] for name in STANDINGS if shown[name]}
    assert sum(counts.values()) == shown["lines"], shown
    hold = f", held ({shown['hold']}: {shown['hold_reason']})" if shown["hold"] else ""
    told = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"{shown['phase']}{hold}: {shown['lines']} lines = {told}"


async def until(
    look: Callable[[], Awaitable[Document | None]], what: str, *, within_seconds: float = UNTIL_SECONDS
) -> Document:
    """Return the first thing that `look` finds, within a minute where nothing else is said."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + within_seconds
    while clock() < deadline:
        if (found := await look()) is not None:
            return found
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    raise AssertionError(f"within {within_seconds:.0f} s it did not come to this: {what}")
