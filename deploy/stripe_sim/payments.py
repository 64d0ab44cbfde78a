"""How a PaymentIntent is paid: the one place where money moves."""

from typing import Any

from deploy.stripe_sim.behaviours import Behaviour, behaviour_of
from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.objects import Charge, PaymentIntent, PaymentMethod
from deploy.stripe_sim.payment_methods import keep
from deploy.stripe_sim.shapes import show_payment_intent, show_payment_method
from deploy.stripe_sim.simulator import Call, Simulator
from deploy.stripe_sim.store import AccountData

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


def pay(
    call: Call,
    intent: PaymentIntent,
    method: PaymentMethod,
    *,
    off_session: bool,
    error_on_requires_action: bool,
) -> None:
    """Try to pay: changes the PaymentIntent, and raises ApiError 402 for a decline."""
    behaviour = behaviour_of(method.documented_id)
    intent.confirms += 1
    method.confirms += 1
    intent.payment_method, intent.next_action = method.id, None
    keep(call, method)
    if behaviour.authentication == "always" and off_session:
        _decline(call, intent, method, _AUTHENTICATE)
    elif behaviour.authentication != "never" and not off_session:
        if error_on_requires_action:
            _decline(call, intent, method, _NOT_HANDLED)
        _ask_for_authentication(intent)
    elif behaviour.outcome == "process":
        _start_debit(call, intent, method, behaviour)
    elif behaviour.outcome == "decline" or method.confirms <= behaviour.declines_first:
        _decline(call, intent, method, behaviour)
    else:
        _succeed(call, intent, method)
    call.account.intents.save(intent)


def settle_due(simulator: Simulator) -> None:
    """Decide every bank debit whose time has come, each at its own time."""
    for account, intent in simulator.take_due():
        charge = account.charges.by_id[intent.charges[-1]]
        method = account.payment_methods.by_id[charge.payment_method]
        behaviour = behaviour_of(method.documented_id)
        at, intent.settle_at = intent.settle_at or 0.0, None
        if behaviour.decline_code is None:
            charge.status, intent.status = "succeeded", "succeeded"
            _book(simulator, account, charge, at=at, request=0)
        else:
            failure = _describe_failure(behaviour, charge.id)
            charge.status, charge.failure = "failed", failure
            intent.status, intent.payment_method = "requires_payment_method", None
            intent.last_payment_error = {**failure, "payment_method": show_payment_method(method)}
        account.charges.save(charge)
        account.intents.save(intent)


def _succeed(call: Call, intent: PaymentIntent, method: PaymentMethod) -> None:
    captured = intent.capture_method != "manual"
    charge = _add_charge(call, intent, method, status="succeeded", captured=captured)
    intent.status = "succeeded" if captured else "requires_capture"
    intent.last_payment_error = None
    if captured:
        _book(call.simulator, call.account, charge, at=call.now, request=call.request)


def _start_debit(call: Call, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    _add_charge(call, intent, method, status="pending")
    intent.status, intent.last_payment_error = "processing", None
    intent.settle_at = call.now + behaviour.settle_seconds
    call.simulator.schedule(call.account.id, intent)


def _ask_for_authentication(intent: PaymentIntent) -> None:
    intent.status = "requires_action"
    intent.next_action = {
        "type": "use_stripe_sdk",
        "use_stripe_sdk": {"type": "three_d_secure_redirect", "stripe_js": "", "source": ""},
    }


def _decline(call: Call, intent: PaymentIntent, method: PaymentMethod, behaviour: Behaviour) -> None:
    charge_id = make_id("ch", call.account.id, call.account.charges.next_seq(), seed=call.simulator.seed)
    failure = _describe_failure(behaviour, charge_id)
    _add_charge(call, intent, method, status="failed", failure=failure)
    shown_method = show_payment_method(method)
    # As at Stripe, a failed payment method leaves the PaymentIntent: the next confirm must name one.
    intent.status, intent.payment_method = "requires_payment_method", None
    intent.last_payment_error = {**failure, "payment_method": shown_method}
    confirms_max = call.simulator.settings.confirms_max
    if confirms_max and intent.confirms >= confirms_max:
        intent.status, intent.canceled_at = "canceled", int(call.now)
        intent.cancellation_reason = "automatic"
    call.account.intents.save(intent)
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


def _describe_failure(behaviour: Behaviour, charge_id: str) -> dict[str, Any]:
    failure = {
        "advice_code": behaviour.advice_code,
        "charge": charge_id,
        "code": behaviour.code,
        "decline_code": behaviour.decline_code,
        "doc_url": f"https://stripe.com/docs/error-codes/{behaviour.code.replace('_', '-')}",
        "message": behaviour.message,
        "network_decline_code": behaviour.network_decline_code,
        "type": "card_error" if behaviour.kind == "card" else "invalid_request_error",
    }
    return {name: value for name, value in failure.items() if value is not None}


def _add_charge(
    call: Call,
    intent: PaymentIntent,
    method: PaymentMethod,
    *,
    status: str,
    captured: bool = True,
    failure: dict[str, Any] | None = None,
) -> Charge:
    shelf = call.account.charges
    seq = shelf.next_seq()
    charge = Charge(
        id=call.new_id("ch", seq),
        seq=seq,
        created=int(call.now),
        amount=intent.amount,
        currency=intent.currency,
        status=status,
        payment_intent=intent.id,
        payment_method=method.id,
        customer=intent.customer,
        metadata=dict(intent.metadata),
        captured=captured,
        failure=failure,
        description=(intent.texts or {}).get("description"),
    )
    shelf.add(charge)
    intent.charges.append(charge.id)
    return charge


def _book(simulator: Simulator, account: AccountData, charge: Charge, *, at: float, request: int) -> None:
    simulator.book.enter(
        at=at,
        account=account.id,
        payment_intent=charge.payment_intent,
        charge=charge.id,
        customer=charge.customer,
        amount=charge.amount,
        currency=charge.currency,
        metadata=charge.metadata,
        request=request,
    )
