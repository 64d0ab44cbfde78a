"""What a running stack tells other commands: its endpoints, in `stack.json` below its home."""

import os
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.processes import make_private_directory, start_time_of
from workflows.domain.errors import RefusedToStart

HOME_VARIABLE = "CHARGEONCE_HOME"
STACK_FILE = "stack.json"
_FOREIGN_PREFIXES = (
    "STRIPE_", "TEMPORAL_", "CHARGEONCE_STRIPE_", "CHARGEONCE_PROXY_", "CHARGEONCE_VAULT_",
    "CHARGEONCE_ACCOUNT_KEYS", "CHARGEONCE_CONNECTED_ACCOUNTS",
)  # fmt: skip


class WorkerInfo(BaseModel):
    """One worker process; `pid` is 0 while it is down."""

    model_config = ConfigDict(frozen=True)

    pid: int
    log: Path


class StackInfo(BaseModel):
    """Everything a command needs to use a running stack. It holds passwords, so its file has mode 0600."""

    model_config = ConfigDict(frozen=True)

    pid: int
    process_start: str
    started_at: datetime
    home: Path
    database_url: str
    owner_database_url: str
    temporal_address: str
    temporal_namespace: str
    temporal_ui: str | None
    stripe_sim_url: str
    stripe_secret_key: str
    proxy_url: str | None = None
    proxy_database_url: str = ""
    vault_secret: str = ""
    web_url: str | None = None
    workers: tuple[WorkerInfo, ...] = ()
    settings: dict[str, str] = {}

    def environment(self) -> dict[str, str]:
        """The variables that point a command at this stack; each setting becomes CHARGEONCE_<NAME>.

        With a proxy, the Stripe key is not among them: it is the proxy's alone.
        """
        endpoints = {
            "CHARGEONCE_DATABASE_URL": self.database_url,
            "TEMPORAL_ADDRESS": self.temporal_address,
            "TEMPORAL_NAMESPACE": self.temporal_namespace,
            "STRIPE_SIM_URL": self.stripe_sim_url,
        }
        if self.proxy_url is None:
            endpoints |= self._stripe()
        else:
            endpoints |= {
                "CHARGEONCE_PROXY_URL": self.proxy_url,
                "CHARGEONCE_VAULT_SECRET": self.vault_secret,
            }
        return {f"CHARGEONCE_{name.upper()}": value for name, value in self.settings.items()} | endpoints

    def proxy_environment(self) -> dict[str, str]:
        """The variables of the proxy: the Stripe key, and a ledger role that can charge nobody."""
        return {"CHARGEONCE_PROXY_DATABASE_URL": self.proxy_database_url, **self._stripe()}

    def _stripe(self) -> dict[str, str]:
        return {
            "STRIPE_SECRET_KEY": self.stripe_secret_key,
            "CHARGEONCE_STRIPE_API_BASE": self.stripe_sim_url,
        }


def load_stack(home: Path) -> StackInfo | None:
    """The stack that runs in `home`, or None if none does: no file, or one whose process is gone."""
    try:
        info = StackInfo.model_validate_json((home / STACK_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return info if start_time_of(info.pid) == info.process_start else None


def inherited_environment() -> dict[str, str]:
    """Our environment without what points elsewhere: the user's own Stripe, Temporal and proxies.

    A live key in the user's shell must never reach a worker of the embedded stack.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN_PREFIXES)}
    outside_proxy = [kept.get("NO_PROXY") or kept.get("no_proxy") or "", "127.0.0.1", "localhost"]
    no_proxy = ",".join(part for part in outside_proxy if part)
    # A user's own temporal.toml could name another server, or credentials for one.
    ours = {"NO_PROXY": no_proxy, "no_proxy": no_proxy, "PYTHONUNBUFFERED": "1"}
    return kept | ours | {"TEMPORAL_CONFIG_FILE": os.devnull}


def home_directory() -> Path:
    """Where state is kept between runs: $CHARGEONCE_HOME, else `chargeonce` in the user's state folder.

    The state folder is XDG_STATE_HOME or ~/.local/state (XDG base directory specification). Where the user
    has no usable one, a private folder of the temporary directory serves. Raises RefusedToStart when
    $CHARGEONCE_HOME itself can't be used.
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        path = Path(chosen).expanduser().resolve()
        if not _is_usable(path):
            raise RefusedToStart(f"{HOME_VARIABLE} is {path}, which can't be created or written by this user")
        return path
    for path in _usual_homes():
        if _is_usable(path):
            return path
    raise RefusedToStart(f"no folder for state can be created: set {HOME_VARIABLE} to a writable one")


def _usual_homes() -> list[Path]:
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    homes = [state / "chargeonce"] if state.is_absolute() else []
    with suppress(RuntimeError):  # No HOME, and a uid without a name.
        homes.append(Path.home() / ".local" / "state" / "chargeonce")
    return [*homes, Path(tempfile.gettempdir()).resolve() / f"chargeonce-{os.geteuid()}"]


def _is_usable(path: Path) -> bool:
    try:
        make_private_directory(path)
        # Someone else may have made the folder in a shared place first: passwords must not go there.
        return path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)
    except OSError:
        return False
