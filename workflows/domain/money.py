"""Amounts are integers in the unit that Stripe counts in, and one table says what that unit is.

The exponents of ISO 4217 are wrong for Stripe: ISK and UGX are sent times 100, MGA has no decimals, and the
last digit of a three-decimal currency must be 0 (https://docs.stripe.com/currencies, read 2026-07; public
incident I17 is what happens without the table). HUF and TWD are ordinary two-decimal currencies for charges:
their divisible-by-100 rule holds for payouts only.

Nothing here rounds an amount that somebody owes: a text that is not exactly representable is refused. Texts
become integers digit by digit, so neither a float nor a context precision can touch them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput, invariant

# Stripe's own pages disagree (8 digits in the API reference, 12 for cards on the currencies page), so only
# what no page allows is refused here; Stripe refuses the rest by payment method.
AMOUNT_DIGITS_MAX = 12
AMOUNT_MINOR_MAX = 10**AMOUNT_DIGITS_MAX - 1


@dataclass(frozen=True, slots=True)
class CurrencyRule:
    """How Stripe counts one currency.

    `decimals` digits after the point make one minor unit; amounts are multiples of `step_minor`;
    `minimum_minor` is the least that Stripe charges where the account settles in this currency, if it is
    documented.
    """

    decimals: int
    step_minor: int = 1
    minimum_minor: int | None = None


_ZERO_DECIMALS = "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf"
_WHOLE_UNITS_SENT_TIMES_100 = "isk ugx"
_THREE_DECIMALS_ENDING_IN_0 = "bhd jod kwd omr tnd"
_TWO_DECIMALS = """
    aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bmd bnd bob brl bsd bwp byn bzd cad cdf
    chf cny cop crc cve czk dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gtq gyd hkd hnl htg huf
    idr ils inr jmd kes kgs khr kyd kzt lak lbp lkr lrd lsl mad mdl mkd mmk mnt mop mur mvr mwk mxn
    myr mzn nad ngn nio nok npr nzd pab pen pgk php pkr pln qar ron rsd rub sar sbd scr sek sgd shp
    sle sos srd std szl thb tjs top try ttd twd tzs uah usd uyu uzs wst xcd xcg yer zar zmw
"""
_MINIMUMS_MINOR = {
    "usd": 50, "eur": 50, "aud": 50, "cad": 50, "chf": 50, "gbp": 30, "dkk": 250, "nok": 300, "sek": 300,
    "czk": 1500, "huf": 17500, "jpy": 50, "mxn": 1000, "pln": 200, "ron": 200, "aed": 200, "myr": 200,
    "hkd": 400, "thb": 1000,
}  # fmt: skip


def _rules() -> Iterator[tuple[str, CurrencyRule]]:
    groups = (
        (_ZERO_DECIMALS, 0, 1),
        (_WHOLE_UNITS_SENT_TIMES_100, 2, 100),
        (_THREE_DECIMALS_ENDING_IN_0, 3, 10),
        (_TWO_DECIMALS, 2, 1),
    )
    for codes, decimals, step_minor in groups:
        for code in codes.split():
            yield code, CurrencyRule(decimals, step_minor, _MINIMUMS_MINOR.get(code))


_RULES = dict(_rules())
RULES: Mapping[str, CurrencyRule] = MappingProxyType(_RULES)

# ASCII digits only: `\d` and int() would take any script's digits, and int() also takes underscores.
_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in one currency; arithmetic between two currencies is a bug and raises InvariantViolation.

    `amount_minor` is any integer, since a difference may be negative; `check_amount` is for dues.
    """

    amount_minor: int
    currency: str

    def __post_init__(self) -> None:
        invariant(type(self.amount_minor) is int, f"an amount is an int, not {self.amount_minor!r}")
        invariant(self.currency in RULES, f"not a canonical currency: {echo(str(self.currency))}")

    def __add__(self, other: "Money") -> "Money":
        return Money(self.amount_minor + self._same(other), self.currency)

    def __sub__(self, other: "Money") -> "Money":
        return Money(self.amount_minor - self._same(other), self.currency)

    def __lt__(self, other: "Money") -> bool:
        return self.amount_minor < self._same(other)

    def __le__(self, other: "Money") -> bool:
        return self.amount_minor <= self._same(other)

    def __str__(self) -> str:
        return format_money(self.amount_minor, self.currency)

    def _same(self, other: "Money") -> int:
        invariant(self.currency == other.currency, f"{self.currency} and {other.currency} don't mix")
        return other.amount_minor


def total_by_currency(amounts: Iterable[Money]) -> dict[str, int]:
    """Return the sum in minor units of each currency that occurs."""
    totals: dict[str, int] = {}
    for money in amounts:
        totals[money.currency] = totals.get(money.currency, 0) + money.amount_minor
    return totals


