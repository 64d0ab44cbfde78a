"""What each endpoint accepts, held against the SDK's own lists of parameters."""

from typing import Any, get_args

import pytest
import stripe
from stripe.params import WebhookEndpointCreateParams

from deploy.stripe_sim.event_types import EVENT_TYPES
from deploy.stripe_sim.routes import ENDPOINTS
from deploy.stripe_sim.unmodelled import UNMODELLED
from tests.stripe_sim.calls import create
from tests.stripe_sim.sdk_params import params_of_sdk

# Accepted for clients of older API versions, whose SDKs still send it.
OLDER = {"payment_method_types"}


@pytest.mark.parametrize("pattern", [pattern for pattern, _, _ in ENDPOINTS if pattern != "GET account"])
def test_every_parameter_is_modelled_or_named_as_missing(pattern: str) -> None:
    """What an endpoint takes and what it is known not to model are together what the SDK can send."""
    taken = {entry: params for entry, _, params in ENDPOINTS}[pattern]
    known = params_of_sdk(pattern)
    assert known is not None
    assert (taken - OLDER) | UNMODELLED.get(pattern, frozenset()) == known


def test_event_types_are_those_of_the_sdk() -> None:
    """An endpoint can listen to exactly the events that the SDK names."""
    hint = WebhookEndpointCreateParams.__annotations__["enabled_events"]
    names: set[str] = set()
    waiting = [hint]
    while waiting:
        current = waiting.pop()
        if hasattr(current, "__forward_arg__"):
            names |= {name for name in _quoted(current.__forward_arg__) if name != "*"}
        for argument in get_args(current):
            waiting.append(argument)
            if isinstance(argument, str) and argument != "*":
                names.add(argument)
    assert names == set(EVENT_TYPES)


async def test_a_gap_is_told_apart_from_a_mistake(client: stripe.StripeClient) -> None:
    """A parameter that Stripe has and the simulator lacks is refused in other words than a typing error."""
    with pytest.raises(stripe.InvalidRequestError, match="this simulator does not"):
        await create(client, transfer_data={"destination": "acct_other"})
    with pytest.raises(stripe.InvalidRequestError, match="Received unknown parameter: transfer_date"):
        await create(client, transfer_date="tomorrow")


@pytest.mark.parametrize(
    "params",
    [
        {"shipping": {"nmae": "x"}},
        {"automatic_payment_methods": {"enabeld": True}},
        {"payment_method_options": {"card": {"surprise": 1}}},
        {"payment_method_options": {"cheque": {}, "card": "x"}},
    ],
)
async def test_unknown_parameters_inside_hashes(client: stripe.StripeClient, params: dict[str, Any]) -> None:
    """A parameter that does not exist is refused at any depth."""
    with pytest.raises(stripe.InvalidRequestError):
        await create(client, **params)


async def test_a_wrong_expand_is_refused_before_anything_happens(client: stripe.StripeClient) -> None:
    """What cannot be expanded is a 400, and no payment was made."""
    for wrong in ("amount", "latest_charge.customer.surprise", "data.customer"):
        with pytest.raises(stripe.InvalidRequestError, match="cannot be expanded"):
            await create(client, confirm=True, expand=[wrong])
    assert (await client.v1.payment_intents.list_async()).data == []


def _quoted(text: str) -> list[str]:
    return [part for part in text.split('"')[1::2] if "." in part] or [
        part for part in text.split("'")[1::2] if "." in part
    ]
