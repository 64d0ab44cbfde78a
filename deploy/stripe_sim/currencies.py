"""What an amount may be, per currency (docs.stripe.com/currencies, read July 2026)."""

from typing import Final

from deploy.stripe_sim.errors import bad_request

_CODES: Final = """
aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd bwp byn bzd cad cdf
chf clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd hnl htg
huf idr ils inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl mga mkd mmk
mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg qar ron rsd rub
rwf sar sbd scr sek sgd shp sle sos srd std szl thb tjs tnd top try ttd twd tzs uah ugx usd uyu uzs vnd
vuv wst xaf xcd xof xpf yer zar zmw
"""
CURRENCIES: Final = frozenset(_CODES.split())

# ISK and UGX have no minor unit any more, yet are sent with two decimals that must be zero; the three-decimal
# currencies are sent with their last digit zero.
MULTIPLES: Final = {"isk": 100, "ugx": 100, "bhd": 10, "jod": 10, "kwd": 10, "omr": 10, "tnd": 10}

_FIFTY: Final = "usd eur aud cad chf brl inr nzd sgd bgn jpy"
MINIMUMS: Final = {
    **dict.fromkeys(_FIFTY.split(), 50),
    "gbp": 30,
    "dkk": 250,
    "nok": 300,
    "sek": 300,
    "czk": 1_500,
    "huf": 17_500,
    "mxn": 1_000,
    "pln": 200,
    "ron": 200,
    "aed": 200,
    "myr": 200,
    "hkd": 400,
    "thb": 1_000,
}

AMOUNT_MAX: Final = 99_999_999
AMOUNT_MAX_BY_CURRENCY: Final = {"idr": 999_999_999_999, "cop": 9_999_999_999, "inr": 999_999_999}


def check_currency(text: str) -> str:
    """Return the currency in lower case, or refuse it."""
    currency = text.lower()
    if currency not in CURRENCIES:
        raise bad_request(
            f"Invalid currency: {text}. Stripe currently supports these currencies: "
            f"{', '.join(sorted(CURRENCIES))}",
            param="currency",
        )
    return currency


def check_amount(amount: int | None, currency: str) -> int:
    """Return the amount in minor units, or refuse it (`amount_too_small`, `amount_too_large`)."""
    if amount is None:
        raise bad_request("Missing required param: amount.", code="parameter_missing", param="amount")
    if amount < 1:
        raise bad_request(
            "This value must be greater than or equal to 1.", code="parameter_invalid_integer", param="amount"
        )
    if amount < MINIMUMS.get(currency, 1):
        message = f"Amount must be at least {MINIMUMS[currency]} in the smallest unit of {currency}"
        raise bad_request(message, code="amount_too_small", param="amount")
    if amount > AMOUNT_MAX_BY_CURRENCY.get(currency, AMOUNT_MAX):
        most = AMOUNT_MAX_BY_CURRENCY.get(currency, AMOUNT_MAX)
        message = f"Amount must be no more than {most} in the smallest unit of {currency}"
        raise bad_request(message, code="amount_too_large", param="amount")
    if amount % MULTIPLES.get(currency, 1):
        message = f"Amounts in {currency} must be divisible by {MULTIPLES[currency]}"
        raise bad_request(message, code="parameter_invalid_integer", param="amount")
    return amount
