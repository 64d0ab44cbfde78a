"""Lookups at Stripe about one charge: by its PaymentIntent's id, or by its customer."""

from activities.gateway.calls import boottime_seconds
from activities.gateway.requests import StripeAccount
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger
from activities.limiter import Endpoint, Limiter
from activities.skew_watch import SkewWatch
from workflows.domain.answer import Lookup
from workflows.domain.charge import Charge

LIST_BEFORE_FIRST_SEND_SECONDS = 300  # more than any skew that we go on with


class ChargeLookups:
    """Asks Stripe under the account's limiter, and watches how far apart the clocks are."""

    def __init__(
        self,
        *,
        ledger: ChargeLedger,
        gateway: StripeGateway,
        limiter: Limiter,
        account: StripeAccount,
        skew: SkewWatch,
    ) -> None:
        self._ledger = ledger
        self._gateway = gateway
        self._limiter = limiter
        self._account = account
        self._skew = skew

    async def retrieve(self, charge: Charge) -> Lookup:
        """Return the charge's own PaymentIntent as it is now."""
        began_seconds, now = await self._turn(Endpoint.RETRIEVE)
        lookup = await self._gateway.retrieve_payment_intent(
            self._account, charge.payment_intent or "", started_epoch_seconds=now
        )
        self._skew.observe(lookup.skew_seconds, began_seconds=began_seconds)
        return lookup

    async def list_since(self, charge: Charge, first_sent_epoch_seconds: float) -> Lookup:
        """Return what the charge's customer has, made since a moment minus more than any skew."""
        began_seconds, now = await self._turn(Endpoint.LIST)
        return await self._list(charge, first_sent_epoch_seconds, now, began_seconds)

    async def look_at_clocks(self, charge: Charge) -> None:
        """Ask Stripe something small about a charge's customer, for the time of the answer alone."""
        began_seconds, now = await self._turn(Endpoint.LIST)
        await self._list(charge, now, now, began_seconds)

    async def _turn(self, endpoint: Endpoint) -> tuple[float, float]:
        await self._limiter.acquire(endpoint)
        # The clocks are read after the limiter has let the lookup go, or its wait would look like skew.
        return boottime_seconds(), await self._ledger.now()

    async def _list(self, charge: Charge, since: float, now: float, began_seconds: float) -> Lookup:
        lookup = await self._gateway.list_payment_intents(
            self._account,
            customer=charge.customer,
            created_from_epoch_seconds=int(since) - LIST_BEFORE_FIRST_SEND_SECONDS,
            created_to_epoch_seconds=None,
            started_epoch_seconds=now,
        )
        self._skew.observe(lookup.skew_seconds, began_seconds=began_seconds)
        return lookup
