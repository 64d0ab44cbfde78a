"""The folder of a stack: one stack at a time, and nothing of an earlier one still running in it."""

import fcntl
import os
import secrets
import signal
from pathlib import Path
from typing import IO

from deploy.processes import end_leftover, make_private_directory, write_private_file
from deploy.stack_info import STACK_FILE, StackInfo
from workflows.domain.errors import RefusedToStart, invariant


class StackHome:
    """Exclusive use of a home: from `take` to `release`, no other stack starts in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    @property
    def taken(self) -> bool:
        """Whether this process uses the home."""
        return self._lock is not None

    def take(self) -> None:
        """Take the home, or raise RefusedToStart with the pid of the stack that has it.

        The kernel releases the lock when its process ends, however it ends.
        """
        invariant(not self.taken, "a home is taken once")
        make_private_directory(self.path)
        lock = (self.path / "stack.lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise RefusedToStart(
                f"a stack runs in {self.path} already (pid {owner}): use it, stop it, or choose another home"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        """Let other stacks use the home."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    async def end_leftovers(self) -> list[int]:
        """End every process that a killed stack left in this home; their pids."""
        pids: list[int] = []
        # Workers first: they would only meet servers that go away.
        for record in sorted(self._records(), key=lambda path: path.parent.name != "processes"):
            is_postgres = record.parent.name == "postgres"
            pid = await end_leftover(record, stop_signal=signal.SIGINT if is_postgres else signal.SIGTERM)
            pids += [] if pid is None else [pid]
        return pids

    def _records(self) -> list[Path]:
        return list(self.path.glob("*/*.child.json"))

    def secret_key(self) -> str:
        """The simulator's API key of this home: random, made once, in the shape of a Stripe test key."""
        return self._secret("stripe_secret_key", "sk_test_")

    def vault_secret(self) -> str:
        """The secret from which this home's runs derive their vault keys: random, made once."""
        return self._secret("vault_secret", "")

    def _secret(self, name: str, prefix: str) -> str:
        path = self.path / name
        if not path.exists():
            write_private_file(path, f"{prefix}{secrets.token_hex(24 if prefix else 32)}")
        return path.read_text("utf-8").strip()

    def publish(self, info: StackInfo) -> None:
        """Tell other commands where everything is."""
        write_private_file(self.path / STACK_FILE, info.model_dump_json(indent=2))

    def unpublish(self) -> None:
        """Tell other commands that nothing runs here."""
        (self.path / STACK_FILE).unlink(missing_ok=True)
