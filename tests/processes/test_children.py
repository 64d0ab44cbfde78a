import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.ports import choose_port, is_free
from deploy.processes import Child, ChildFailed, end_leftover, start_time_of, write_private_file

SLEEPER = [sys.executable, "-c", "import time; print('asleep', flush=True); time.sleep(600)"]
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring", flush=True)
time.sleep(600)
"""
LISTENER = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
server.accept()
"""
PARENT = """
import asyncio, sys
from pathlib import Path
from deploy.processes import Child

async def main():
    folder = Path(sys.argv[1])
    child = Child("child", [sys.executable, "-c", "import time; time.sleep(600)"],
                  log_path=folder / "child.log", record_path=folder / "child.json")
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def _child(folder: Path, command: list[str], *, stop_timeout_seconds: float = 10.0) -> Child:
    return Child(
        "child",
        command,
        log_path=folder / "child.log",
        record_path=folder / "child.json",
        stop_timeout_seconds=stop_timeout_seconds,
    )


async def _until_logged(child: Child, word: str) -> None:
    async def logged() -> bool:
        return word in child.log_tail()

    await child.wait_until_healthy(logged, deadline_seconds=30)


def _wait_until_gone(pid: int, *, deadline_seconds: float = 30) -> bool:
    deadline = time.monotonic() + deadline_seconds
    while start_time_of(pid) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


async def test_a_stopped_child_is_gone(tmp_path: Path) -> None:
    """A child that listens to SIGTERM ends by it, and its record goes with it."""
    child = _child(tmp_path, SLEEPER)
    await child.start()
    await _until_logged(child, "asleep")
    pid = child.pid
    assert pid is not None
    await child.stop()
    assert start_time_of(pid) is None
    assert child.exit_code == -signal.SIGTERM
    assert not (tmp_path / "child.json").exists()


async def test_a_deaf_child_is_killed(tmp_path: Path) -> None:
    """A child that ignores SIGTERM is killed when its time is up."""
    child = _child(tmp_path, [sys.executable, "-c", STUBBORN], stop_timeout_seconds=0.1)
    await child.start()
    await _until_logged(child, "ignoring")
    await child.stop()
    assert child.exit_code == -signal.SIGKILL


async def test_a_killed_child_starts_again(tmp_path: Path) -> None:
    """After a SIGKILL the same child can be started again, as another process."""
    child = _child(tmp_path, SLEEPER)
    await child.start()
    first = child.pid
    child.kill()
    assert not child.running
    await child.start()
    try:
        assert child.running
        assert child.pid != first
    finally:
        await child.stop()


async def test_an_early_end_shows_the_log(tmp_path: Path) -> None:
    """A child that ends before it is healthy is reported with its exit code and its last log lines."""
    child = _child(tmp_path, [sys.executable, "-c", "print('no disk'); raise SystemExit(3)"])
    await child.start()
    with pytest.raises(ChildFailed, match=r"(?s)exit code 3.*no disk"):
        await _until_logged(child, "never")


async def test_a_slow_start_ends_at_the_deadline(tmp_path: Path) -> None:
    """A child that never becomes healthy is reported when the deadline has passed."""
    child = _child(tmp_path, SLEEPER)
    await child.start()

    async def hangs() -> bool:
        await asyncio.Event().wait()
        return True

    try:
        with pytest.raises(ChildFailed, match=r"not healthy after 0\.2 s"):
            await child.wait_until_healthy(hangs, deadline_seconds=0.2)
    finally:
        await child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a dead parent")
def test_a_killed_parent_leaves_no_child(tmp_path: Path) -> None:
    """When the parent dies of SIGKILL, the kernel ends the child."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert start_time_of(pid) is not None
        parent.kill()
    assert _wait_until_gone(pid)


async def test_a_leftover_is_ended(tmp_path: Path) -> None:
    """A process that a record names with its start time is ended at the next start."""
    leftover = await asyncio.create_subprocess_exec(*SLEEPER, stdout=subprocess.DEVNULL)
    record = {"name": "old", "pid": leftover.pid, "started": start_time_of(leftover.pid)}
    (tmp_path / "child.json").write_text(json.dumps(record))
    assert await end_leftover(tmp_path / "child.json") == leftover.pid
    assert await leftover.wait() == -signal.SIGTERM


async def test_a_stranger_with_a_recorded_pid_lives_on(tmp_path: Path) -> None:
    """A process whose start time is not the recorded one is never signalled."""
    stranger = await asyncio.create_subprocess_exec(*SLEEPER, stdout=subprocess.DEVNULL)
    try:
        (tmp_path / "child.json").write_text(
            json.dumps({"name": "old", "pid": stranger.pid, "started": "before"})
        )
        assert await end_leftover(tmp_path / "child.json") is None
        assert start_time_of(stranger.pid) is not None
    finally:
        stranger.kill()
        await stranger.wait()


def test_two_processes_of_one_pid_differ() -> None:
    """The start time of a living process is stable; a dead pid has none."""
    assert start_time_of(os.getpid()) == start_time_of(os.getpid()) is not None
    assert start_time_of(2**22 + 1) is None


def test_a_taken_port_is_not_chosen() -> None:
    """A port that somebody listens on is passed over, a free one is kept."""
    free = choose_port()
    assert choose_port(free) == free
    server = subprocess.Popen([sys.executable, "-c", LISTENER, str(free)], stdout=subprocess.PIPE)
    with server:
        assert server.stdout is not None
        server.stdout.readline()
        assert not is_free(free)
        assert choose_port(free) != free
        server.kill()


def test_a_private_file_is_private(tmp_path: Path) -> None:
    """Files with secrets have mode 0600 from their first byte, also when they replace an open one."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private_file(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
