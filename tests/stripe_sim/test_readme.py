"""The simulator's README: its examples run, and it names all there is."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.stripe_sim.admin import CONTROLS
from deploy.stripe_sim.faults import EFFECT_KINDS
from deploy.stripe_sim.webhook_plan import EFFECT_KINDS as WEBHOOK_EFFECT_KINDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "deploy" / "stripe_sim" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SCRIPTS = [block for kind, block in BLOCKS if kind == "python" and not block.startswith("# ")]
FILES = [block for kind, block in BLOCKS if kind == "python" and block.startswith("# ")]
SHELL = [block for kind, block in BLOCKS if kind == "sh"]


def run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a command where the project can be imported and its programs are found."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=90, check=False
    )


@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_examples_run(tmp_path: Path, number: int) -> None:
    """Each Python example runs as it stands."""
    done = run([sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPTS[number]], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("block", SHELL)
def test_commands_run(tmp_path: Path, block: str) -> None:
    """The shell example runs as it stands, and each of its steps succeeds."""
    done = run(["bash", "-euo", "pipefail", "-c", block], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "double charges: 0" in done.stdout


def test_the_fixture_works_for_a_stranger(tmp_path: Path) -> None:
    """A project with the README's conftest and test, and nothing else, passes."""
    for block in FILES:
        name, _, content = block.partition("\n")
        (tmp_path / name.removeprefix("# ")).write_text(content, encoding="utf-8")
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."], tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout


@pytest.mark.parametrize("kind", [*EFFECT_KINDS, *WEBHOOK_EFFECT_KINDS])
def test_every_kind_of_fault_is_named(kind: str) -> None:
    """No fault is a secret."""
    assert f"`{kind}`" in TEXT


@pytest.mark.parametrize(("method", "path"), sorted(CONTROLS))
def test_every_control_is_named(method: str, path: str) -> None:
    """Each control stands in the table, with its method."""
    assert re.search(rf"^\| .*`{method}[` ].*{re.escape(path)}` \|", TEXT, re.MULTILINE)
