"""Behind the proxy each run has its own key, and all that belongs to its account is shared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pydantic import SecretStr

from activities.accounts import Accounts, Credentials
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import Pool, open_pool
from activities.ledger.vault import VaultLedger
from activities.vault import CHARGING, PLANNING, READING, RunVault
from activities.vault_credentials import ProxiedAccounts, VaultedKeys
from deploy.postgres import Database
from tests.activities.local_limiter import LocalLimiter
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart
from workflows.domain.vault_keys import Mode

RUNS = [RunKey(run_id=f"billing-run/acct_sim/2031-{month:02d}", account="acct_sim") for month in (3, 4)]
_RUN = """
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, selected,
                          planned_at, locked_at, plan_hash, approved_hash)
VALUES ($1, $2, $1, 'owner', 'charging', 's', 'ab', 'tests', 0, ledger_now(), ledger_now(), 'x', 'x')
"""


@pytest.fixture
async def pool(database: Database) -> AsyncIterator[Pool]:
    """A ledger with two runs that are charging."""
    async with open_pool(database.app_url, connections=2) as opened:
        for run in RUNS:
            await opened.execute(_RUN, run.run_id, run.account)
        yield opened


@asynccontextmanager
async def accounts(
    pool: Pool, everybody: tuple[str, ...] = ("acct_sim",), opened: list[Credentials] | None = None
) -> AsyncIterator[Accounts]:
    """Yield accounts as a worker behind a proxy has them; `opened` tells what connections were opened by."""

    async def ask_proxy() -> ProxiedAccounts:
        return ProxiedAccounts(own=everybody[0] if everybody else None, everybody=everybody)

    def open_gateway(credentials: Credentials) -> StripeGateway:
        if opened is not None:
            opened.append(credentials)
        return StripeGateway(
            api_key=credentials.api_key.get_secret_value(), api_base=credentials.api_base, connections=1
        )

    vault = RunVault(VaultLedger(pool), secret=SecretStr("v" * 32), mode=Mode.TEST)
    found = Accounts(
        VaultedKeys(vault=vault, proxy_url="http://127.0.0.1:9", ask_proxy=ask_proxy),
        open_gateway=open_gateway,
        limiter_of=lambda _: LocalLimiter(100.0),
        requests_at_once=2,
        slices_at_once=2,
    )
    try:
        yield found
    finally:
        await found.close()


async def test_runs_of_an_account_share_all_but_the_key(pool: Pool) -> None:
    """Limits, places and connections are the account's; the key is the run's and the use's."""
    opened: list[Credentials] = []
    async with accounts(pool, opened=opened) as found:
        first, second = [await found.of(run, CHARGING) for run in RUNS]
        reading = await found.of(RUNS[0], READING)
        assert await found.of(RUNS[0]) is first
    assert first.limiter is second.limiter is reading.limiter
    assert first.places is second.places
    assert len({id(parts.gateway) for parts in (first, second, reading)}) == 3
    assert len(opened) == 1
    assert opened[0].api_base == "http://127.0.0.1:9"
    assert "vk_" not in repr(opened[0])


async def test_a_plan_that_is_only_looked_at_has_the_account_s_key(pool: Pool) -> None:
    """A preview belongs to no run, and a run that charges plans no more: both use the account's key."""
    async with accounts(pool) as found:
        charging = await found.of(RUNS[0], PLANNING)
        nobody = await found.of(RunKey(run_id="not-started-yet", account="acct_sim"), PLANNING)
        assert charging is nobody


@pytest.mark.parametrize(
    ("everybody", "answer"), [(("acct_sim",), "acct_sim"), (("acct_a", "acct_b"), None), ((), None)]
)
async def test_whose_money_is_meant_is_the_proxy_s_to_say(
    pool: Pool, everybody: tuple[str, ...], answer: str | None
) -> None:
    """One account is meant without a word; of several one must be named. No Stripe key is needed for it."""
    async with accounts(pool, everybody) as found:
        assert await found.choose("acct_named") == "acct_named"
        if answer is not None:
            assert await found.choose(None) == answer
            return
        with pytest.raises(RefusedToStart):
            await found.choose(None)
