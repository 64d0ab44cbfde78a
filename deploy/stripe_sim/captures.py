"""Capturing what was authorized, and letting it go."""

from typing import Final

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.forms import merge_metadata, take_boolean, take_integer, take_text
from deploy.stripe_sim.money import collect
from deploy.stripe_sim.objects import Charge, PaymentIntent
from deploy.stripe_sim.search_index import index_intent
from deploy.stripe_sim.shapes import Json, show_payment_intent
from deploy.stripe_sim.simulator import Call, Cause
from deploy.stripe_sim.states import find_intent, unexpected_state

CAPTURE_PARAMS: Final = frozenset(
    {"amount_to_capture", "application_fee_amount", "final_capture", "metadata", "statement_descriptor"}
    | {"statement_descriptor_suffix", "expand"}
)


def capture_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}/capture."""
    intent = find_intent(call.account, call.ids[0])
    amount = take_integer(call.params, "amount_to_capture")
    metadata = merge_metadata(call.params, intent.metadata)
    suffix = take_text(call.params, "statement_descriptor_suffix", characters_max=22)
    take_boolean(call.params, "final_capture")
    if intent.status != "requires_capture":
        raise unexpected_state(
            intent,
            f"This PaymentIntent could not be captured because it has a status of {intent.status}. Only "
            "a PaymentIntent with one of the following statuses may be captured: requires_capture.",
        )
    if amount is not None and not 1 <= amount <= intent.amount:
        raise bad_request(
            "The amount to capture must be greater than zero and at most the authorized amount.",
            code="amount_too_large" if amount > intent.amount else "parameter_invalid_integer",
            param="amount_to_capture",
        )
    intent.metadata = metadata
    if suffix is not None:
        intent.texts = {**(intent.texts or {}), "statement_descriptor_suffix": suffix}
    capture(call.cause(), intent, amount)
    return show_payment_intent(intent)


def capture(cause: Cause, intent: PaymentIntent, amount: int | None) -> None:
    """Take an authorized amount, or part of it; what is left is released for good."""
    cause.simulator.search.note(cause.at, intent.id, index_intent(intent))
    charge = cause.account.charges.by_id[intent.charges[-1]]
    before = {"amount_captured": 0, "captured": False}
    charge.captured = True
    charge.amount_captured = intent.received = intent.amount if amount is None else amount
    charge.amount_refunded = charge.amount - charge.amount_captured
    intent.status, intent.settle_at = "succeeded", None
    collect(cause, charge, behaviour_of(_documented_id(cause, charge)))
    cause.account.charges.save(charge)
    cause.account.intents.save(intent)
    cause.announce("charge.captured", charge, before)
    cause.announce("payment_intent.succeeded", intent)


def release(cause: Cause, intent: PaymentIntent, reason: str | None) -> None:
    """Cancel a PaymentIntent; what was authorized goes back uncaptured."""
    cause.simulator.search.note(cause.at, intent.id, index_intent(intent))
    if intent.status == "requires_capture":
        charge = cause.account.charges.by_id[intent.charges[-1]]
        charge.amount_refunded = charge.amount
        cause.account.charges.save(charge)
        expired = reason == "automatic"
        cause.announce("charge.expired" if expired else "charge.refunded", charge)
    intent.status, intent.canceled_at, intent.cancellation_reason = "canceled", int(cause.at), reason
    intent.next_action = intent.settle_at = None
    cause.account.intents.save(intent)
    cause.announce("payment_intent.canceled", intent)


def expire_authorization(cause: Cause, intent: PaymentIntent) -> None:
    """Let an authorization lapse that nobody captured."""
    release(cause, intent, "automatic")


def capture_charge(call: Call, charge: Charge) -> PaymentIntent:
    """Capture through the charge, as older clients do; returns the PaymentIntent behind it."""
    intent = find_intent(call.account, charge.payment_intent)
    if charge.captured or charge.status != "succeeded":
        message = f"Charge {charge.id} has already been captured."
        raise ApiError(400, message, code="charge_already_captured", executed=True)
    amount = take_integer(call.params, "amount")
    if amount is not None and not 1 <= amount <= charge.amount:
        raise bad_request("The amount to capture exceeds what was authorized.", param="amount")
    capture(call.cause(), intent, amount)
    return intent


def _documented_id(cause: Cause, charge: Charge) -> str | None:
    return cause.account.payment_methods.by_id[charge.payment_method].documented_id
