import asyncio
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from temporalio.client import Client

from deploy.devstack import DevStack, StackOptions, running_stack
from deploy.processes import ChildFailed, start_time_of
from deploy.stack_info import StackInfo, home_directory, inherited_environment, load_stack
from deploy.temporal_server import TemporalServer
from workflows.domain.errors import RefusedToStart

pytestmark = pytest.mark.plants_secrets  # the stand-ins print what they are given

# Stand-ins: what a stack promises about its parts does not depend on what they do.
SIMULATOR = """
import pathlib, signal, socket, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
server = socket.create_server((options["--host"], int(options["--port"])))
pathlib.Path(options["--ready-file"]).write_text("ready")
signal.pause()
"""
WORKER = """
import os, pathlib, signal
print(os.environ["CHARGEONCE_RATE_PER_SECOND"], os.environ["STRIPE_SECRET_KEY"], flush=True)
pathlib.Path(os.environ["CHARGEONCE_READY_FILE"]).write_text("ready")
signal.pause()
"""
PROXY = """
import os, pathlib, signal
names = ("STRIPE_SECRET_KEY", "CHARGEONCE_PROXY_DATABASE_URL", "CHARGEONCE_PROXY_PORT")
print(*(os.environ[name] for name in names), "CHARGEONCE_VAULT_SECRET" in os.environ, flush=True)
pathlib.Path(os.environ["CHARGEONCE_PROXY_READY_FILE"]).write_text("ready")
signal.pause()
"""
PROXIED_WORKER = """
import os, pathlib, signal
print("STRIPE_SECRET_KEY" in os.environ)
print(os.environ["CHARGEONCE_PROXY_URL"], os.environ["CHARGEONCE_VAULT_SECRET"])
print(sorted(name for name, value in os.environ.items() if value.startswith("sk_")), flush=True)
pathlib.Path(os.environ["CHARGEONCE_READY_FILE"]).write_text("ready")
signal.pause()
"""
RUNNER = """
import asyncio, sys
from datetime import UTC, datetime
from pathlib import Path
from deploy.devstack import running_stack
from deploy.interrupts import StackInterrupted
from tests.processes import test_devstack

async def main():
    home, body, worker = sys.argv[1:]
    async with running_stack(Path(home), test_devstack.options(worker=worker)) as stack:
        print("up", flush=True)
        await (stack.serve() if body == "serve" else asyncio.Event().wait())

try:
    asyncio.run(main())
except StackInterrupted as interruption:
    print(interruption, flush=True)
else:
    print("stopped", flush=True)
"""
DEAF_WORKER = f"""
import signal
signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
{WORKER}
signal.pause()
"""
CHECKOUT = Path(__file__).resolve().parents[2]


async def _no_migrations(owner_url: str) -> None:
    assert owner_url.startswith("postgresql://")


def options(
    *,
    workers: int = 1,
    restarts: bool = True,
    temporal_port: int | None = None,
    worker: str = WORKER,
    proxy: bool = False,
) -> StackOptions:
    """The smallest stack: real servers on free ports, stand-ins for what bills."""
    return StackOptions(
        workers=workers,
        settings={"rate_per_second": "80"},
        durable=False,
        headless=True,
        restarts=restarts,
        postgres_port=None,
        temporal_port=temporal_port,
        simulator_port=None,
        proxy_port=None,
        proxy=proxy,
        simulator_command=(sys.executable, "-c", SIMULATOR),
        proxy_command=(sys.executable, "-c", PROXY),
        worker_command=(sys.executable, "-c", worker),
        migrate=_no_migrations,
    )


@pytest.fixture
def home(fresh_cluster: Path, tmp_path: Path) -> Path:
    """A home of this test alone, in which the PostgreSQL cluster exists already: making one takes longest."""
    shutil.copytree(fresh_cluster, tmp_path / "home" / "postgres")
    return tmp_path / "home"


async def _poll(condition: Callable[[], Awaitable[bool]], *, deadline_seconds: float = 30) -> None:
    async with asyncio.timeout(deadline_seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.05)


def _pids_of(stack: DevStack) -> list[int]:
    pids = [stack.postgres.pid, stack.temporal.pid, *(worker.pid for worker in stack.workers)]
    assert stack.simulator is not None
    return [pid for pid in (*pids, stack.simulator.pid) if pid is not None]


def _recorded_pids(home: Path) -> list[int]:
    return [json.loads(path.read_text())["pid"] for path in home.glob("*/*.child.json")]


async def test_a_stack_publishes_what_it_runs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`stack.json` names living endpoints while the stack runs, for the user alone, and is gone after it."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_live_of_the_shell")
    async with running_stack(home, options(workers=2)) as stack:
        info = load_stack(home)
        assert info == stack.info
        assert info is not None
        assert stat.S_IMODE((home / "stack.json").stat().st_mode) == 0o600
        assert info.stripe_secret_key.startswith("sk_test_")
        assert len({worker.pid for worker in info.workers}) == 2
        assert info.workers[0].log.read_text().split() == ["80", info.stripe_secret_key]
        connection = await asyncpg.connect(info.database_url, timeout=10)
        await connection.close(timeout=10)
        await Client.connect(info.temporal_address, namespace=info.temporal_namespace)
        pids = _pids_of(stack)
        assert len(pids) == 5
    assert load_stack(home) is None
    assert not (home / "stack.json").exists()
    assert [start_time_of(pid) for pid in pids] == [None] * 5


