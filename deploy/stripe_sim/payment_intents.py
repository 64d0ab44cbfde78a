"""/v1/payment_intents: create, update, confirm, cancel, retrieve and list."""

from collections.abc import Sequence
from typing import Any, Final

from deploy.stripe_sim.behaviours import behaviour_of
from deploy.stripe_sim.captures import release
from deploy.stripe_sim.currencies import check_amount, check_currency
from deploy.stripe_sim.customers import find_customer
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.forms import (
    Params,
    merge_metadata,
    need_text,
    refuse_unknown,
    take_boolean,
    take_choice,
    take_hash,
    take_integer,
    take_list,
    take_text,
)
from deploy.stripe_sim.hashes import METHOD_OPTIONS, SHIPPING, take_hashes
from deploy.stripe_sim.objects import PaymentIntent, PaymentMethod
from deploy.stripe_sim.paging import show_list, take_page
from deploy.stripe_sim.payment_methods import find_usable, keep
from deploy.stripe_sim.payments import pay
from deploy.stripe_sim.search_index import index_intent
from deploy.stripe_sim.shapes import Json, show_payment_intent
from deploy.stripe_sim.simulator import Call
from deploy.stripe_sim.states import CANCELABLE, CONFIRMABLE, find_intent, unexpected_state

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
_LAYOUTS: Final = {"shipping": SHIPPING, "payment_method_options": METHOD_OPTIONS}
CREATE_PARAMS: Final = frozenset(
    {
        *_TEXTS,
        *_LAYOUTS,
        *_ONLY_WITH_CONFIRM,
        *("amount", "currency", "customer", "payment_method", "confirm", "metadata", "capture_method"),
        *("confirmation_method", "payment_method_types", "automatic_payment_methods"),
        *("use_stripe_sdk", "expand"),
    }
)
CONFIRM_PARAMS: Final = frozenset(
    {*_ONLY_WITH_CONFIRM, *_LAYOUTS, "payment_method", "receipt_email", "setup_future_usage"}
    | {"capture_method", "use_stripe_sdk", "expand"}
)
CANCEL_PARAMS: Final = frozenset({"cancellation_reason", "expand"})
UPDATE_PARAMS: Final = frozenset(
    {*_TEXTS, *_LAYOUTS, "amount", "currency", "customer", "payment_method", "metadata", "capture_method"}
    | {"payment_method_types", "expand"}
)
_REASONS: Final = ("duplicate", "fraudulent", "requested_by_customer", "abandoned")
_AUTOMATIC: Final = frozenset({"enabled", "allow_redirects"})
_CAPTURES: Final = ("automatic", "automatic_async", "manual")
# What a payment that is no longer open can still change.
_ALWAYS_CHANGEABLE: Final = frozenset(
    {"metadata", "description", "receipt_email", "transfer_group", "expand"}
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
    cause, shelf = call.cause(), call.account.intents
    seq = shelf.next_seq()
    intent_id = call.new_id("pi", seq)
    intent = PaymentIntent(
        id=intent_id,
        seq=seq,
        created=int(cause.at),
        amount=amount,
        currency=currency_text.lower(),
        status="requires_payment_method" if method is None else "requires_confirmation",
        client_secret=f"{intent_id}_secret_{call.new_id('s', seq)[2:]}",
        customer=customer_id,
        payment_method=None if method is None else method.id,
        metadata=merge_metadata(params, {}),
        texts=_take_texts(params, method, None),
        capture_method=take_choice(params, "capture_method", _CAPTURES) or "automatic",
        confirmation_method=take_choice(params, "confirmation_method", ("automatic", "manual"))
        or "automatic",
        payment_method_types=take_list(params, "payment_method_types") or None,
        hashes=_take_automatic(params, take_hashes(params, _LAYOUTS, None)),
    )
    _add_method_type(intent, method)
    off_session, on_action = _take_off_session(params), take_boolean(params, "error_on_requires_action")
    shelf.add(intent)
    call.simulator.search.note(cause.at, intent.id, None)
    if method is not None and method.id not in call.account.payment_methods.by_id:
        keep(call.account, method)
    cause.announce("payment_intent.created", intent)
    if method is not None and confirm:
        pay(cause, intent, method, off_session=off_session, error_on_requires_action=on_action)
    return show_payment_intent(intent)


def update_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}."""
    params, intent = call.params, find_intent(call.account, call.ids[0])
    currency_text = take_text(params, "currency")
    currency = intent.currency if currency_text is None else check_currency(currency_text)
    given = take_integer(params, "amount") if "amount" in params else intent.amount
    amount = check_amount(given, currency)
    customer_id = take_text(params, "customer") or intent.customer
    if customer_id is not None and customer_id != intent.customer:
        find_customer(call, customer_id, param="customer", status=400)
    method, metadata = _take_method(call, customer_id), merge_metadata(params, intent.metadata)
    texts, hashes = _take_texts(params, method, intent.texts), take_hashes(params, _LAYOUTS, intent.hashes)
    capture_method = take_choice(params, "capture_method", _CAPTURES) or intent.capture_method
    types = take_list(params, "payment_method_types") or intent.payment_method_types
    if intent.status not in CONFIRMABLE and (closed := sorted(params.keys() - _ALWAYS_CHANGEABLE)):
        raise unexpected_state(
            intent,
            f"This PaymentIntent's {closed[0]} could not be updated because it has a status of "
            f"{intent.status}. You may only update the {closed[0]} of a PaymentIntent with one of the "
            f"following statuses: {', '.join(CONFIRMABLE)}.",
        )
    cause = call.cause()
    call.simulator.search.note(cause.at, intent.id, index_intent(intent))
    moves = customer_id != intent.customer
    if moves and intent.customer is not None:
        call.account.intents.unindex_customer(intent, intent.customer)
    intent.amount, intent.currency, intent.customer = amount, currency, customer_id
    intent.metadata, intent.texts, intent.hashes = metadata, texts, hashes
    intent.capture_method, intent.payment_method_types = capture_method, types
    if method is not None:
        keep(call.account, method)
        intent.payment_method, intent.next_action = method.id, None
        intent.status = "requires_confirmation"
        _add_method_type(intent, method)
    call.account.intents.save(intent)
    if moves:
        call.account.intents.index_customer(intent)
    return show_payment_intent(intent)


def confirm_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}/confirm."""
    intent = find_intent(call.account, call.ids[0])
    off_session = _take_off_session(call.params)
    on_action = take_boolean(call.params, "error_on_requires_action")
    hashes = take_hashes(call.params, _LAYOUTS, intent.hashes)
    texts = _take_texts(call.params, None, intent.texts)
    capture_method = take_choice(call.params, "capture_method", _CAPTURES) or intent.capture_method
    method = _take_method(call, intent.customer)
    if intent.status not in CONFIRMABLE:
        raise unexpected_state(
            intent,
            f"You cannot confirm this PaymentIntent because it has a status of {intent.status}. Only "
            "a PaymentIntent with one of the following statuses may be confirmed: "
            f"{', '.join(CONFIRMABLE)}.",
        )
    if method is None and intent.payment_method is not None:
        method = call.account.payment_methods.by_id[intent.payment_method]
    if method is None:
        raise _lacks_method(executed=True, intent=intent)
    intent.texts, intent.hashes, intent.capture_method = texts, hashes, capture_method
    pay(call.cause(), intent, method, off_session=off_session, error_on_requires_action=on_action)
    return show_payment_intent(intent)


