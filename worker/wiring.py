"""The composition root: pool, gateway, limiter and activities, opened and closed in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.charge import ChargeActivities
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.runs import RunLedger
from activities.limiter import Limiter
from activities.plan import Planner
from activities.runs import RunActivities
from worker.settings import Settings


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process works with."""

    settings: Settings
    pool: Pool
    gateway: StripeGateway
    account: StripeAccount
    runs: RunLedger
    run_activities: RunActivities
    charge_activities: ChargeActivities


@asynccontextmanager
async def open_gateway(settings: Settings) -> AsyncIterator[StripeGateway]:
    """Yield the one door to Stripe. Raises RefusedToStart on a live key without `--live`."""
    settings.refuse_unspoken_live_key()
    async with StripeGateway(
        api_key=settings.stripe_secret_key.get_secret_value(),
        api_base=settings.stripe_api_base,
        connections=max(settings.requests_at_once, 8),
        timeout_seconds=settings.timeout_seconds,
        call_style=settings.call_style,
    ) as gateway:
        yield gateway


async def find_account(settings: Settings, gateway: StripeGateway) -> StripeAccount:
    """Return whose money the process moves. Raises RefusedToStart where Stripe does not say."""
    if settings.stripe_account is not None:
        return StripeAccount(settings.stripe_account, connected=True)
    return StripeAccount(await gateway.retrieve_account(), connected=False)


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Yield everything that a worker needs, checked: the database has a ledger, the key has an account."""
    async with (
        open_gateway(settings) as gateway,
        open_pool(
            settings.database_url.get_secret_value(), connections=settings.database_connections
        ) as pool,
    ):
        account = await find_account(settings, gateway)
        runs, charges = RunLedger(pool), ChargeLedger(pool)
        limiter = Limiter(settings.rate_per_second)
        planner = Planner(ledger=runs, gateway=gateway, limiter=limiter, account=account)
        yield Parts(
            settings=settings,
            pool=pool,
            gateway=gateway,
            account=account,
            runs=runs,
            run_activities=RunActivities(ledger=runs, planner=planner),
            charge_activities=ChargeActivities(
                ledger=charges,
                gateway=gateway,
                limiter=limiter,
                account=account,
                requests_at_once=settings.requests_at_once,
            ),
        )
