"""The whole system on one machine, from real parts: PostgreSQL, Temporal, the simulator, the proxy, workers.

Start order: the three servers side by side, migrations as soon as PostgreSQL answers, then the spend-cap
proxy and the workers. Stop order is the reverse. A part that dies is started again on its old port;
`stack.json` always names the living ones.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from deploy.interrupts import Interrupts, StackInterrupted
from deploy.ports import LOOPBACK, choose_port
from deploy.postgres import GRANTED_ROLES, PostgresServer
from deploy.processes import start_time_of
from deploy.ready_process import ReadyProcess, ready_path_of
from deploy.stack_home import StackHome
from deploy.stack_info import StackInfo, WorkerInfo, inherited_environment
from deploy.starting import Part, side_by_side, start_on_free_port
from deploy.temporal_server import NAMESPACE, TemporalServer
from deploy.webhook_endpoint import point_endpoint
from workflows.domain.errors import ChargeonceError, invariant

_RESTART_DELAY_FIRST_SECONDS = 0.5
_RESTART_DELAY_MAX_SECONDS = 10.0
_HEALTHY_AGAIN_SECONDS = 30.0
_WATCH_SECONDS = 0.1
SIMULATED_ACCOUNT = "acct_sim"  # what the simulator calls its own account unless it is told otherwise
WEBHOOK_PATH = "/webhooks/stripe"
_PROXY_WAITS_SECONDS = 5.0  # longer than its callers, who give up first: then it can still record the answer


async def migrate_ledger(owner_url: str) -> None:
    """Bring the ledger's schema up to date, with a clock that tests and demos can move."""
    from activities.ledger.migrate import migrate  # noqa: PLC0415 - not needed with another `migrate`

    await migrate(owner_url, **GRANTED_ROLES, movable_clock=True)


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What a stack is made of. Ports are wishes: where one is taken, another is used and a notice says so.

    Without `durable`, for tests, PostgreSQL does without fsync and Temporal keeps its state in memory alone.
    `settings` reach workers and attached commands as CHARGEONCE_<NAME>. Without `restarts`, a part that dies
    stays dead until it is started again on purpose. Without `proxy`, workers hold the Stripe key themselves
    and nothing but themselves keeps them from moving more than was approved. With `web`, the simulator
    delivers its events to a webhook receiver.
    """

    workers: int = 1
    proxy: bool = True
    web: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    simulator_arguments: Sequence[str] = ()
    durable: bool = True
    headless: bool = False
    restarts: bool = True
    postgres_port: int | None = 54329
    temporal_port: int | None = 7233
    temporal_ui_port: int | None = 8233
    simulator_port: int | None = 12111
    proxy_port: int | None = 12112
    web_port: int | None = 12113
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    simulator_command: Sequence[str] = (sys.executable, "-m", "deploy.stripe_sim")
    proxy_command: Sequence[str] = (sys.executable, "-m", "worker.proxy")
    web_command: Sequence[str] = (sys.executable, "-m", "worker.web")
    worker_command: Sequence[str] = (sys.executable, "-m", "worker")
    worker_stop_timeout_seconds: float = 60.0  # longer than the longest drain of `workflows.policies`
    migrate: Callable[[str], Awaitable[None]] = migrate_ledger
    on_notice: Callable[[str], None] = lambda _: None


class DevStack:
    """One stack below one home. Use it through `running_stack`, which also stops it."""

    def __init__(self, home: Path, options: StackOptions) -> None:
        home = home.resolve()
        self.home = home
        self.options = options
        self.notices: list[str] = []
        self.workers: list[ReadyProcess] = []
        self.postgres = PostgresServer(
            home / "postgres",
            port=options.postgres_port,
            durable=options.durable,
            log_path=home / "logs" / "postgres.log",
        )
        self.temporal = TemporalServer(
            home / "temporal",
            port=options.temporal_port,
            ui_port=options.temporal_ui_port,
            headless=options.headless,
            durable=options.durable,
            log_path=home / "logs" / "temporal.log",
            dynamic_config=options.dynamic_config,
        )
        self.simulator: ReadyProcess | None = None
        self.proxy: ReadyProcess | None = None
        self.web: ReadyProcess | None = None
        self.interrupts = Interrupts()
        self._simulator_port = 0
        self._proxy_port = 0
        self._web_port = 0
        self._home = StackHome(home)
        self._started_at = datetime.now(UTC)
        self._secret_key = ""
        self._vault_secret = ""
        self._starting = asyncio.Lock()
        self._watchers: set[asyncio.Task[None]] = set()

    @property
    def info(self) -> StackInfo:
        """The endpoints as they are now."""
        return StackInfo(
            pid=os.getpid(),
            process_start=start_time_of(os.getpid()) or "",
            started_at=self._started_at,
            home=self.home,
            database_url=self.postgres.app_url,
            owner_database_url=self.postgres.owner_url,
            temporal_address=self.temporal.address,
            temporal_namespace=NAMESPACE,
            temporal_ui=self.temporal.ui_url,
            stripe_sim_url=f"http://{LOOPBACK}:{self._simulator_port}",
            stripe_secret_key=self._secret_key,
            proxy_url=None if self.proxy is None else f"http://{LOOPBACK}:{self._proxy_port}",
            proxy_database_url=self.postgres.proxy_url,
            vault_secret=self._vault_secret,
            web_url=None if self.web is None else f"http://{LOOPBACK}:{self._web_port}",
            workers=tuple(WorkerInfo(pid=worker.pid or 0, log=worker.log_path) for worker in self.workers),
            settings=dict(self.options.settings),
        )

    async def start(self) -> None:
        """Start everything and publish `stack.json`.

        Raises RefusedToStart when a stack runs in this home already, ChildFailed when a part does not come
        up; what had started by then is ended by `stop`.
        """
        self._home.take()
        for pid in await self._home.end_leftovers():
            self._notice(f"ended process {pid}, left by an earlier stack")
        self._secret_key, self._vault_secret = self._home.secret_key(), self._home.vault_secret()
        await side_by_side(self._start_ledger(), self.temporal.start(), self._start_simulator())
        if self.options.proxy:
            await self._start_proxy()
        if self.options.web:
            await self._start_web()
        self._report_moved_ports()
        for _ in range(self.options.workers):
            self._append_worker()
        await side_by_side(*(worker.start() for worker in self.workers))
        self._home.publish(self.info)
        for name, part in self._parts().items():
            self._watch(name, part)

    async def stop(self) -> None:
        """Stop everything in the reverse order of start, remove `stack.json`, release the home."""
        if not self._home.taken:
            return
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        self._home.unpublish()
        if self.web is not None:
            await self.web.stop()
        await asyncio.gather(*(worker.stop() for worker in self.workers))
        if self.proxy is not None:  # before the ledger, which takes its last answers
            await self.proxy.stop()
        await asyncio.gather(*(server.stop() for server in self._servers().values()))
        self._home.release()

    def kill_everything(self) -> None:
        """End every part with SIGKILL, now. The data survives, as it survives any crash."""
        for part in reversed(self._parts().values()):
            part.kill()
        self._home.unpublish()

    async def serve(self) -> None:
        """Wait until SIGINT or SIGTERM asks the stack to stop."""
        await self.interrupts.wait()

    async def add_worker(self) -> int:
        """Start one more worker; its index."""
        worker = self._append_worker()
        await self._ensure_running(worker)
        self._watch(worker.name, worker)
        return self.workers.index(worker)

    def kill_worker(self, index: int) -> int:
        """End a worker with SIGKILL; the pid it had. With `restarts` it soon comes back by itself."""
        pid = self.workers[index].kill()
        invariant(pid is not None, f"worker {index} was running")
        return pid or 0

    async def restart_worker(self, index: int) -> int:
        """Start a dead worker again, unless it is back already; its pid."""
        await self._ensure_running(self.workers[index])
        return self.workers[index].pid or 0

    def _servers(self) -> dict[str, Part]:
        servers: dict[str, Part] = {"PostgreSQL": self.postgres, "Temporal": self.temporal}
        if self.simulator is not None:
            servers["simulator"] = self.simulator
        return servers

    def _parts(self) -> dict[str, Part]:
        doors = {"proxy": self.proxy, "webhook receiver": self.web}
        opened: dict[str, Part] = {name: part for name, part in doors.items() if part is not None}
        return self._servers() | opened | {worker.name: worker for worker in self.workers}

    async def _start_ledger(self) -> None:
        await self.postgres.start()
        await self.options.migrate(self.postgres.owner_url)

    async def _start_simulator(self) -> None:
        directory = self.home / "simulator"

        def make(port: int) -> ReadyProcess:
            self._simulator_port = port
            command = [*self.options.simulator_command, "--host", LOOPBACK]
            command += ["--port", str(port), "--state-dir", str(directory / "state")]
            command += ["--ready-file", str(ready_path_of(directory, "simulator"))]
            self.simulator = ReadyProcess(
                "simulator",
                [*command, *self.options.simulator_arguments],
                directory=directory,
                log_path=self.home / "logs" / "simulator.log",
                environment=inherited_environment() | {"STRIPE_SECRET_KEY": self._secret_key},
            )
            return self.simulator

        await start_on_free_port(make, self.options.simulator_port)

    async def _start_proxy(self) -> None:
        directory = self.home / "processes"

        def make(port: int) -> ReadyProcess:
            self._proxy_port = port
            own = {
                "CHARGEONCE_PROXY_HOST": LOOPBACK,
                "CHARGEONCE_PROXY_PORT": str(port),
                "CHARGEONCE_PROXY_READY_FILE": str(ready_path_of(directory, "proxy")),
            }
            if timeout := self.options.settings.get("timeout_seconds"):
                own["CHARGEONCE_PROXY_TIMEOUT_SECONDS"] = f"{float(timeout) + _PROXY_WAITS_SECONDS:g}"
            self.proxy = ReadyProcess(
                "proxy",
                self.options.proxy_command,
                directory=directory,
                log_path=self.home / "logs" / "proxy.log",
                environment=inherited_environment() | self.info.proxy_environment() | own,
            )
            return self.proxy

        await start_on_free_port(make, self.options.proxy_port)

    async def _start_web(self) -> None:
        directory = self.home / "processes"
        simulator_url = f"http://{LOOPBACK}:{self._simulator_port}"
        port = choose_port(self.options.web_port)
        secret = await asyncio.to_thread(
            point_endpoint, simulator_url, self._secret_key, f"http://{LOOPBACK}:{port}{WEBHOOK_PATH}"
        )
        self._web_port = port
        self.web = ReadyProcess(
            "web",
            self.options.web_command,
            directory=directory,
            log_path=self.home / "logs" / "web.log",
            environment=inherited_environment()
            | {
                "CHARGEONCE_WEB_DATABASE_URL": self.postgres.web_url,
                "CHARGEONCE_WEBHOOK_SECRETS": f"{SIMULATED_ACCOUNT}={secret}",
                "CHARGEONCE_WEB_HOST": LOOPBACK,
                "CHARGEONCE_WEB_PORT": str(port),
                "CHARGEONCE_WEB_READY_FILE": str(ready_path_of(directory, "web")),
            },
        )
        await self.web.start()

    def _append_worker(self) -> ReadyProcess:
        name = f"worker-{len(self.workers)}"
        directory = self.home / "processes"
        ready = {"CHARGEONCE_READY_FILE": str(ready_path_of(directory, name))}
        worker = ReadyProcess(
            name,
            self.options.worker_command,
            directory=directory,
            log_path=self.home / "logs" / f"{name}.log",
            environment=inherited_environment() | self.info.environment() | ready,
            # Without its parent a worker has no servers left to drain to.
            death_signal=signal.SIGKILL,
            stop_timeout_seconds=self.options.worker_stop_timeout_seconds,
        )
        self.workers.append(worker)
        return worker

    def _watch(self, name: str, part: Part) -> None:
        if self.options.restarts:
            self._watchers.add(asyncio.create_task(self._keep_running(name, part), name=f"watch {name}"))

    async def _keep_running(self, name: str, part: Part) -> None:
        """Start the part again whenever it has died, later and later if it keeps dying."""
        delay_seconds = _RESTART_DELAY_FIRST_SECONDS
        clock = asyncio.get_running_loop().time
        started = clock()
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if part.running:
                continue
            if clock() - started > _HEALTHY_AGAIN_SECONDS:
                delay_seconds = _RESTART_DELAY_FIRST_SECONDS
            self._notice(f"{name} died and is started again in {delay_seconds:g} s")
            await asyncio.sleep(delay_seconds)
            delay_seconds = min(delay_seconds * 2, _RESTART_DELAY_MAX_SECONDS)
            try:
                await self._ensure_running(part)
            except ChargeonceError as error:
                self._notice(f"{name} did not come back: {error}")
            started = clock()

    async def _ensure_running(self, part: Part) -> None:
        async with self._starting:
            await part.start()
        self._home.publish(self.info)

    def _report_moved_ports(self) -> None:
        options = self.options
        for name, wanted, used in (
            ("PostgreSQL", options.postgres_port, self.postgres.port),
            ("Temporal", options.temporal_port, self.temporal.port),
            (
                "Temporal's web UI",
                options.temporal_ui_port,
                self.temporal.ui_port or options.temporal_ui_port,
            ),
            ("the simulator", options.simulator_port, self._simulator_port),
            ("the proxy", options.proxy_port, self._proxy_port or options.proxy_port),
            ("the webhook receiver", options.web_port, self._web_port or options.web_port),
        ):
            if wanted is not None and wanted != used:
                self._notice(f"port {wanted} is taken, so {name} listens on {used}")

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        self.options.on_notice(text)


@asynccontextmanager
async def running_stack(home: Path, options: StackOptions | None = None) -> AsyncIterator[DevStack]:
    """A started stack, stopped at the end however the body ends.

    The first SIGINT or SIGTERM ends `DevStack.serve`, or cancels a body that does something else, and the
    stack stops cleanly; StackInterrupted is raised then. A second one kills every part at once and ends this
    process with 128 + signal number. Raises what `DevStack.start` raises.
    """
    stack = DevStack(home, options or StackOptions())
    with stack.interrupts.caught(kill=stack.kill_everything):
        try:
            await stack.start()
            yield stack
        except asyncio.CancelledError:
            if stack.interrupts.absorb_cancellation():
                raise StackInterrupted(stack.interrupts.signal_number) from None
            raise
        finally:
            await stack.stop()
