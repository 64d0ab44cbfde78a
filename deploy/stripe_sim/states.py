"""What a PaymentIntent's status allows, and the error for what it does not."""

from typing import Final

from deploy.stripe_sim.errors import ApiError, missing_object
from deploy.stripe_sim.objects import PaymentIntent
from deploy.stripe_sim.shapes import show_payment_intent
from deploy.stripe_sim.store import AccountData

CONFIRMABLE: Final = ("requires_payment_method", "requires_confirmation", "requires_action")
CANCELABLE: Final = (
    "requires_payment_method",
    "requires_capture",
    "requires_confirmation",
    "requires_action",
)


def find_intent(account: AccountData, intent_id: str) -> PaymentIntent:
    """Return a PaymentIntent of the account, or raise `resource_missing`."""
    intent = account.intents.by_id.get(intent_id)
    if intent is None:
        raise missing_object("payment_intent", intent_id, param="intent")
    return intent


def unexpected_state(intent: PaymentIntent, message: str) -> ApiError:
    """Return `payment_intent_unexpected_state`, which carries the PaymentIntent."""
    return ApiError(
        400,
        message,
        code="payment_intent_unexpected_state",
        executed=True,
        headers={"Stripe-Should-Retry": "false"},
        payment_intent=show_payment_intent(intent),
    )
