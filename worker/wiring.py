"""The composition root: pool, accounts and activities, opened and closed in order."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from activities.accounts import AccountKeys, Accounts, Credentials, Keys
from activities.charge import ChargeActivities
from activities.close_report import Closer
from activities.control import ControlActivities
from activities.follow_ups import FollowUpActivities
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.follow_ups import FollowUpLedger
from activities.ledger.limits import LimitLedger
from activities.ledger.notifications import NotificationLedger
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import RunLedger
from activities.ledger.vault import VaultLedger
from activities.limiter import SharedLimiter
from activities.notify import NotificationActivities
from activities.plan import Planner
from activities.runs import RunActivities
from activities.vault import RunVault
from activities.vault_credentials import VaultedKeys
from worker.notify_settings import NotifySettings
from worker.proxied_accounts import ask_proxy
from worker.settings import Settings

CONNECTIONS_MIN = 8


@dataclass(frozen=True, slots=True)
class Parts:
    """What one process works with."""

    settings: Settings
    pool: Pool
    accounts: Accounts
    runs: RunLedger
    run_activities: RunActivities
    charge_activities: ChargeActivities
    follow_up_activities: FollowUpActivities
    control_activities: ControlActivities
    notification_activities: NotificationActivities


@asynccontextmanager
async def open_accounts(settings: Settings, pool: Pool) -> AsyncIterator[Accounts]:
    """Yield the doors to Stripe. Raises RefusedToStart on a live key without `--live`."""
    settings.refuse_unspoken_live_key()
    limits = LimitLedger(pool)

    def open_gateway(credentials: Credentials) -> StripeGateway:
        return StripeGateway(
            api_key=credentials.api_key.get_secret_value(),
            api_base=credentials.api_base,
            connections=max(settings.requests_at_once, CONNECTIONS_MIN),
            timeout_seconds=settings.timeout_seconds,
            call_style=settings.call_style,
        )

    def limiter_of(account: str) -> SharedLimiter:
        rate = settings.account_rates.get(account, settings.rate_per_second)
        return SharedLimiter(limits, account, rate_per_second=rate, spare_share=settings.spare_share)

    accounts = Accounts(
        _keys_of(settings, pool),
        open_gateway=open_gateway,
        limiter_of=limiter_of,
        requests_at_once=settings.requests_at_once,
        slices_at_once=settings.slices_at_once,
    )
    try:
        yield accounts
    finally:
        await accounts.close()


def _keys_of(settings: Settings, pool: Pool) -> Keys:
    if (proxy_url := settings.proxy_url) is not None:
        vault = RunVault(VaultLedger(pool), secret=settings.need_vault_secret(), mode=settings.mode)
        return VaultedKeys(
            vault=vault,
            proxy_url=proxy_url,
            ask_proxy=lambda: ask_proxy(proxy_url),
            default=settings.stripe_account,
        )
    default = {settings.stripe_account} if settings.stripe_account else set[str]()
    return AccountKeys(
        key=settings.need_stripe_key(),
        api_base=settings.stripe_api_base,
        connected=frozenset(settings.connected_accounts).union(default),
        own_keys=settings.account_keys,
        default=settings.stripe_account,
    )


@asynccontextmanager
async def open_parts(settings: Settings) -> AsyncIterator[Parts]:
    """Yield everything that a worker needs, checked: the database has a ledger, and no live key goes unsaid.

    Whose the keys are is asked when a run first needs them: a worker starts while Stripe is away.
    """
    destinations = NotifySettings().destinations()
    async with (
        open_pool(
            settings.database_url.get_secret_value(),
            connections=settings.database_connections,
            destinations=[destination.name for destination in destinations],
        ) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        runs, charges, control = RunLedger(pool), ChargeLedger(pool), ControlLedger(pool)
        planner = Planner(ledger=PlanLedger(pool), accounts=accounts)
        closer = Closer(pool, runs, accounts)
        yield Parts(
            settings=settings,
            pool=pool,
            accounts=accounts,
            runs=runs,
            run_activities=RunActivities(ledger=runs, control=control, planner=planner, closer=closer),
            charge_activities=ChargeActivities(ledger=charges, accounts=accounts, control=control),
            follow_up_activities=FollowUpActivities(
                charges=charges,
                follow_ups=FollowUpLedger(pool),
                runs=runs,
                control=control,
                accounts=accounts,
                closer=closer,
            ),
            control_activities=ControlActivities(control=control, runs=runs),
            notification_activities=NotificationActivities(
                ledger=NotificationLedger(pool), destinations=destinations
            ),
        )
