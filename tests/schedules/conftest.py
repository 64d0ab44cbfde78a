import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from deploy.cli import app
from tests.processes.test_cli_with_stack import Terminal


class Desk(Terminal):
    """A terminal whose commands run in this process: each of them would take a second to start."""

    def type_json(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run `chargeonce ... --json`; its exit code and the one object on its stdout."""
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        assert done.stdout.count("\n") == 1, (done.stdout, done.stderr)
        document: dict[str, Any] = json.loads(done.stdout)
        return done.exit_code, document


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it."""
    desk = Desk(tmp_path_factory.mktemp("home"))
    dev = desk.open("dev", "--headless", "--timing", "tests", "--rate", "100", "--json")
    assert dev.stdout is not None
    dev.stdout.readline()
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(desk.environment)
    try:
        yield desk
    finally:
        os.environ.clear()
        os.environ.update(before)
        dev.send_signal(signal.SIGINT)
        dev.communicate(timeout=60)
    assert dev.returncode == 0