def cancel_intent(call: Call) -> Json:
    """POST /v1/payment_intents/{id}/cancel."""
    intent = find_intent(call.account, call.ids[0])
    reason = take_choice(call.params, "cancellation_reason", _REASONS)
    if intent.status not in CANCELABLE:
        raise unexpected_state(
            intent,
            f"You cannot cancel this PaymentIntent because it has a status of {intent.status}. Only "
            "a PaymentIntent with one of the following statuses may be canceled: "
            f"{', '.join(CANCELABLE)}.",
        )
    release(call.cause(), intent, reason)
    return show_payment_intent(intent)


def retrieve_intent(call: Call) -> Json:
    """GET /v1/payment_intents/{id}."""
    return show_payment_intent(find_intent(call.account, call.ids[0]))


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


def _take_texts(
    params: Params, method: PaymentMethod | None, before: dict[str, str] | None
) -> dict[str, str] | None:
    texts = dict(before or {})
    for name, characters_max in _TEXTS.items():
        if name in params:
            text = take_text(params, name, characters_max=characters_max)
            if text is not None:
                texts[name] = text
            else:
                texts.pop(name, None)
    is_card = method is not None and behaviour_of(method.documented_id).kind == "card"
    if is_card and "statement_descriptor" in texts:
        message = "The `statement_descriptor` parameter is not supported for card charges; use "
        raise bad_request(message + "`statement_descriptor_suffix`.", param="statement_descriptor")
    return texts or None


def _take_automatic(params: Params, hashes: dict[str, Any] | None) -> dict[str, Any] | None:
    given = take_hash(params, "automatic_payment_methods")
    refuse_unknown(given, _AUTOMATIC, inside="automatic_payment_methods")
    if not given:
        return hashes
    redirects = take_choice(given, "allow_redirects", ("always", "never")) or "always"
    automatic = {"allow_redirects": redirects, "enabled": take_boolean(given, "enabled")}
    return {**(hashes or {}), "automatic_payment_methods": automatic}


def _add_method_type(intent: PaymentIntent, method: PaymentMethod | None) -> None:
    if method is None or intent.payment_method_types is not None:
        return
    kind = behaviour_of(method.documented_id).kind
    if kind != "card":
        intent.payment_method_types = ["card", kind]


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
