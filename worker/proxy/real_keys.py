"""The real Stripe keys: only this process has them, and it takes new ones up without a restart.

They are read again on SIGHUP, when their file has changed, and when Stripe says 401. While new ones can't be
read, the old ones stay.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from worker.proxy.settings import ProxySettings
from workflows.domain.errors import RefusedToStart
from workflows.domain.vault_keys import Mode

TEST_PREFIXES = ("sk_test_", "rk_test_")  # any other key may be live
COMMAND_TIMEOUT_SECONDS = 30.0

AskWhose = Callable[[str], Awaitable[str]]
"""Asks Stripe whose a key is. Raises RefusedToStart where it does not say."""


@dataclass(frozen=True, slots=True)
class RealKey:
    """What opens one account. `connected` says that it is reached through another account's key."""

    secret: str
    mode: Mode
    connected: bool

    def __repr__(self) -> str:
        """Show no key, in no traceback."""
        return f"RealKey({self.mode}, connected={self.connected})"

    def headers(self, account: str) -> dict[str, str]:
        """Return what every request to Stripe carries: the key, and the account if it is a connected one."""
        headers = {"Authorization": f"Bearer {self.secret}", "Accept-Encoding": "identity"}
        return headers | ({"Stripe-Account": account} if self.connected else {})


class RealKeys:
    """The keys by account, as they were read last."""

    def __init__(self, settings: ProxySettings, ask_whose: AskWhose) -> None:
        self._settings = settings
        self._ask_whose = ask_whose
        self._by_account: dict[str, RealKey] = {}
        self._file_stamp: tuple[int, int] | None = None
        self._reading = asyncio.Lock()
        self._owners: dict[str, str] = {}  # of keys seen before: the same key is asked for once

    @property
    def modes(self) -> dict[str, str]:
        """Every account that there is a key for, with its mode."""
        return {account: key.mode.value for account, key in self._by_account.items()}

    @property
    def own_account(self) -> str | None:
        """Whose the one key is, or the only account there is a key for."""
        own = [account for account, key in self._by_account.items() if not key.connected]
        return next(iter(self._owners.values()), own[0] if len(own) == 1 else None)

    def of(self, account: str) -> RealKey | None:
        """Return the key for an account."""
        return self._by_account.get(account)

    def hide(self, body: bytes) -> bytes:
        """Return a body without any real key in it, whatever Stripe or somebody in between wrote."""
        for key in self._by_account.values():
            body = body.replace(key.secret.encode(), b"[key]")
        return body

    async def read(self) -> None:
        """Read the keys again.

        Raises:
            RefusedToStart: There are none, one is live and `live` was not said, or Stripe does not say whose
                the one key is. The keys read before stay.
        """
        async with self._reading:
            self._file_stamp = self._stamp()
            found = await self._read_source()
            if not found:
                raise RefusedToStart(
                    "the proxy has no Stripe key: set STRIPE_SECRET_KEY, CHARGEONCE_STRIPE_KEY_FILE, "
                    "CHARGEONCE_STRIPE_KEY_COMMAND or CHARGEONCE_ACCOUNT_KEYS"
                )
            self._by_account = {
                account: RealKey(secret, _mode_of(secret), connected)
                for account, (secret, connected) in found.items()
            }
            if not self._settings.live and Mode.LIVE.value in self.modes.values():
                self._by_account = {}
                raise RefusedToStart("a Stripe key is live, and live was not said: nothing was started")

    def file_has_changed(self) -> bool:
        """Return whether the key file is another one than when it was read."""
        return self._settings.stripe_key_file is not None and self._stamp() != self._file_stamp

    def _stamp(self) -> tuple[int, int] | None:
        path = self._settings.stripe_key_file
        try:
            status = path.stat() if path is not None else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_ino) if status is not None else None

    async def _read_source(self) -> dict[str, tuple[str, bool]]:
        settings = self._settings
        found: dict[str, tuple[str, bool]] = {}
        for text in await self._texts():
            if text.startswith("{"):
                found |= {account: (secret, False) for account, secret in _parse_map(text).items()}
                continue
            owner = self._owners.get(text) or await self._ask_whose(text)
            self._owners = {text: owner}
            found[owner] = (text, False)
            found |= dict.fromkeys(settings.connected, (text, True))
        return found

    async def _texts(self) -> list[str]:
        settings = self._settings
        texts: list[str] = []
        if settings.stripe_key_command is not None:
            texts.append(await _run(settings.stripe_key_command))
        elif settings.stripe_key_file is not None:
            try:
                texts.append(settings.stripe_key_file.read_text("utf-8"))
            except (OSError, UnicodeDecodeError) as error:
                raise RefusedToStart(
                    f"the file of the Stripe key can't be read: {type(error).__name__}"
                ) from None
        elif settings.stripe_secret_key is not None:
            texts.append(settings.stripe_secret_key.get_secret_value())
        if settings.account_keys is not None:
            texts.append(settings.account_keys.get_secret_value())
        return [text.strip() for text in texts if text.strip()]


def _mode_of(secret: str) -> Mode:
    return Mode.TEST if secret.startswith(TEST_PREFIXES) else Mode.LIVE


def _parse_map(text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict) or not all(isinstance(secret, str) for secret in document.values()):
        raise RefusedToStart("the Stripe keys are no JSON object of account and key")
    return document


async def _run(command: str) -> str:
    process = await asyncio.create_subprocess_shell(
        command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(COMMAND_TIMEOUT_SECONDS):
            printed, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise RefusedToStart(
            f"the command for the Stripe key took over {COMMAND_TIMEOUT_SECONDS:g} s"
        ) from None
    if process.returncode != 0:
        raise RefusedToStart(f"the command for the Stripe key ended with {process.returncode}")
    return printed.decode("utf-8", errors="replace")
