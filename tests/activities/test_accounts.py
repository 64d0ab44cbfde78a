"""Which accounts a process works for, by whose key, and what no two of them share."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields

import pytest
from pydantic import SecretStr

from activities.accounts import AccountKeys, AccountParts, Accounts, Credentials
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.activities.local_limiter import LocalLimiter
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart

KEY, OTHER_KEY = SecretStr("sk_test_platform_synthetic"), SecretStr("sk_test_other_synthetic")
OWN = "acct_own"  # of every key: the simulator has one platform


@asynccontextmanager
async def open_accounts(
    sim: RunningSim,
    *,
    connected: frozenset[str] = frozenset(),
    own_keys: Mapping[str, SecretStr] | None = None,
    default: str | None = None,
) -> AsyncIterator[Accounts]:
    """Yield the accounts of a process that has these keys."""
    keys = AccountKeys(
        key=KEY, api_base=sim.url, connected=connected, own_keys=own_keys or {}, default=default
    )

    def open_gateway(credentials: Credentials) -> StripeGateway:
        return StripeGateway(
            api_key=credentials.api_key.get_secret_value(),
            api_base=credentials.api_base,
            connections=2,
        )

    accounts = Accounts(
        keys,
        open_gateway=open_gateway,
        limiter_of=lambda _: LocalLimiter(1_000),
        requests_at_once=2,
        slices_at_once=1,
    )
    try:
        yield accounts
    finally:
        await accounts.close()


@pytest.fixture
async def sim() -> AsyncIterator[RunningSim]:
    """A simulator whose keys belong to one account."""
    async with running_sim(account=OWN) as running:
        yield running


def run_of(account: str, number: int = 1) -> RunKey:
    """Return a run of an account."""
    return RunKey(run_id=f"billing-run/{account}/{number}", account=account)


async def test_the_key_s_own_account_is_asked_for_once(sim: RunningSim) -> None:
    """Nothing is asked before an account is needed, and then one time, however many runs ask at once."""
    async with open_accounts(sim) as accounts:
        assert len(sim.requests) == 0
        found = await asyncio.gather(*(accounts.of(run_of(OWN, number)) for number in range(5)))
        assert all(parts is found[0] for parts in found)
        assert found[0].account == StripeAccount(OWN, connected=False)
        assert [request.path for request in sim.requests] == ["/v1/account"]


async def test_a_connected_account_needs_no_question(sim: RunningSim) -> None:
    """Its name in the configuration is enough; Stripe itself checks who may."""
    async with open_accounts(sim, connected=frozenset({"acct_a"})) as accounts:
        parts = await accounts.of(run_of("acct_a"))
        assert parts.account == StripeAccount("acct_a", connected=True)
        assert len(sim.requests) == 0


async def test_an_account_without_credentials_is_refused(sim: RunningSim) -> None:
    """Charging it by another account's key would move the wrong money: the refusal says who is known."""
    async with open_accounts(sim, connected=frozenset({"acct_a"})) as accounts:
        with pytest.raises(RefusedToStart, match="for acct_a, acct_own, and none for acct_b"):
            await accounts.of(run_of("acct_b"))


async def test_a_key_under_the_wrong_account_is_refused(sim: RunningSim) -> None:
    """A key of its own is believed by Stripe's word alone."""
    async with open_accounts(sim, own_keys={"acct_b": OTHER_KEY, OWN: OTHER_KEY}) as accounts:
        assert (await accounts.of(run_of(OWN))).account == StripeAccount(OWN, connected=False)
        with pytest.raises(RefusedToStart, match="configured for acct_b belongs to acct_own"):
            await accounts.of(run_of("acct_b"))


async def test_a_question_that_got_lost_is_asked_again(sim: RunningSim) -> None:
    """One dropped request, or one 503, is no reason to refuse."""
    sim.set_faults(
        {"name": "lost", "match": {"method": "*", "only": [1]}, "effect": {"kind": "drop"}},
        {"name": "503", "match": {"method": "*", "only": [2]}, "effect": {"kind": "error", "status": 503}},
    )
    async with open_accounts(sim) as accounts:
        assert (await accounts.of(run_of(OWN))).account.id == OWN
    assert len(sim.requests) == 3


async def test_a_refused_key_is_asked_about_again_later(sim: RunningSim) -> None:
    """While Stripe refuses the key nothing is begun; once it is mended, the same process goes on."""
    sim.change(revoked=True)
    async with open_accounts(sim) as accounts:
        with pytest.raises(RefusedToStart, match="HTTP 401"):
            await accounts.of(run_of(OWN))
        sim.change(revoked=False)
        assert (await accounts.of(run_of(OWN))).account.id == OWN


async def test_accounts_share_nothing(sim: RunningSim) -> None:
    """Connections, limits and places are each account's own: a slow one can't use up another's."""
    async with open_accounts(sim, connected=frozenset({"acct_a", "acct_b"})) as accounts:
        one, other = await accounts.of(run_of("acct_a")), await accounts.of(run_of("acct_b"))
        owned = [field.name for field in fields(AccountParts) if field.name != "requests_at_once"]
        assert [name for name in owned if getattr(one, name) is getattr(other, name)] == []


async def test_the_only_account_need_not_be_named(sim: RunningSim) -> None:
    """With one key and nothing else configured, it is the key's own."""
    async with open_accounts(sim) as accounts:
        assert await accounts.choose(None) == OWN
        assert await accounts.choose(OWN) == OWN


async def test_of_several_accounts_one_must_be_named(sim: RunningSim) -> None:
    """Whose customers are charged is never guessed: the refusal lists them."""
    async with open_accounts(sim, connected=frozenset({"acct_a", "acct_b"})) as accounts:
        with pytest.raises(RefusedToStart, match="one must be named: acct_a, acct_b, acct_own"):
            await accounts.choose(None)
        assert await accounts.choose("acct_b") == "acct_b"
        with pytest.raises(RefusedToStart, match="none for acct_c"):
            await accounts.choose("acct_c")


async def test_a_default_account_is_meant_where_none_is_named(sim: RunningSim) -> None:
    """The configuration may say which."""
    async with open_accounts(sim, connected=frozenset({"acct_a"}), default="acct_a") as accounts:
        assert await accounts.choose(None) == "acct_a"


def test_keys_do_not_show() -> None:
    """Neither credentials nor their configuration print a key."""
    keys = AccountKeys(key=KEY, own_keys={OWN: OTHER_KEY})
    shown = repr(keys) + repr(Credentials(KEY, None)) + str(keys)
    assert "synthetic" not in shown
