"""A spend-cap proxy between the tests' gateway and their simulator."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import TypeVar

from activities.ledger.database import open_pool
from activities.ledger.vault import VaultLedger
from activities.vault import issue_custom_key
from deploy.postgres import Database
from worker.proxy.server import open_proxy
from worker.proxy.settings import ProxySettings
from workflows.domain.vault import SCOPES, Scope
from workflows.domain.vault_keys import Mode

ALLOWED = SCOPES[Scope.BILLING] | SCOPES[Scope.PLANNING]
CAPS_MINOR = {"eur": 1_000_000, "usd": 1_000_000}

LEDGER_OF_THE_PROXY: ContextVar[Database | None] = ContextVar("ledger_of_the_proxy", default=None)
"""The ledger of the proxy that tills open on their way to the simulator; None: they have no proxy."""

_FORGET = "; ".join(
    f"DELETE FROM vault_{table}" for table in ("answers", "calls", "open", "intents", "budgets", "keys")
)

Test = TypeVar("Test", bound=Callable[..., object])


def direct_only(reason: str) -> Callable[[Test], Test]:
    """Mark a test that says nothing about the proxy, or speaks of what a proxy must do otherwise."""
    assert reason

    def mark(test: Test) -> Test:
        test.direct_only = reason  # type: ignore[attr-defined]
        return test

    return mark


@asynccontextmanager
async def proxied(
    database: Database, *, account: str, stripe_key: str, stripe_url: str
) -> AsyncIterator[tuple[str, str]]:
    """Yield URL and vault key of a proxy that has seen nothing yet: simulators draw the same ids again."""
    settings = ProxySettings(
        database_url=database.proxy_url,
        account_keys=f'{{"{account}": "{stripe_key}"}}',
        stripe_api_base=stripe_url,
        database_connections=3,
        sweep_seconds=0,
    )
    async with open_pool(database.owner_url, connections=1) as pool:
        await pool.execute(_FORGET)
        issued = await issue_custom_key(
            VaultLedger(pool), account=account, mode=Mode.TEST, allow=ALLOWED, caps_minor=CAPS_MINOR,
            daily=False, label="gateway tests", expires=timedelta(days=3650), who="tests",
        )  # fmt: skip
    async with open_proxy(settings) as (url, _):
        yield url, issued.key.get_secret_value()