async def test_the_stripe_key_is_the_proxy_s_alone(home: Path) -> None:
    """Workers get the proxy's address and a vault secret of this home, and no Stripe key by any name."""
    async with running_stack(home, options(worker=PROXIED_WORKER, proxy=True)) as stack:
        info = stack.info
        assert info.proxy_url is not None
        flag, url, secret, keys = info.workers[0].log.read_text().split()
        assert (flag, url, secret, keys) == ("False", info.proxy_url, info.vault_secret, "[]")
        key, database_url, port, knows_secret = (home / "logs" / "proxy.log").read_text().split()
        assert (key, database_url, knows_secret) == (info.stripe_secret_key, info.proxy_database_url, "False")
        assert info.proxy_url.endswith(f":{port}")
        assert stat.S_IMODE((home / "vault_secret").stat().st_mode) == 0o600
        assert len(info.vault_secret) == 64
        assert "STRIPE_SECRET_KEY" not in info.environment()
        connection = await asyncpg.connect(info.proxy_database_url, timeout=10)
        assert await connection.fetchval("SELECT current_user") == "chargeonce_proxy"
        await connection.close(timeout=10)


async def test_a_killed_proxy_comes_back_where_it_was(home: Path) -> None:
    """Workers hold its address, so it is started again on the same port."""
    async with running_stack(home, options(workers=0, proxy=True)) as stack:
        before = stack.info.proxy_url
        assert stack.proxy is not None
        killed = stack.proxy.kill()

        async def is_back() -> bool:
            return stack.proxy is not None and stack.proxy.pid not in (None, killed)

        await _poll(is_back)
        assert stack.info.proxy_url == before
        assert any(notice.startswith("proxy died") for notice in stack.notices)


async def test_state_is_kept_and_a_taken_port_is_reported(
    home: Path, temporal_server: TemporalServer
) -> None:
    """The next stack in a home has the last one's data and keys; a taken port gives way, with a notice."""
    async with running_stack(home, options(workers=0)) as stack:
        first = stack.info
        connection = await asyncpg.connect(first.owner_database_url, timeout=10)
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        await connection.close(timeout=10)
        assert stack.notices == []
    async with running_stack(home, options(workers=0, temporal_port=temporal_server.port)) as stack:
        connection = await asyncpg.connect(stack.info.owner_database_url, timeout=10)
        assert await connection.fetchval("SELECT answer FROM kept") == 42
        await connection.close(timeout=10)
        assert stack.info.stripe_secret_key == first.stripe_secret_key
        assert stack.notices == [
            f"port {temporal_server.port} is taken, so Temporal listens on {stack.temporal.port}"
        ]


async def test_killed_parts_come_back(home: Path) -> None:
    """A worker, the simulator and PostgreSQL killed with SIGKILL are back by themselves, where they were."""
    async with running_stack(home, options()) as stack:
        before = stack.info
        killed = stack.kill_worker(0)
        stack.postgres.kill()
        assert stack.simulator is not None
        stack.simulator.kill()

        async def all_back() -> bool:
            info = load_stack(home)
            return len(_pids_of(stack)) == 4 and info is not None and info.workers[0].pid not in (0, killed)

        await _poll(all_back)
        assert stack.info.database_url == before.database_url
        assert stack.info.stripe_sim_url == before.stripe_sim_url
        assert any(notice.startswith("worker-0 died") for notice in stack.notices)


async def test_workers_are_killed_and_restarted_on_purpose(home: Path) -> None:
    """Without automatic restarts a killed worker stays dead until it is restarted; workers can be added."""
    async with running_stack(home, options(restarts=False)) as stack:
        pid = stack.kill_worker(0)
        assert start_time_of(pid) is None
        assert not stack.workers[0].running
        assert await stack.restart_worker(0) != pid
        assert await stack.add_worker() == 1
        info = load_stack(home)
        assert info is not None
        assert [worker.pid for worker in info.workers] == [worker.pid for worker in stack.workers]


async def test_one_stack_per_home(home: Path) -> None:
    """A second stack on a home is refused with the first one's pid, and the first one is not disturbed."""
    async with running_stack(home, options(workers=0)) as stack:
        with pytest.raises(RefusedToStart, match=f"pid {os.getpid()}"):
            async with running_stack(home, options(workers=0)):
                pass
        assert load_stack(home) == stack.info


