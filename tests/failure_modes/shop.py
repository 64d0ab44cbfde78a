"""A shop with amounts due, a way to Stripe, and records of its own. Each unsafe client is run by one."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import stripe

from deploy.stripe_sim.testing import RunningSim
from tests.failure_modes.outcome import Outcome

API_KEY = "sk_test_4Synthetic8Key0Of15Our23Tests42"
CREATES = "^/v1/payment_intents$"
NOW = 1_930_089_600.0  # 2031-03-01T00:00:00Z


@dataclass(frozen=True, slots=True)
class Due:
    """One amount that one customer owes, once."""

    invoice: str
    customer: str
    email: str
    card: str
    amount: int = 4_200

    @property
    def params(self) -> Any:
        """What the SDK is given to charge it in one call."""
        return {
            "amount": self.amount,
            "currency": "usd",
            "customer": self.customer,
            "payment_method": self.card,
            "payment_method_types": ["card"],
            "confirm": True,
            "off_session": True,
            "metadata": {"invoice": self.invoice},
        }

    @property
    def form(self) -> dict[str, str]:
        """The same as form fields, for clients without the SDK."""
        return {
            "amount": str(self.amount),
            "currency": "usd",
            "customer": self.customer,
            "payment_method": self.card,
            "payment_method_types[]": "card",
            "confirm": "true",
            "off_session": "true",
            "metadata[invoice]": self.invoice,
        }


@dataclass(slots=True)
class Shop:
    """`paid` is what the shop believes: one entry per payment that it has counted."""

    sim: RunningSim
    dues: list[Due] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where Stripe is."""
        return self.sim.url

    @property
    def charges_url(self) -> str:
        """Where a PaymentIntent is made and confirmed."""
        return f"{self.url}/v1/payment_intents"

    @property
    def headers(self) -> dict[str, str]:
        """What each request carries that is not made by the SDK."""
        return {"Authorization": f"Bearer {API_KEY}"}

    def owe(self, number: int = 1, *, customer: int | None = None, card: str = "pm_card_visa") -> Due:
        """Add an amount that is due; each is of a customer of its own unless one is named."""
        who = customer or number
        due = Due(f"in_{number}", f"cus_{who}", f"customer-{who}@example.com", f"{card}_{who}")
        self.sim.seed(due.customer, due.card)
        self.dues.append(due)
        return due

    def client(
        self, http_client: stripe.HTTPClient | None = None, *, retries: int = 0
    ) -> stripe.StripeClient:
        """Return the SDK; its own retries are off where something around it retries."""
        return stripe.StripeClient(
            API_KEY,
            base_addresses={"api": self.url},
            http_client=http_client or stripe.RequestsClient(),
            max_network_retries=retries,
        )

    def fault(self, kind: str, *, place: str = "before", only: int = 1, **effect: Any) -> dict[str, Any]:
        """Return one fault of a plan, on the nth request that charges."""
        match = {"path": CREATES, "only": [only]}
        return {"name": f"{kind} {only}", "match": match, "place": place, "effect": {"kind": kind, **effect}}

    def lose_the_first_answer(self) -> None:
        """Let Stripe book the first charge and the connection close before the answer is on its way."""
        self.sim.set_faults(self.fault("drop", place="after"))

    async def outcome(self) -> Outcome:
        """Count by the simulator's book, once no request is running any more."""
        async with asyncio.timeout(10):
            while any(request.fate == "running" for request in self.sim.requests):  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.01)
        return Outcome(due=len(self.dues), charged=len(self.sim.movements), recorded=len(self.paid))
