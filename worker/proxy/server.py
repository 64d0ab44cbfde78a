"""The proxy's process: opens its parts in order, serves until it is told to stop, and drains."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from activities.ledger.cap import CapLedger
from activities.ledger.database import open_pool
from worker.listening import DRAIN_SECONDS, listening
from worker.proxy.app import answer_failure, build_app
from worker.proxy.evidence import read_json
from worker.proxy.parts import Parts
from worker.proxy.real_keys import RealKey, RealKeys
from worker.proxy.refresh import Refresh
from worker.proxy.settings import ProxySettings
from worker.proxy.sweep import sweep_forever
from worker.proxy.upstream import NoAnswer, NotReached, Upstream, open_upstream
from worker.serving import log_lines_to_stderr, stop_on_signal, tell_ready
from workflows.domain.errors import RefusedToStart
from workflows.domain.vault_keys import Mode

WATCH_SECONDS = 1.0
WHOSE_PAUSES_SECONDS = (0.2, 0.5, 1.0)

_LOG = logging.getLogger("chargeonce.proxy")


async def run_proxy(settings: ProxySettings) -> None:
    """Serve until SIGTERM or SIGINT, then finish what has been admitted. SIGHUP reads the real keys again.

    Raises:
        RefusedToStart: No database, no real key, a live key without `live`, or the port is taken.
    """
    stop = stop_on_signal()
    async with open_proxy(settings) as (url, refresh):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, refresh)
        tell_ready(_LOG, "proxy_ready", url, settings.ready_file)
        await stop.wait()


@asynccontextmanager
async def open_parts(settings: ProxySettings) -> AsyncIterator[Parts]:
    """Yield what a proxy works with, the real keys read; answers are recorded before it ends.

    Raises:
        RefusedToStart: No database, no real key, or a live key without `live`.
    """
    async with (
        open_pool(
            settings.database_url.get_secret_value(), connections=settings.database_connections
        ) as pool,
        open_upstream(
            settings.stripe_api_base,
            timeout_seconds=settings.timeout_seconds,
            connections=settings.connections,
        ) as upstream,
    ):
        ledger = CapLedger(pool)
        await ledger.refuse_wrong_role()
        keys = RealKeys(settings, lambda secret: _ask_whose(upstream, secret))
        await keys.read()
        ledger.accounts = keys.modes
        try:
            yield Parts(ledger, upstream, keys, Refresh(keys, ledger))
        finally:
            await ledger.drain(DRAIN_SECONDS)


@asynccontextmanager
async def open_proxy(settings: ProxySettings) -> AsyncIterator[tuple[str, "Refresh"]]:
    """Yield the URL of a serving proxy, and what makes it read its real keys again. Raises as `run_proxy`."""
    async with open_parts(settings) as parts:
        tasks = [asyncio.create_task(_watch(parts.refresh_keys))]
        if settings.sweep_seconds > 0:
            sweeping = sweep_forever(
                parts,
                every_seconds=settings.sweep_seconds,
                older_than_seconds=settings.unknown_after_seconds,
            )
            tasks.append(asyncio.create_task(sweeping))
        try:
            async with listening(
                build_app(parts),
                "the proxy",
                settings.host,
                settings.port,
                answer=answer_failure,
                log=_LOG,
            ) as url:
                yield url, parts.refresh_keys
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(refresh: Refresh) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        refresh.if_file_changed()


async def _ask_whose(upstream: Upstream, secret: str) -> str:
    headers = RealKey(secret, Mode.TEST, connected=False).headers("")
    why = ""
    for pause_seconds in (*WHOSE_PAUSES_SECONDS, None):
        try:
            answered = await upstream.send("GET", "/v1/account", headers, b"", account="")
        except (NoAnswer, NotReached) as failure:
            why = f"Stripe does not answer ({failure})"
        else:
            account = (read_json(answered) or {}).get("id")
            if answered.status == 200 and isinstance(account, str) and account:
                return account
            why = f"Stripe answered {answered.status}"
            if answered.status < 500 and answered.status != 429:
                break
        if pause_seconds is not None:
            await asyncio.sleep(pause_seconds)
    raise RefusedToStart(f"Stripe does not say whose API key this is: {why}")


def log_to_stderr() -> None:
    """Write the proxy's log, JSON lines, to standard error."""
    log_lines_to_stderr(_LOG)