async def test_a_failed_start_leaves_nothing(home: Path) -> None:
    """When a part does not come up, the error shows its log and everything that had started is ended."""
    broken = options(worker="raise SystemExit('no such queue')")
    with pytest.raises(ChildFailed, match=r"(?s)worker-0 ended with exit code 1.*no such queue"):
        async with running_stack(home, broken):
            pass
    assert _recorded_pids(home) == []
    async with running_stack(home, options(workers=0)):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_stops_all(number: signal.Signals, home: Path) -> None:
    """One Ctrl-C or SIGTERM ends every process of the stack, and its own with exit code 0."""
    with _runner(home) as runner:
        pids = _recorded_pids(home)
        assert len(pids) == 4
        runner.send_signal(number)
        assert runner.stdout is not None
        assert runner.stdout.read() == "stopped\n"
        assert runner.wait(timeout=30) == 0
    assert [start_time_of(pid) for pid in pids] == [None] * 4


def test_a_signal_ends_what_uses_the_stack(home: Path) -> None:
    """A command that works with its own stack is interrupted, hears by which signal, and all has stopped."""
    with _runner(home, body="work") as runner:
        pids = _recorded_pids(home)
        runner.send_signal(signal.SIGINT)
        assert runner.stdout is not None
        assert runner.stdout.read() == "interrupted by SIGINT\n"
    assert [start_time_of(pid) for pid in pids] == [None] * 4


async def test_a_second_signal_kills_at_once(home: Path) -> None:
    """While a worker takes its time to stop, a second Ctrl-C ends everything with SIGKILL."""
    with _runner(home, worker=DEAF_WORKER) as runner:
        pids = _recorded_pids(home)
        runner.send_signal(signal.SIGINT)

        async def worker_was_asked() -> bool:
            return "not yet" in (home / "logs" / "worker-0.log").read_text()

        await _poll(worker_was_asked)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(timeout=10) == 128 + signal.SIGINT
    assert [start_time_of(pid) for pid in pids] == [None] * 4
    assert load_stack(home) is None


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux signals the children of a dead parent")
async def test_a_killed_stack_leaves_no_process(home: Path) -> None:
    """A stack killed with SIGKILL leaves no process, is not found any more, and its home is free again."""
    with _runner(home) as runner:
        pids = _recorded_pids(home)
        assert load_stack(home) is not None
        runner.kill()

    async def all_gone() -> bool:
        return all(start_time_of(pid) is None for pid in pids)

    await _poll(all_gone)
    assert (home / "stack.json").exists()
    assert load_stack(home) is None
    async with running_stack(home, options(workers=0)):
        assert load_stack(home) is not None


def _runner(home: Path, *, body: str = "serve", worker: str = WORKER) -> "subprocess.Popen[str]":
    runner = subprocess.Popen(
        [sys.executable, "-c", RUNNER, str(home), body, worker],
        stdout=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
    )
    assert runner.stdout is not None
    assert runner.stdout.readline() == "up\n"
    return runner


def test_a_stack_of_a_dead_or_reused_pid_is_none(tmp_path: Path) -> None:
    """`stack.json` counts only while the very process that wrote it lives."""
    info = StackInfo(
        pid=os.getpid(),
        process_start=start_time_of(os.getpid()) or "",
        started_at=datetime(2031, 3, 1, tzinfo=UTC),
        home=tmp_path,
        database_url="postgresql://127.0.0.1/a",
        owner_database_url="postgresql://127.0.0.1/a",
        temporal_address="127.0.0.1:7233",
        temporal_namespace="default",
        temporal_ui=None,
        stripe_sim_url="http://127.0.0.1:12111",
        stripe_secret_key="sk_test_synthetic",
        settings={"timing": "demo"},
    )
    path = tmp_path / "stack.json"
    path.write_text(info.model_dump_json())
    assert load_stack(tmp_path) == info
    assert info.environment()["CHARGEONCE_TIMING"] == "demo"
    for changed in ({"process_start": "earlier"}, {"pid": 2**22 + 1}):
        path.write_text(info.model_copy(update=changed).model_dump_json())
        assert load_stack(tmp_path) is None
    path.write_text("{")
    assert load_stack(tmp_path) is None


def test_children_inherit_no_foreign_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own Stripe key, Temporal profile and proxy never reach a child of the stack."""
    monkeypatch.setenv("STRIPE_SECRET_KEY", "sk_live_of_the_shell")
    monkeypatch.setenv("TEMPORAL_API_KEY", "cloud")
    monkeypatch.setenv("NO_PROXY", "internal.example")
    environment = inherited_environment()
    foreign = {name for name in environment if name.startswith(("STRIPE_", "TEMPORAL_"))}
    assert foreign == {"TEMPORAL_CONFIG_FILE"}
    assert environment["TEMPORAL_CONFIG_FILE"] == os.devnull
    assert environment["NO_PROXY"] == "internal.example,127.0.0.1,localhost"


def test_the_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home is $CHARGEONCE_HOME, else the user's state folder, else a private temporary folder."""
    monkeypatch.delenv("CHARGEONCE_HOME", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert home_directory() == tmp_path / "state" / "chargeonce"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert home_directory() == tmp_path / "user" / ".local" / "state" / "chargeonce"
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert home_directory() == tmp_path / f"chargeonce-{os.geteuid()}"
    monkeypatch.setenv("CHARGEONCE_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(RefusedToStart, match="CHARGEONCE_HOME"):
        home_directory()
