"""How a PaymentIntent is paid."""

from typing import Any

from deploy.stripe_sim.behaviours import Behaviour, behaviour_of
from deploy.stripe_sim.errors import ApiError, error_url
from deploy.stripe_sim.money import collect
from deploy.stripe_sim.objects import Charge, PaymentIntent, PaymentMethod
from deploy.stripe_sim.payment_methods import keep
from deploy.stripe_sim.search_index import index_intent
from deploy.stripe_sim.shapes import show_payment_intent, show_payment_method
from deploy.stripe_sim.simulator import Cause

# docs.stripe.com/payments/place-a-hold-on-a-payment-method: most card authorizations last seven days.
AUTHORIZATION_SECONDS = 7 * 86_400

_AUTHENTICATE = Behaviour(
    code="authentication_required",
    decline_code="authentication_required",
    message="Your card was declined. This transaction requires authentication.",
)
_NOT_HANDLED = Behaviour(
    code="authentication_required",
    decline_code="authentication_not_handled",
    message="This payment required an authentication action, but `error_on_requires_action` was set.",
)
_NOT_AUTHENTICATED = Behaviour(
    code="payment_intent_authentication_failure",
    message="The provided PaymentMethod has failed authentication. You can provide payment_method_data or "
    "a new PaymentMethod to attempt to fulfill this PaymentIntent again.",
)


def pay(
    cause: Cause,
    intent: PaymentIntent,
    method: PaymentMethod,
    *,
    off_session: bool,
    error_on_requires_action: bool,
) -> None:
    """Try to pay: changes the PaymentIntent, and raises ApiError 402 for a decline."""
    behaviour = behaviour_of(method.documented_id)
    cause.simulator.search.note(cause.at, intent.id, index_intent(intent))
    intent.confirms += 1
    intent.payment_method, intent.next_action = method.id, None
    if behaviour.declines_first or method.id not in cause.account.payment_methods.by_id:
        method.confirms += 1
        keep(cause.account, method)
    if behaviour.authentication == "always" and off_session:
        _decline(cause, intent, method, _AUTHENTICATE)
    elif behaviour.authentication != "never" and not off_session:
        if error_on_requires_action:
            _decline(cause, intent, method, _NOT_HANDLED)
        _ask_for_authentication(intent)
        cause.account.intents.save(intent)
        cause.announce("payment_intent.requires_action", intent)
    else:
        _authorize(cause, intent, method, behaviour)


def finish_authentication(cause: Cause, intent: PaymentIntent, *, succeeded: bool) -> None:
    """Let the bank's customer pass or fail the authentication that a PaymentIntent waits for."""
    method = cause.account.payment_methods.by_id[intent.payment_method or ""]
    cause.simulator.search.note(cause.at, intent.id, index_intent(intent))
    intent.next_action = None
    try:
        if succeeded:
            _authorize(cause, intent, method, behaviour_of(method.documented_id))
        else:
            _fail(cause, intent, method, _NOT_AUTHENTICATED, kind="invalid_request_error", charged=False)
    except ApiError:
        # The decline is on the PaymentIntent; there is no request that waits for it.
        return


def settle_debit(cause: Cause, intent: PaymentIntent) -> None:
    """Decide a bank debit whose time has come."""
    charge = cause.account.charges.by_id[intent.charges[-1]]
    method = cause.account.payment_methods.by_id[charge.payment_method]
    behaviour = behaviour_of(method.documented_id)
    cause.simulator.search.note(cause.at, intent.id, index_intent(intent))
    if behaviour.decline_code is None:
        charge.status, intent.status = "succeeded", "succeeded"
        collect(cause, charge, behaviour)
        cause.account.charges.save(charge)
        cause.account.intents.save(intent)
        cause.announce("charge.succeeded", charge)
        cause.announce("payment_intent.succeeded", intent)
        return
    failure = describe_failure(behaviour, charge.id)
    charge.status, charge.failure = "failed", failure
    intent.status, intent.payment_method = "requires_payment_method", None
    intent.last_payment_error = {**failure, "payment_method": show_payment_method(method)}
    cause.account.charges.save(charge)
    cause.account.intents.save(intent)
    cause.announce("charge.failed", charge)
    cause.announce("payment_intent.payment_failed", intent)


