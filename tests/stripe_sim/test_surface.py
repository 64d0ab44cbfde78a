"""Headers, access, shapes, and what an unknown URL gets."""

import base64
import email.utils
from typing import Any, get_args

import aiohttp
import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create, error_of, headers_of
from tests.stripe_sim.conftest import open_client


async def test_headers(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Every answer has a request id, the version asked for, the simulated date, and the key it came with."""
    headers = headers_of(await create(client, "k1"))
    assert headers["request-id"].startswith("req_")
    assert headers["original-request"] == headers["request-id"]
    assert headers["idempotency-key"] == "k1"
    assert headers["stripe-version"] == stripe.api_version
    date = email.utils.parsedate_to_datetime(headers["date"])
    assert date.timestamp() == int(sim.clock.now())


async def test_api_keys(sim: RunningSim) -> None:
    """Test keys are accepted, others are not; a pinned key shuts out the rest."""
    for api_key, accepted in (("sk_test_a", True), ("rk_test_b", True), ("sk_live_c", False)):
        async with open_client(sim.url, api_key=api_key) as client:
            if accepted:
                assert (await client.v1.accounts.retrieve_current_async()).id == "acct_sim"
                continue
            with pytest.raises(stripe.AuthenticationError) as caught:
                await client.v1.accounts.retrieve_current_async()
            assert error_of(caught.value)["type"] == "invalid_request_error"
    sim.change(accept_keys=["sk_test_b"])
    async with open_client(sim.url, api_key="sk_test_a") as client:
        with pytest.raises(stripe.AuthenticationError):
            await create(client)


async def test_raw_requests(sim: RunningSim) -> None:
    """Basic auth works as with curl -u; no key is a 401, an unknown URL a 404, both in Stripe's shape."""
    basic = base64.b64encode(b"sk_test_a:").decode()
    async with aiohttp.ClientSession() as session:
        async with session.get(
            f"{sim.url}/v1/account", headers={"Authorization": f"Basic {basic}"}
        ) as answer:
            assert answer.status == 200
        async with session.get(f"{sim.url}/v1/account") as answer:
            assert answer.status == 401
            assert "did not provide an API key" in (await answer.json())["error"]["message"]
        headers = {"Authorization": "Bearer sk_test_a"}
        async with session.get(f"{sim.url}/v1/unicorns", headers=headers) as answer:
            assert answer.status == 404
            assert (await answer.json())["error"]["type"] == "invalid_request_error"
        async with session.get(f"{sim.url}/_sim/unicorns") as answer:
            assert answer.status == 404


async def test_malformed_account_is_forbidden(client: stripe.StripeClient) -> None:
    """A Stripe-Account that is no account id is a 403."""
    with pytest.raises(stripe.PermissionError):
        await create(client, account="shop")


def _check_shape(shown: dict[str, Any], kind: type) -> None:
    hints = {name: hint for name, hint in vars(kind)["__annotations__"].items() if name != "OBJECT_NAME"}
    unknown = set(shown) - set(hints)
    assert not unknown, f"{kind.__name__} has no {unknown}"
    for name, hint in hints.items():
        optional = type(None) in get_args(hint)
        if name not in shown:
            assert optional, f"{kind.__name__}.{name} is missing"
        elif shown[name] is None:
            assert optional, f"{kind.__name__}.{name} is null"
        elif isinstance(hint, type) and hint in {int, str, bool}:
            assert type(shown[name]) is hint, f"{kind.__name__}.{name} is {shown[name]!r}"


async def test_shapes_match_the_sdk(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Each object has every field that the SDK's annotations require, and none that they do not know."""
    sim.seed("cus_1", "pm_card_chargeCustomerFail_1", "pm_usBankAccount_1", "pm_sepaDebit_1")
    intent = await create(client)
    shown: list[stripe.StripeObject] = [intent, await confirm(client, intent.id)]
    declined = await create(client, payment_method="pm_card_chargeCustomerFail_1")
    with pytest.raises(stripe.CardError):
        await confirm(client, declined.id)
    shown.append(await client.v1.payment_intents.retrieve_async(declined.id))
    shown.append(await create(client, confirm=True, payment_method="pm_usBankAccount_1"))
    shown += (await client.v1.charges.list_async()).data
    shown += (await client.v1.payment_methods.list_async({"customer": "cus_1"})).data
    shown.append(await client.v1.customers.retrieve_async("cus_1"))
    shown.append(await client.v1.accounts.retrieve_current_async())
    assert len(shown) == 13
    for item in shown:
        _check_shape(item.to_dict(), type(item))
