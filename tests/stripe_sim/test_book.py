"""The book: money moved, and double charges by name."""

import stripe

from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import create


async def test_double_charges_are_named(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Two successes for one metadata identity are a double charge; two identities of one customer are not."""
    for identity in ("a", "b", "a"):
        await create(client, confirm=True, metadata={"identity": identity})
    await create(client, metadata={"identity": "c"})
    summary = sim.summary("identity")
    assert summary["requests"] == 4
    assert summary["posts"] == 4
    assert summary["payment_intents"] == 4
    assert summary["succeeded"] == 3
    assert summary["money_moved"] == {"usd": 6_000}
    assert summary["customers_charged"] == 1
    assert summary["identities"] == 2
    (double,) = summary["double_charges"]
    assert (double["identity"], double["amount"], len(double["payment_intents"])) == ("a", 4_000, 2)


async def test_one_identity_in_two_accounts_is_no_double_charge(
    sim: RunningSim, client: stripe.StripeClient
) -> None:
    """Accounts are books of their own."""
    sim.seed("cus_1", "pm_card_visa_1", account="acct_other")
    await create(client, confirm=True, metadata={"identity": "a"})
    await create(client, confirm=True, metadata={"identity": "a"}, account="acct_other")
    assert sim.summary("identity")["double_charges"] == []
    assert len(sim.movements) == 2
