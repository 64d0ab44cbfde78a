"""Whose money, by whose key: everything that works for one account, and nothing that two accounts share.

An account that is stuck or slow must not hold up the others. So each has its own connections, its own places
for requests, its own share of the slices in memory and its own limits; what accounts do share (database,
event loop) nobody holds while Stripe is asked.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import SecretStr

from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.vault import KeyUse
from activities.limiter import Limiter
from activities.vault import CHARGING
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart

RUNS_KEPT_MAX = 256  # runs and uses of theirs whose parts are kept, behind the proxy


@dataclass(frozen=True, slots=True)
class Credentials:
    """What opens Stripe for a run. `api_base` None is Stripe itself."""

    api_key: SecretStr
    api_base: str | None


class Keys(Protocol):
    """By what this process gets at Stripe: real keys, or the vault keys that the spend-cap proxy takes."""

    @property
    def default(self) -> str | None:
        """The account that commands mean when they name none."""

    @property
    def through_proxy(self) -> bool:
        """Whether each run has a key of its own, and the proxy sees to it whose money that key moves."""

    async def credentials_for(self, run: RunKey, use: KeyUse) -> Credentials:
        """Return by what a run gets at Stripe for a use. Raises RefusedToStart where it does not."""

    def account_of(self, run: RunKey) -> StripeAccount:
        """Return the run's account, and whether it is reached through another account's key."""

    async def own(self) -> Credentials | str:
        """Return the account that is meant where none is named, or by what to ask whose it is."""

    @property
    def named(self) -> list[str]:
        """The accounts that are known besides the one that is meant where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountKeys:
    """The accounts that a process may work for.

    `key` is for its own account and for the connected ones; `own_keys` has accounts with a key of their own.
    `default` is the one that commands mean when they name none.
    """

    key: SecretStr
    api_base: str | None = None
    connected: frozenset[str] = frozenset()
    own_keys: Mapping[str, SecretStr] = field(default_factory=dict)
    default: str | None = None

    @property
    def named(self) -> list[str]:
        """The accounts that the configuration names: all but the one that `key` itself belongs to."""
        return sorted(self.connected | self.own_keys.keys())

    @property
    def through_proxy(self) -> bool:
        """A real key is all that there is between a run and Stripe."""
        return False

    async def own(self) -> Credentials:
        """Return the key whose account is not known yet."""
        return Credentials(self.key, self.api_base)

    async def credentials_for(self, run: RunKey, _use: KeyUse = CHARGING) -> Credentials:
        """Return by what a run gets at Stripe, whatever for."""
        return Credentials(self.own_keys.get(run.account, self.key), self.api_base)

    def account_of(self, run: RunKey) -> StripeAccount:
        """Return the run's account, and whether it is reached through another account's key."""
        connected = run.account in self.connected and run.account not in self.own_keys
        return StripeAccount(run.account, connected=connected)


