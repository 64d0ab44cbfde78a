"""`chargeonce export` as a process: what it prints, how it ends, and what it leaves when it is ended."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from activities.export.whole_folder import whole_folder
from tests.activities.scene import API_KEY, RUN_ID, fault
from tests.export.office import LINES, Office, findings
from tests.forking import CHECKOUT
from workflows.domain.errors import InvalidInput

HANGS = {"path": "^/v1/balance_transactions", "method": "GET"}
WAIT_SECONDS = 60


class Shell:
    """Where commands find the scene's ledger and its Stripe."""

    def __init__(self, office: Office) -> None:
        unwanted = ("CHARGEONCE_", "STRIPE_", "TEMPORAL_")
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(unwanted)
        } | {
            "CHARGEONCE_HOME": str(office.folder / "home"),
            "CHARGEONCE_DATABASE_URL": office.scene.database.app_url,
            "STRIPE_SECRET_KEY": API_KEY,
            "CHARGEONCE_STRIPE_API_BASE": office.scene.sim.url,
            "CHARGEONCE_RATE_PER_SECOND": "1000",
        }

    async def open(self, *words: str) -> asyncio.subprocess.Process:
        """Start a command."""
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "deploy.cli", *words, cwd=CHECKOUT, env=self.environment,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def type(self, *words: str) -> tuple[int, str, str]:
        """Run a command; its exit code, and what it said on both streams."""
        process = await self.open(*words)
        out, err = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
        assert "Traceback" not in err.decode()
        return process.returncode or 0, out.decode(), err.decode()

    async def type_json(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run a command with --json; its exit code and the one object on stdout."""
        code, out, err = await self.type(*words, "--json")
        assert out.count("\n") == 1, (out, err)
        document: dict[str, Any] = json.loads(out)
        return code, document


@pytest.fixture
def shell(office: Office) -> Shell:
    """Return a shell with the scene in its environment."""
    return Shell(office)


async def test_a_pack_is_written_shown_and_verified_by_commands(office: Office, shell: Shell) -> None:
    """For people with totals, for scripts as one object; verified with 0, or 3 once a byte is another."""
    await office.run()
    out = office.folder / "pack"
    code, shown, _ = await shell.type("export", RUN_ID, "--out", str(out))
    assert code == 0
    assert "49.00 USD" in shown
    assert "charges.csv" in shown
    code, document = await shell.type_json("export", RUN_ID, "--out", str(out))
    assert code == 2
    assert "not empty" in document["error"]
    code, document = await shell.type_json(
        "export", RUN_ID, "--out", str(office.folder / "both"), "--format", "both"
    )
    assert (code, document["complete"]) == (0, True)
    assert {entry["name"] for entry in document["files"]} >= {"charges.csv", "charges.parquet", "columns.md"}
    code, document = await shell.type_json("export", "--check", str(out))
    assert (code, document["good"], document["findings"]) == (0, True, [])
    changed = (out / "charges.csv").read_bytes().replace(b"succeeded", b"succeedeD", 1)
    (out / "charges.csv").write_bytes(changed)
    code, document = await shell.type_json("export", "--check", str(out))
    assert (code, document["good"]) == (3, False)
    [finding] = document["findings"]
    assert (finding["file"], finding["row"]) == ("charges.csv", 1)
    code, shown, _ = await shell.type("export", "--check", str(out))
    assert code == 3
    assert shown.startswith("charges.csv, line 2, row 1: ")


async def test_a_pack_without_what_stripe_knows_is_written_and_exits_3(office: Office, shell: Shell) -> None:
    """The ledger's part is there and verifies; scripts see that something is missing, and what."""
    await office.run(LINES[:2])
    office.scene.sim.set_faults(fault("error", status=401, match=HANGS))
    code, document = await shell.type_json("export", RUN_ID, "--out", str(office.folder / "pack"))
    assert (code, document["complete"]) == (3, False)
    assert document["incomplete"][0].startswith("settlement: a page of balance transactions")
    assert findings(office.folder / "pack") == []


async def test_usage_and_refusals_have_their_exit_codes(office: Office, shell: Shell) -> None:
    """2 for what makes no sense, 4 for a run that is not there; nothing is left behind."""
    out = str(office.folder / "pack")
    for words, code, said in (
        (("export",), 2, "say which run"),
        (("export", RUN_ID), 2, "say which run"),
        (("export", RUN_ID, "--out", out, "--check", out), 2, "neither RUN nor --out"),
        (("export", RUN_ID, "--out", out, "--format", "xml"), 2, "csv, parquet, both"),
        (("export", "--check", out), 2, "no closing pack"),
        (("export", "no-such-run", "--out", out), 4, "there is no run"),
    ):
        ended, document = await shell.type_json(*words)
        assert (ended, said in document["error"]) == (code, True), document
    assert list(office.folder.iterdir()) == []


async def _hanging(office: Office, shell: Shell) -> tuple[asyncio.subprocess.Process, Path]:
    """Start an export that waits for Stripe, and return it with its hidden folder."""
    office.scene.sim.set_faults(fault("delay", seconds=600.0, match=HANGS))
    process = await shell.open("export", RUN_ID, "--out", str(office.folder / "pack"))
    async with asyncio.timeout(WAIT_SECONDS):
        while not (left := list(office.folder.glob(".pack.partial-*/spool.sqlite"))):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return process, left[0].parent


async def test_ctrl_c_leaves_nothing(office: Office, shell: Shell) -> None:
    """An interrupted export ends with 1 and takes its folder with it."""
    await office.run(LINES[:2])
    process, partial = await _hanging(office, shell)
    process.send_signal(signal.SIGINT)
    _, err = await asyncio.wait_for(process.communicate(), WAIT_SECONDS)
    assert process.returncode == 1
    assert "interrupted" in err.decode()
    assert not partial.exists()
    assert list(office.folder.iterdir()) == []


async def test_a_kill_leaves_no_pack_and_the_next_export_clears_up(office: Office, shell: Shell) -> None:
    """Killed, it leaves a hidden folder and no pack; the next export to the same place removes that."""
    await office.run(LINES[:2])
    process, partial = await _hanging(office, shell)
    process.kill()
    await process.wait()
    assert partial.exists()
    assert not (office.folder / "pack").exists()
    office.scene.clear_faults()
    await office.export("pack")
    assert not partial.exists()
    assert findings(office.folder / "pack") == []


def test_two_exports_to_one_place_leave_one_pack(tmp_path: Path) -> None:
    """The second finds the first still at work and leaves it alone; who is done later is told so."""
    place = tmp_path / "pack"
    first = whole_folder(place)
    (first.__enter__() / "first").touch()
    with whole_folder(place) as second:
        assert len(list(tmp_path.glob(".pack.partial-*/first"))) == 1
        (second / "second").touch()
    with pytest.raises(InvalidInput, match="not empty"):
        first.__exit__(None, None, None)
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]
    assert [path.name for path in place.iterdir()] == ["second"]


async def test_the_help_has_examples_and_says_when_it_exits_3(shell: Shell) -> None:
    """Whoever asks for help learns the three ways to call it."""
    code, shown, _ = await shell.type("export", "--help")
    assert code == 0
    assert shown.count("  chargeonce export") == 3
    assert "Exits 3" in shown
