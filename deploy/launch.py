"""Become the right process, then exec: the first instructions of every child of the stack.

Runs as a script (`python -I -S launch.py PARENT DEATH_SIGNAL IDENTITY COMMAND...`) and imports the standard
library alone. What it does can't be done by the parent: code between fork and exec of a process that has
threads (Temporal's runtime has) may deadlock.

- The child asks the kernel to be signalled when its parent dies, so that `kill -9` of the stack leaves
  nothing behind.
- PostgreSQL refuses to run as root. IDENTITY `namespace` gives it a user namespace in which our own uid is
  `nobody`: outside it is still us, so data and binaries below a folder with mode 0700 stay reachable, and no
  file changes hands. IDENTITY `nobody` is for containers that forbid namespaces: the real user `nobody`, with
  the one capability that lets it traverse our folders where we hold that ourselves. IDENTITY `same` changes
  nothing.

Linux rules: prctl(2), user_namespaces(7), capabilities(7).
"""

import ctypes
import os
import pwd
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_RAISE = 2
_CAP_DAC_OVERRIDE = 1
_CAPABILITY_VERSION_3 = 0x20080522
_CLONE_NEWUSER = 0x10000000
_EXIT_NOT_STARTED = 71


def main(arguments: list[str]) -> None:
    """Apply the identity and the death signal, then exec the command; exit 71 if that is impossible."""
    parent, death_signal, identity, *command = arguments
    try:
        if identity == "namespace":
            _enter_namespace()
        elif identity == "nobody":
            _become_nobody()
        # After the identity: the kernel forgets the death signal when credentials change.
        if sys.platform == "linux":
            _libc().prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        if os.getppid() != int(parent):
            os._exit(_EXIT_NOT_STARTED)  # The parent died before the kernel knew whom to tell.
        os.execvp(command[0], command)  # noqa: S606 - a shell would only stand in between
    except OSError as error:
        print(f"launch: can't start {command[0]} as {identity}: {error}", file=sys.stderr, flush=True)
        os._exit(_EXIT_NOT_STARTED)


def _enter_namespace() -> None:
    uid, gid = os.geteuid(), os.getegid()
    inside = unprivileged_user()
    _check(_libc().unshare(_CLONE_NEWUSER), "unshare(CLONE_NEWUSER)")
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{inside.pw_uid} {uid} 1")
    _write("/proc/self/gid_map", f"{inside.pw_gid} {gid} 1")


def _write(path: str, text: str) -> None:
    # One unbuffered write: the kernel takes a map in a single write and never again.
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _become_nobody() -> None:
    user = unprivileged_user()
    libc = _libc() if sys.platform == "linux" else None
    if libc is not None:
        libc.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    if libc is not None:
        _keep_traversal(libc)


def _keep_traversal(libc: ctypes.CDLL) -> None:
    # Best effort: without the capability the command still runs wherever `nobody` may walk by itself.
    bit = 1 << _CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)
    if libc.capset(header, sets) == 0:
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_OVERRIDE, 0, 0)


def unprivileged_user() -> pwd.struct_passwd:
    """The user `nobody`, or any user but root: initdb wants a uid that has a name."""
    try:
        return pwd.getpwnam("nobody")
    except KeyError:
        for user in pwd.getpwall():
            if user.pw_uid != 0:
                return user
        raise OSError("there is no user but root") from None


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        error_number = ctypes.get_errno()
        raise OSError(error_number, f"{call}: {os.strerror(error_number)}")


def launch_command(command: list[str], *, death_signal: int, identity: str) -> list[str]:
    """The command line that runs `command` as a child of this process under `identity`."""
    launcher = str(Path(__file__).resolve())
    head = [sys.executable, "-I", "-S", launcher, str(os.getpid()), str(int(death_signal)), identity]
    return [*head, *command]


if __name__ == "__main__":
    main(sys.argv[1:])