@dataclass(frozen=True, slots=True)
class AccountParts:
    """What works for one account in this process.

    `places` has one place per request between intent and answer, `requests_at_once` in all. `slices` is to be
    held while the charges of a slice are in memory: further slices of the account wait before their claim.
    """

    account: StripeAccount
    gateway: StripeGateway
    limiter: Limiter
    places: asyncio.Semaphore
    requests_at_once: int
    slices: asyncio.Semaphore


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What all runs of one account share, by whatever credentials they come."""

    limiter: Limiter
    places: asyncio.Semaphore
    slices: asyncio.Semaphore


class Accounts:
    """Finds and keeps the parts of every account that this process has credentials for."""

    def __init__(
        self,
        keys: Keys,
        *,
        open_gateway: Callable[[Credentials], StripeGateway],
        limiter_of: Callable[[str], Limiter],
        requests_at_once: int,
        slices_at_once: int,
    ) -> None:
        """Prepare; nothing is opened or asked before an account is needed.

        Args:
            keys: Which accounts, and by what.
            open_gateway: Makes a gateway with connections of its own.
            limiter_of: Makes the limiter of an account.
            requests_at_once: Requests per account between intent and answer, at least 1.
            slices_at_once: Slices per account in memory, at least 1.
        """
        self._keys = keys
        self._open_gateway = open_gateway
        self._limiter_of = limiter_of
        self._requests_at_once = requests_at_once
        self._slices_at_once = slices_at_once
        self._parts: OrderedDict[tuple[str, Credentials], AccountParts] = OrderedDict()
        self._doors: dict[str, StripeGateway] = {}
        self._bounds: dict[str, _Bounds] = {}
        self._opening: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._key_belongs_to: dict[SecretStr, str] = {}

    @property
    def through_proxy(self) -> bool:
        """Whether each run has vault keys of its own: what a use may do is the proxy's to say then."""
        return self._keys.through_proxy

    async def close(self) -> None:
        """Close every gateway. Sends after this answer NOT_SENT."""
        for gateway in (*self._doors.values(), *(parts.gateway for parts in self._parts.values())):
            await gateway.close()

    async def of(self, run: RunKey, use: KeyUse = CHARGING) -> AccountParts:
        """Return the parts of the run's account, the same ones for all its runs with the same credentials.

        Behind the proxy each run has credentials of its own for each use; limits, places and connections are
        the account's all the same.

        Raises:
            RefusedToStart: This process has no credentials for the account, or Stripe does not say whose key
                it would use: by a wrong key the money would be another account's. Or the run may not have a
                vault key for this use.
        """
        credentials = await self._keys.credentials_for(run, use)
        found = self._parts.get((run.account, credentials))
        return found or await self._open(self._keys.account_of(run), credentials)

    async def choose(self, named: str | None) -> str:
        """Return the account that a command means: the one it names, else the default, else the only one.

        Raises:
            RefusedToStart: It is not one of those configured, there are several and none was named, or
                Stripe does not say whose key it is.
        """
        if (account := named or self._keys.default) is not None:
            if not self._keys.through_proxy:
                await self.of(RunKey(run_id="", account=account))
            return account
        meant = await self._keys.own()
        own = meant if isinstance(meant, str) else await self._owner_of(meant)
        if self._keys.named:
            everybody = ", ".join(sorted({own, *self._keys.named}))
            raise RefusedToStart(f"there are several accounts, so one must be named: {everybody}")
        return own

    async def everybody(self) -> list[str]:
        """Return every account that the configuration names, and the one whose own the key is.

        Raises:
            RefusedToStart: Stripe does not say whose key it is.
        """
        meant = await self._keys.own()
        own = meant if isinstance(meant, str) else await self._owner_of(meant)
        return sorted({own, *self._keys.named})

    async def _open(self, account: StripeAccount, credentials: Credentials) -> AccountParts:
        async with self._opening[account.id]:
            place = (account.id, credentials)
            if place not in self._parts:
                if not account.connected and not self._keys.through_proxy:
                    await self._refuse_stranger(account.id, credentials)
                bounds = self._bounds.get(account.id) or self._bound(account.id)
                self._parts[place] = AccountParts(
                    account=account,
                    gateway=self._gateway_of(account.id, credentials),
                    limiter=bounds.limiter,
                    places=bounds.places,
                    requests_at_once=self._requests_at_once,
                    slices=bounds.slices,
                )
                if self._keys.through_proxy and len(self._parts) > RUNS_KEPT_MAX:
                    self._parts.popitem(last=False)  # who works with them has them; the connections stay
            return self._parts[place]

    def _gateway_of(self, account_id: str, credentials: Credentials) -> StripeGateway:
        if not self._keys.through_proxy:
            return self._open_gateway(credentials)
        door = self._doors.get(account_id)
        if door is None:
            door = self._doors[account_id] = self._open_gateway(credentials)
        return door.under(credentials.api_key.get_secret_value())

    def _bound(self, account_id: str) -> _Bounds:
        bounds = self._bounds[account_id] = _Bounds(
            limiter=self._limiter_of(account_id),
            places=asyncio.Semaphore(self._requests_at_once),
            slices=asyncio.Semaphore(self._slices_at_once),
        )
        return bounds

    async def _refuse_stranger(self, account_id: str, credentials: Credentials) -> None:
        owner = await self._owner_of(credentials)
        if owner == account_id:
            return
        if account_id in self._keys.named:
            raise RefusedToStart(f"the key configured for {account_id} belongs to {owner}")
        known = ", ".join(sorted({owner, *self._keys.named}))
        raise RefusedToStart(f"there are credentials for {known}, and none for {account_id}")

    async def _owner_of(self, credentials: Credentials) -> str:
        if credentials.api_key not in self._key_belongs_to:
            async with self._open_gateway(credentials) as gateway:
                self._key_belongs_to[credentials.api_key] = await gateway.retrieve_account()
        return self._key_belongs_to[credentials.api_key]