def parse_currency(text: str) -> str:
    """Return the canonical (lowercase) code of a currency that Stripe charges in.

    Raises:
        InvalidInput: There is no such currency in the table.
    """
    if text in _RULES:
        return text
    # Only ASCII may be folded: lower() turns other letters (the Kelvin sign U+212A) into ASCII ones.
    code = text.strip(" \t").lower() if text.isascii() else text
    if code not in RULES:
        raise InvalidInput(f"unknown currency {echo(text)}" if code else "currency is empty")
    return code


def parse_major(text: str, currency: str) -> int:
    """Return the minor units of a decimal text in major units: ("19.99", "usd") is 1999, ("5", "isk") is 500.

    ASCII digits with at most one point, and digits on both sides of it: no exponent, separator, plus sign or
    inner space. More decimals than the currency has are refused even when they are zeros, since "1.000" means
    a thousand to half of Europe. Zero is an amount; whether to bill it is the planner's decision.

    Raises:
        InvalidInput: Unknown currency, not a number, negative, not exactly representable, over 12 digits.
    """
    code = parse_currency(currency)
    decimals = _RULES[code].decimals
    whole, fraction = read_number(text)
    if len(fraction) > decimals:
        raise InvalidInput(f"{echo(text)} has too many decimals: {code} has {decimals or 'none'}")
    if len(whole) > AMOUNT_DIGITS_MAX:
        raise InvalidInput(f"{echo(text)} has more than {AMOUNT_DIGITS_MAX} digits in minor units")
    amount_minor = int(whole + fraction.ljust(decimals, "0"))
    check_amount(amount_minor, code)
    return amount_minor


def parse_minor(text: str, currency: str) -> int:
    """Return the minor units of a text that is already in the unit Stripe counts in.

    Raises:
        InvalidInput: Unknown currency, not a whole number, negative, no multiple of the currency's step (501
            isk), over 12 digits.
    """
    code = parse_currency(currency)
    whole, fraction = read_number(text)
    if fraction:
        raise InvalidInput(f"{echo(text)} has decimals: minor units are whole numbers")
    if len(whole) > AMOUNT_DIGITS_MAX:
        raise InvalidInput(f"{echo(text)} has more than {AMOUNT_DIGITS_MAX} digits in minor units")
    amount_minor = int(whole)
    check_amount(amount_minor, code)
    return amount_minor


def read_number(text: str) -> tuple[str, str]:
    """Return the digits before and after the point of a plain non-negative number, without leading zeros.

    Raises:
        InvalidInput: The text is empty, not a plain number, or negative.
    """
    match = _NUMBER.fullmatch(text.strip(" \t"))
    if match is None:
        if not text.strip():
            raise InvalidInput("amount is empty")
        raise InvalidInput(f"{echo(text)} is not a plain number (digits with at most one '.')")
    sign, whole, fraction = match.groups("")
    if sign:
        raise InvalidInput(f"{echo(text)} is negative")
    return whole.lstrip("0") or "0", fraction


def check_amount(amount_minor: int, currency: str) -> None:
    """Refuse what Stripe could never charge: negative, over 12 digits, off the currency's step.

    Raises:
        InvalidInput: One of those, or an unknown currency.
    """
    code = parse_currency(currency)
    invariant(type(amount_minor) is int, f"an amount is an int, not {amount_minor!r}")
    if amount_minor < 0:
        raise InvalidInput(f"{amount_minor} {code} is negative")
    if amount_minor > AMOUNT_MINOR_MAX:
        raise InvalidInput(f"{amount_minor} {code} has more than {AMOUNT_DIGITS_MAX} digits in minor units")
    step_minor = _RULES[code].step_minor
    if step_minor > 1 and amount_minor % step_minor:
        below = amount_minor - amount_minor % step_minor
        raise InvalidInput(
            f"{amount_minor} minor units of {code} can't be charged: Stripe takes multiples of {step_minor}, "
            f"so {below} or {below + step_minor}"
        )


def round_down_to_step(amount_minor: int, currency: str) -> int:
    """Return the largest chargeable amount up to `amount_minor` (0 or more): for limits, never for dues."""
    invariant(amount_minor >= 0, f"a limit is not negative: {amount_minor}")
    return amount_minor - amount_minor % RULES[parse_currency(currency)].step_minor


def minimum_minor(currency: str) -> int | None:
    """Return the least that Stripe charges in minor units, or None where it documents none.

    It depends on the currency the account settles in, so it is a warning and no proof of refusal.
    """
    return RULES[parse_currency(currency)].minimum_minor


def format_money(amount_minor: int, currency: str) -> str:
    """Return "19.99 USD": every decimal the currency has, so `parse_major` reads the same amount back."""
    code = parse_currency(currency)
    invariant(type(amount_minor) is int, f"an amount is an int, not {amount_minor!r}")
    decimals = RULES[code].decimals
    sign = "-" if amount_minor < 0 else ""
    digits = str(abs(amount_minor)).rjust(decimals + 1, "0")
    text = f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits
    return f"{sign}{text} {code.upper()}"
