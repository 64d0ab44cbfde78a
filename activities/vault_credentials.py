"""Credentials behind the spend-cap proxy: vault keys in place of a Stripe key, which is the proxy's alone."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from activities.accounts import Credentials
from activities.gateway.requests import StripeAccount
from activities.ledger.vault import KeyUse
from activities.vault import CHARGING, PLANNING, PREVIEWING, RunVault
from workflows.contracts import RunKey
from workflows.domain.errors import RefusedToStart


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxiedAccounts:
    """What a proxy says of itself: the accounts that it has keys for, and which is its one key's own."""

    own: str | None
    everybody: Sequence[str]
    modes: Mapping[str, str] = field(default_factory=dict)
    """Test or live, for each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultedKeys:
    """The vault keys of runs. What an account may be asked for, and by which Stripe key, is the proxy's."""

    vault: RunVault
    proxy_url: str
    ask_proxy: Callable[[], Awaitable[ProxiedAccounts]]
    default: str | None = None

    @property
    def through_proxy(self) -> bool:
        """Each run has keys of its own, and the proxy knows whose money each of them moves."""
        return True

    @property
    def named(self) -> list[str]:
        """Nobody: which accounts there are is the proxy's to say."""
        return []

    async def credentials_for(self, run: RunKey, use: KeyUse = CHARGING) -> Credentials:
        """Return the run's key for a use. A plan that is only looked at belongs to no run, so far.

        Raises:
            RefusedToStart: As `RunVault.key_for`.
        """
        if use is PLANNING:
            try:
                return Credentials(await self.vault.key_for(run, use), self.proxy_url)
            except RefusedToStart:
                use = PREVIEWING
        return Credentials(await self.vault.key_for(run, use), self.proxy_url)

    def account_of(self, run: RunKey) -> StripeAccount:
        """Return the run's account; the proxy adds the header that a connected one needs."""
        return StripeAccount(run.account, connected=False)

    async def own(self) -> str:
        """Return the only account that the proxy serves.

        Raises:
            RefusedToStart: It serves several, and none was named; or it serves none yet.
        """
        known = await self.ask_proxy()
        if len(known.everybody) > 1:
            everybody = ", ".join(sorted(known.everybody))
            raise RefusedToStart(f"there are several accounts, so one must be named: {everybody}")
        if known.own is None:
            raise RefusedToStart("the proxy does not know yet whose Stripe key it has: is Stripe away?")
        return known.own
