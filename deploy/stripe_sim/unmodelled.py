"""Parameters that Stripe has and the simulator does not, per endpoint.

They are refused like unknown ones, but in other words: a mistake of the caller is not the same as a gap here.
"""

from typing import Final

_TABLE: Final = """
POST customers: balance business_name cash_balance individual_name invoice_prefix
POST customers: next_invoice_sequence preferred_locales source tax tax_id_data test_clock validate
GET customers: test_clock
POST customers/*: balance business_name cash_balance default_source individual_name invoice_prefix
POST customers/*: next_invoice_sequence preferred_locales source tax validate
GET customers/*/payment_methods: allow_redisplay
POST payment_methods: acss_debit affirm afterpay_clearpay alipay allow_redisplay alma amazon_pay
POST payment_methods: au_becs_debit bacs_debit bancontact billie bizum blik boleto cashapp crypto
POST payment_methods: custom customer customer_balance eps fpx giropay grabpay ideal interac_present
POST payment_methods: kakao_pay klarna konbini kr_card link mb_way mobilepay multibanco naver_pay
POST payment_methods: nz_bank_account oxxo p24 pay_by_bank payco payment_method paynow paypal paypay
POST payment_methods: payto pix promptpay radar_options revolut_pay samsung_pay satispay scalapay
POST payment_methods: sequra sofort sunbit swish twint upi wechat_pay zip
GET payment_methods: allow_redisplay customer_account
POST payment_methods/*: allow_redisplay us_bank_account
POST payment_methods/*/attach: customer_account
POST payment_intents: allowed_payment_method_types amount_details application_fee_amount
POST payment_intents: confirmation_token customer_account excluded_payment_method_types hooks
POST payment_intents: on_behalf_of payment_details payment_method_configuration payment_method_data
POST payment_intents: radar_options transfer_data
GET payment_intents: customer_account
POST payment_intents/*: allowed_payment_method_types amount_details application_fee_amount
POST payment_intents/*: customer_account excluded_payment_method_types hooks payment_details
POST payment_intents/*: payment_method_configuration payment_method_data transfer_data
POST payment_intents/*/confirm: allowed_payment_method_types amount_details amount_to_confirm
POST payment_intents/*/confirm: confirmation_token excluded_payment_method_types hooks payment_details
POST payment_intents/*/confirm: payment_method_data radar_options
POST payment_intents/*/capture: amount_details hooks payment_details transfer_data
POST charges/*: fraud_details shipping
POST charges/*/capture: application_fee application_fee_amount statement_descriptor transfer_data
POST charges/*/capture: transfer_group
POST refunds: currency customer instructions_email origin
POST disputes/*: intended_submission_method
"""


def _read_table() -> dict[str, frozenset[str]]:
    table: dict[str, frozenset[str]] = {}
    for line in _TABLE.strip().splitlines():
        pattern, _, names = line.partition(": ")
        table[pattern] = table.get(pattern, frozenset()) | frozenset(names.split())
    return table


UNMODELLED: Final = _read_table()