def _authorize(cause: Cause, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    if behaviour.outcome == "process":
        _start_debit(cause, intent, method, behaviour)
    elif behaviour.outcome == "decline" or 0 < method.confirms <= behaviour.declines_first:
        _decline(cause, intent, method, behaviour)
    else:
        _succeed(cause, intent, method, behaviour)


def _succeed(cause: Cause, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    captured = intent.capture_method != "manual"
    charge = _make_charge(cause, intent, method, status="succeeded", captured=captured)
    intent.status = "succeeded" if captured else "requires_capture"
    intent.last_payment_error = None
    if captured:
        collect(cause, charge, behaviour)
    else:
        intent.settle_at = cause.at + AUTHORIZATION_SECONDS
        cause.schedule(intent)
    _file_charge(cause, intent, charge)
    cause.announce("charge.succeeded", charge)
    cause.announce(
        "payment_intent.succeeded" if captured else "payment_intent.amount_capturable_updated", intent
    )


def _start_debit(cause: Cause, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    charge = _make_charge(cause, intent, method, status="pending")
    intent.status, intent.last_payment_error = "processing", None
    intent.settle_at = cause.at + behaviour.settle_seconds
    cause.schedule(intent)
    _file_charge(cause, intent, charge)
    cause.announce("charge.pending", charge)
    cause.announce("payment_intent.processing", intent)


def _ask_for_authentication(intent: PaymentIntent) -> None:
    intent.status = "requires_action"
    intent.next_action = {
        "type": "use_stripe_sdk",
        "use_stripe_sdk": {"type": "three_d_secure_redirect", "stripe_js": "", "source": ""},
    }


def _decline(cause: Cause, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    _fail(cause, intent, method, behaviour, kind="card_error", charged=True)


def _fail(
    cause: Cause,
    intent: PaymentIntent,
    method: PaymentMethod,
    behaviour: Behaviour,
    *,
    kind: str,
    charged: bool,
) -> None:
    charge_id = cause.new_id("ch", cause.account.charges.next_seq()) if charged else None
    failure = describe_failure(behaviour, charge_id, kind=kind)
    charge = _make_charge(cause, intent, method, status="failed", failure=failure) if charged else None
    shown_method = show_payment_method(method)
    # As at Stripe, a failed payment method leaves the PaymentIntent: the next confirm must name one.
    intent.status, intent.payment_method = "requires_payment_method", None
    intent.last_payment_error = {**failure, "payment_method": shown_method}
    _file_charge(cause, intent, charge)
    if charge is not None:
        cause.announce("charge.failed", charge)
    cause.announce("payment_intent.payment_failed", intent)
    confirms_max = cause.simulator.settings.confirms_max
    if confirms_max and intent.confirms >= confirms_max:
        intent.status, intent.canceled_at = "canceled", int(cause.at)
        intent.cancellation_reason = "automatic"
        cause.account.intents.save(intent)
        cause.announce("payment_intent.canceled", intent)
    fields = {
        name: value for name, value in failure.items() if name not in {"type", "message", "code", "doc_url"}
    }
    raise ApiError(
        402,
        behaviour.message,
        kind="card_error",
        code=behaviour.code,
        executed=True,
        headers={"Stripe-Should-Retry": "false"},
        payment_intent=show_payment_intent(intent),
        payment_method=shown_method,
        **fields,
    )


def describe_failure(
    behaviour: Behaviour, charge_id: str | None, *, kind: str | None = None
) -> dict[str, Any]:
    """Return a failed attempt as `last_payment_error` shows it."""
    failure = {
        "advice_code": behaviour.advice_code,
        "charge": charge_id,
        "code": behaviour.code,
        "decline_code": behaviour.decline_code,
        "doc_url": error_url(behaviour.code),
        "message": behaviour.message,
        "network_decline_code": behaviour.network_decline_code,
        "type": kind or ("card_error" if behaviour.kind == "card" else "invalid_request_error"),
    }
    return {name: value for name, value in failure.items() if value is not None}


def _make_charge(
    cause: Cause,
    intent: PaymentIntent,
    method: PaymentMethod,
    *,
    status: str,
    captured: bool = True,
    failure: dict[str, Any] | None = None,
) -> Charge:
    seq = cause.account.charges.next_seq()
    texts = dict(intent.texts or {})
    return Charge(
        id=cause.new_id("ch", seq),
        seq=seq,
        created=int(cause.at),
        amount=intent.amount,
        currency=intent.currency,
        status=status,
        payment_intent=intent.id,
        payment_method=method.id,
        customer=intent.customer,
        metadata=dict(intent.metadata),
        captured=captured,
        failure=failure,
        description=texts.pop("description", None),
        texts=texts or None,
        hashes=intent.hashes,
    )


def _file_charge(cause: Cause, intent: PaymentIntent, charge: Charge | None) -> None:
    if charge is not None:
        cause.account.charges.add(charge)
        intent.charges.append(charge.id)
    cause.account.intents.save(intent)
