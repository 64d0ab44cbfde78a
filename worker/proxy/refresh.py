"""Reading the real keys again while requests go on."""

import asyncio
import json
import logging

from activities.ledger.cap import CapLedger
from worker.proxy.real_keys import RealKeys
from workflows.domain.errors import RefusedToStart

_LOG = logging.getLogger("chargeonce.proxy")


class Refresh:
    """Reads the real keys again, one reading at a time; trouble leaves the old ones and is logged."""

    def __init__(self, keys: RealKeys, ledger: CapLedger) -> None:
        self._keys = keys
        self._ledger = ledger
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Begin to read again, unless that is under way."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._read())

    def if_file_changed(self) -> None:
        """Read again where the key file is another one."""
        if self._keys.file_has_changed():
            self()

    async def _read(self) -> None:
        try:
            await self._keys.read()
        except RefusedToStart as refusal:
            _LOG.warning(json.dumps({"event": "proxy_keys_kept", "why": str(refusal)}))
        else:
            self._ledger.accounts = self._keys.modes
            _LOG.info(json.dumps({"event": "proxy_keys_read", "accounts": len(self._keys.modes)}))
