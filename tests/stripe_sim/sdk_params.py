"""The parameters that the SDK knows for each endpoint of the simulator."""

import stripe
from stripe import RequestOptions, params

_OPTIONS = set(RequestOptions.__annotations__)
_CLASSES = {
    "GET balance": "BalanceRetrieveParams",
    "GET balance_transactions": "BalanceTransactionListParams",
    "GET balance_transactions/*": "BalanceTransactionRetrieveParams",
    "GET payouts": "PayoutListParams",
    "POST customers": "CustomerCreateParams",
    "GET customers": "CustomerListParams",
    "GET customers/*": "CustomerRetrieveParams",
    "POST customers/*": "CustomerUpdateParams",
    "DELETE customers/*": "CustomerDeleteParams",
    "GET customers/*/payment_methods": "CustomerListPaymentMethodsParams",
    "GET customers/*/payment_methods/*": "CustomerRetrievePaymentMethodParams",
    "POST payment_methods": "PaymentMethodCreateParams",
    "GET payment_methods": "PaymentMethodListParams",
    "GET payment_methods/*": "PaymentMethodRetrieveParams",
    "POST payment_methods/*": "PaymentMethodUpdateParams",
    "POST payment_methods/*/attach": "PaymentMethodAttachParams",
    "POST payment_methods/*/detach": "PaymentMethodDetachParams",
    "POST payment_intents": "PaymentIntentCreateParams",
    "GET payment_intents": "PaymentIntentListParams",
    "GET payment_intents/search": "PaymentIntentSearchParams",
    "GET payment_intents/*": "PaymentIntentRetrieveParams",
    "POST payment_intents/*": "PaymentIntentUpdateParams",
    "POST payment_intents/*/confirm": "PaymentIntentConfirmParams",
    "POST payment_intents/*/capture": "PaymentIntentCaptureParams",
    "POST payment_intents/*/cancel": "PaymentIntentCancelParams",
    "GET charges": "ChargeListParams",
    "GET charges/*": "ChargeRetrieveParams",
    "POST charges/*": "ChargeUpdateParams",
    "POST charges/*/capture": "ChargeCaptureParams",
    "GET charges/*/refunds": "ChargeListRefundsParams",
    "GET charges/*/refunds/*": "ChargeRetrieveRefundParams",
    "POST refunds": "RefundCreateParams",
    "GET refunds": "RefundListParams",
    "GET refunds/*": "RefundRetrieveParams",
    "POST refunds/*": "RefundUpdateParams",
    "POST refunds/*/cancel": "RefundCancelParams",
    "GET disputes": "DisputeListParams",
    "GET disputes/*": "DisputeRetrieveParams",
    "POST disputes/*": "DisputeUpdateParams",
    "POST disputes/*/close": "DisputeCloseParams",
    "GET events": "EventListParams",
    "GET events/*": "EventRetrieveParams",
    "POST webhook_endpoints": "WebhookEndpointCreateParams",
    "GET webhook_endpoints": "WebhookEndpointListParams",
    "GET webhook_endpoints/*": "WebhookEndpointRetrieveParams",
    "POST webhook_endpoints/*": "WebhookEndpointUpdateParams",
    "DELETE webhook_endpoints/*": "WebhookEndpointDeleteParams",
}


def params_of_sdk(pattern: str) -> set[str] | None:
    """Return the parameters of an endpoint, or None if the SDK has no class of its own for it."""
    kind = getattr(params, _CLASSES.get(pattern, ""), None) or getattr(
        stripe, _CLASSES.get(pattern, ""), None
    )
    return None if kind is None else set(kind.__annotations__) - _OPTIONS
