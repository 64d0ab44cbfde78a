"""/v1/payment_intents and /v1/charges."""

from collections.abc import Sequence
from typing import Any, Final

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.currencies import check_amount, check_currency
from deploy.stripe_sim.customers import find_customer
from deploy.stripe_sim.errors import ApiError, bad_request, missing_object
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    need_text,
    take_boolean,
    take_choice,
    take_integer,
    take_list,
    take_text,
)
from deploy.stripe_sim.objects import Charge, PaymentIntent, PaymentMethod
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.payment_methods import find_usable, keep
from deploy.stripe_sim.payments import pay
from deploy.stripe_sim.shapes import Json, show_charge, show_payment_intent
from deploy.stripe_sim.simulator import Call

_TEXTS: Final = {
    "description": 1_000,
    "receipt_email": 512,
    "setup_future_usage": 20,
    "statement_descriptor": 22,
    "statement_descriptor_suffix": 22,
    "transfer_group": 500,
}
_ONLY_WITH_CONFIRM: Final = (
    "off_session",
    "error_on_requires_action",
    "mandate",
    "mandate_data",
    "return_url",
)
CREATE_PARAMS: Final = frozenset(
    {
        *_TEXTS,
        *_ONLY_WITH_CONFIRM,
        *("amount", "currency", "customer", "payment_method", "confirm", "metadata", "capture_method"),
        *(
            "confirmation_method",
            "payment_method_types",
            "automatic_payment_methods",
            "payment_method_options",
        ),
        *("use_stripe_sdk", "expand"),
    }
)
CONFIRM_PARAMS: Final = frozenset(
    {*_ONLY_WITH_CONFIRM, "payment_method", "receipt_email", "setup_future_usage", "capture_method"}
    | {"payment_method_options", "use_stripe_sdk", "expand"}
)
CANCEL_PARAMS: Final = frozenset({"cancellation_reason", "expand"})
_REASONS: Final = ("duplicate", "fraudulent", "requested_by_customer", "abandoned")
_CONFIRMABLE: Final = ("requires_payment_method", "requires_confirmation", "requires_action")
_CANCELABLE: Final = (
    "requires_payment_method",
    "requires_capture",
    "requires_confirmation",
    "requires_action",
)


def create_intent(call: Call) -> Json:
    """POST /v1/payment_intents."""
    params = call.params
    confirm = take_boolean(params, "confirm")
    currency_text = need_text(params, "currency")
    amount = check_amount(take_integer(params, "amount"), check_currency(currency_text))
    if not confirm:
        _refuse_without_confirm(params)
    customer_id = take_text(params, "customer")
    if customer_id is not None:
        find_customer(call, customer_id, param="customer", status=400)
    method = _take_method(call, customer_id)
    if confirm and method is None:
        raise _lacks_method(executed=False)
    shelf = call.account.intents
    seq = shelf.next_seq()
    intent_id = call.new_id("pi", seq)
    intent = PaymentIntent(
        id=intent_id,
        seq=seq,
        created=int(call.now),
        amount=amount,
        currency=currency_text.lower(),
        status="requires_payment_method" if method is None else "requires_confirmation",
        client_secret=f"{intent_id}_secret_{call.new_id('s', seq)[2:]}",
        customer=customer_id,
        payment_method=None if method is None else method.id,
        metadata=merge_metadata(params, {}),
        texts=_take_texts(params, method),
        capture_method=take_choice(params, "capture_method", ("automatic", "automatic_async", "manual"))
        or "automatic",
        confirmation_method=take_choice(params, "confirmation_method", ("automatic", "manual"))
        or "automatic",
        payment_method_types=take_list(params, "payment_method_types") or None,
    )
    if (
        method is not None
        and intent.payment_method_types is None
        and behaviour_of(method.documented_id).kind != "card"
    ):
        intent.payment_method_types = ["card", behaviour_of(method.documented_id).kind]
    off_session, on_action = _take_off_session(params), take_boolean(params, "error_on_requires_action")
    shelf.add(intent)
    if method is not None:
        if confirm:
            pay(call, intent, method, off_session=off_session, error_on_requires_action=on_action)
        elif method.id not in call.account.payment_methods.by_id:
            keep(call, method)
    return show_payment_intent(intent)


def confirm_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}/confirm."""
    intent = _find(call, call.ids[0])
    off_session = _take_off_session(call.params)
    on_action = take_boolean(call.params, "error_on_requires_action")
    method = _take_method(call, intent.customer)
    if intent.status not in _CONFIRMABLE:
        raise _unexpected_state(
            intent,
            f"You cannot confirm this PaymentIntent because it has a status of {intent.status}. Only "
            "a PaymentIntent with one of the following statuses may be confirmed: "
            f"{', '.join(_CONFIRMABLE)}.",
        )
    if method is None and intent.payment_method is not None:
        method = call.account.payment_methods.by_id[intent.payment_method]
    if method is None:
        raise _lacks_method(executed=True, intent=intent)
    pay(call, intent, method, off_session=off_session, error_on_requires_action=on_action)
    return show_payment_intent(intent)


def cancel_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}/cancel."""
    intent = _find(call, call.ids[0])
    reason = take_choice(call.params, "cancellation_reason", _REASONS)
    if intent.status not in _CANCELABLE:
        raise _unexpected_state(
            intent,
            f"You cannot cancel this PaymentIntent because it has a status of {intent.status}. Only "
            "a PaymentIntent with one of the following statuses may be canceled: "
            f"{', '.join(_CANCELABLE)}.",
        )
    intent.status, intent.canceled_at, intent.cancellation_reason = "canceled", int(call.now), reason
    intent.next_action = None
    call.account.intents.save(intent)
    return show_payment_intent(intent)


