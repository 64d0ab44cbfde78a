"""A command imports what it needs: nobody waits a second for an SDK that is not used."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from activities.ledger.database import open_pool
from deploy.postgres import Database
from tests.conftest import drive
from tests.forking import CHECKOUT
from tests.ledger.planting import RUN, close_run, plant
from workflows.domain.states import State

HEAVY = ("aiohttp", "httpx", "pyarrow", "requests", "rich", "stripe", "temporalio", "urllib3")
# Reads commands and prints, for each, which heavy modules a process has at its end. Each process is a fork of
# one that has nothing but the command line.
PROGRAM = """
import json, os, sys
from deploy.cli import app

commands, heavy = json.loads(sys.argv[1])
for words in commands:
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        assert status == 0
        continue
    silence = os.open(os.devnull, os.O_WRONLY)
    answers = os.dup(1)
    os.dup2(silence, 1)
    try:
        app(words, prog_name="chargeonce")
    except SystemExit as end:
        code = end.code or 0
    found = [name for name in heavy if name in sys.modules]
    os.write(answers, (json.dumps([words, code, found]) + "\\n").encode())
    os._exit(0)
"""
"""Each command, its exit code and which of these modules it imports."""
Expected = dict[tuple[str, ...], tuple[int, list[str]]]


def imported(expected: Expected, environment: dict[str, str]) -> Expected:
    """Return how commands end and what they have imported by then."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([[list(words) for words in expected], HEAVY])],
        capture_output=True, text=True, check=False, cwd=CHECKOUT, timeout=60,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    answers = [json.loads(line) for line in ended.stdout.splitlines()]
    return {tuple(words): (code, found) for words, code, found in answers}


def test_help_and_usage_errors_import_nothing_heavy(tmp_path: Path) -> None:
    """Whoever asks what a command does, or mistypes one, waits for none of what it would work with."""
    expected: Expected = {
        ("--help",): (0, []),
        ("run", "start", "--help"): (0, []),
        ("verify",): (2, []),
        ("reconcile",): (2, []),
        ("run", "stop"): (2, []),
        ("sim", "seed", "--help"): (0, []),
    }
    assert imported(expected, {"CHARGEONCE_HOME": str(tmp_path)}) == expected


def test_who_reads_the_ledger_imports_neither_temporal_nor_stripe(database: Database, tmp_path: Path) -> None:
    """Lists, the view of a run that has ended, a charge's story and the audit come from the ledger alone."""

    async def fill() -> None:
        async with open_pool(database.app_url, connections=1) as pool:
            await plant(pool, State.SUCCEEDED, payment_intent="pi_1")
            await close_run(pool)

    drive(fill())
    environment = {
        "CHARGEONCE_HOME": str(tmp_path),
        "CHARGEONCE_DATABASE_URL": database.app_url,
        "STRIPE_SECRET_KEY": "sk_test_synthetic",
    }
    commands = (
        ("run", "list"), ("run", "show", RUN), ("explain", "cus_1/base", "--run", RUN), ("audit",),
        ("reconcile", "list"),
    )  # fmt: skip
    expected: Expected = {(*words, "--json"): (0, []) for words in commands}
    assert imported(expected, environment) == expected


@pytest.mark.parametrize("module", ["deploy.stripe_sim.cli", "worker.run_start"])
def test_only_who_serves_or_sends_imports_a_server_or_a_client(module: str) -> None:
    """To speak to a simulator takes no server, and to check a source no client of anything."""
    program = f"import sys, {module}; print([name for name in {HEAVY!r} if name in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CHECKOUT
    )
    assert ended.stdout == "[]\n"