def retrieve_intent(call: Call) -> Json:
    """GET /v1/payment_intents/{id}."""
    return show_payment_intent(_find(call, call.ids[0]))


def list_intents(call: Call) -> Json:
    """GET /v1/payment_intents."""
    shelf = call.account.intents
    customer_id = take_text(call.params, "customer")
    items: Sequence[PaymentIntent] = (
        shelf.in_order if customer_id is None else shelf.by_customer.get(customer_id, [])
    )
    page, has_more = take_page(call.params, shelf, items, "payment_intent")
    return show_list(
        "/v1/payment_intents", [show_payment_intent(intent) for intent in page], has_more=has_more
    )


def retrieve_charge(call: Call) -> Json:
    """GET /v1/charges/{id}."""
    charge = call.account.charges.by_id.get(call.ids[0])
    if charge is None:
        raise missing_object("charge", call.ids[0], param="id")
    return _show_charge(call, charge)


def list_charges(call: Call) -> Json:
    """GET /v1/charges."""
    shelf = call.account.charges
    intent_id, customer_id = take_text(call.params, "payment_intent"), take_text(call.params, "customer")
    if intent_id is not None:
        intent = call.account.intents.by_id.get(intent_id)
        if intent is None:
            raise missing_object("payment_intent", intent_id, param="payment_intent", status=400)
        items: Sequence[Charge] = [shelf.by_id[charge_id] for charge_id in intent.charges]
        items = [charge for charge in items if customer_id in {None, charge.customer}]
    elif customer_id is not None:
        items = shelf.by_customer.get(customer_id, [])
    else:
        items = shelf.in_order
    page, has_more = take_page(call.params, shelf, items, "charge")
    return show_list("/v1/charges", [_show_charge(call, charge) for charge in page], has_more=has_more)


def _show_charge(call: Call, charge: Charge) -> Json:
    return show_charge(charge, call.account.payment_methods.by_id.get(charge.payment_method))


def _find(call: Call, intent_id: str) -> PaymentIntent:
    intent = call.account.intents.by_id.get(intent_id)
    if intent is None:
        raise missing_object("payment_intent", intent_id, param="intent")
    return intent


def _take_method(call: Call, customer_id: str | None) -> PaymentMethod | None:
    method_id = take_text(call.params, "payment_method")
    if method_id is None:
        return None
    method = find_usable(call, method_id)
    if method.customer is not None and method.customer != customer_id:
        message = (
            f"The provided PaymentMethod cannot be used. PaymentMethod {method_id} does not belong to the "
            "Customer of this PaymentIntent. Pass the customer that it is attached to."
        )
        raise bad_request(message, param="payment_method")
    return method


def _take_off_session(params: Params) -> bool:
    return params.get("off_session") in {"one_off", "recurring"} or take_boolean(params, "off_session")


def _take_texts(params: Params, method: PaymentMethod | None) -> dict[str, str] | None:
    texts: dict[str, str] = {}
    for name, characters_max in _TEXTS.items():
        if name in params:
            text = take_text(params, name, characters_max=characters_max)
            if text is not None:
                texts[name] = text
    is_card = method is not None and behaviour_of(method.documented_id).kind == "card"
    if is_card and "statement_descriptor" in texts:
        message = "The `statement_descriptor` parameter is not supported for card charges; use "
        raise bad_request(message + "`statement_descriptor_suffix`.", param="statement_descriptor")
    return texts or None


def _refuse_without_confirm(params: Params) -> None:
    for name in _ONLY_WITH_CONFIRM:
        if name in params:
            message = f"The parameter `{name}` cannot be passed when creating a PaymentIntent unless "
            raise bad_request(
                message + "`confirm` is true.", code="payment_intent_invalid_parameter", param=name
            )


def _lacks_method(*, executed: bool, intent: PaymentIntent | None = None) -> ApiError:
    message = (
        "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update "
        "the PaymentIntent with a payment method and then confirm it again, or confirm it directly with "
        "a payment method."
    )
    extra: dict[str, Any] = {} if intent is None else {"payment_intent": show_payment_intent(intent)}
    code = "payment_intent_unexpected_state"
    return ApiError(400, message, code=code, param="payment_method", executed=executed, **extra)


def _unexpected_state(intent: PaymentIntent, message: str) -> ApiError:
    return ApiError(
        400,
        message,
        code="payment_intent_unexpected_state",
        executed=True,
        headers={"Stripe-Should-Retry": "false"},
        payment_intent=show_payment_intent(intent),
    )
