import ast
import inspect
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.domain import cap, money
from workflows.domain.errors import InvalidInput, InvariantViolation
from workflows.domain.money import (
    AMOUNT_MINOR_MAX,
    RULES,
    Money,
    check_amount,
    format_money,
    minimum_minor,
    parse_currency,
    parse_major,
    parse_minor,
    round_down_to_step,
    total_by_currency,
)

CURRENCIES = st.sampled_from(sorted(RULES))


@st.composite
def chargeable(draw: st.DrawFn) -> tuple[int, str]:
    """Amounts that Stripe takes in a currency of the table."""
    currency = draw(CURRENCIES)
    step = RULES[currency].step_minor
    return draw(st.integers(0, AMOUNT_MINOR_MAX // step)) * step, currency


@pytest.mark.parametrize(
    ("text", "currency", "minor"),
    [
        ("500", "jpy", 500),
        ("19.99", "usd", 1999),
        ("5.120", "kwd", 5120),
        ("5", "isk", 500),
        ("1000", "ugx", 100_000),
        ("35.20", "bhd", 35_200),
        ("100.50", "huf", 10_050),
        ("100.50", "twd", 10_050),
        ("7", "mga", 7),
    ],
)
def test_i17_minor_units_are_those_stripe_counts_in(text: str, currency: str, minor: int) -> None:
    """Incident I17: each kind of currency becomes exactly the integer that Stripe expects."""
    assert parse_major(text, currency) == minor


@pytest.mark.parametrize(
    ("text", "currency", "said"),
    [
        ("5.124", "kwd", "multiples of 10, so 5120 or 5130"),
        ("5.01", "isk", "multiples of 100, so 500 or 600"),
        ("500.5", "jpy", "too many decimals: jpy has none"),
        ("19.999", "usd", "too many decimals: usd has 2"),
        ("1.000", "eur", "too many decimals: eur has 2"),
    ],
)
def test_i17_what_is_not_representable_is_refused(text: str, currency: str, said: str) -> None:
    """Incident I17: an amount that Stripe can't be sent exactly is refused before any call, never rounded."""
    with pytest.raises(InvalidInput, match=said):
        parse_major(text, currency)


def test_i17_minor_units_off_the_step_are_refused() -> None:
    """Incident I17: 501 minor units of ISK are refused, with the neighbours that could be meant."""
    with pytest.raises(InvalidInput) as caught:
        parse_minor("501", "isk")
    assert "500 or 600" in caught.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "1e3", "1E3", "1,000", "1 000", "1_000", "+5", "--5", "5.", ".5", ".", "1.2.3", "0x10",
        "NaN", "inf", "٣٠", "\uff15", "5\n", "5\x00", "\x1f5", "5\u00a0", "\u22125", "½", "$5", "5 usd",
    ],
)  # fmt: skip
def test_only_plain_numbers_are_amounts(text: str) -> None:
    """Anything but ASCII digits with at most one inner point is no amount, in major and in minor units."""
    for parse in (parse_major, parse_minor):
        with pytest.raises(InvalidInput):
            parse(text, "usd")


@pytest.mark.parametrize("text", ["-5", "-0", "-0.01"])
def test_a_leading_minus_is_reported_as_negative(text: str) -> None:
    """A sign is not a typing error: the reason says negative."""
    with pytest.raises(InvalidInput, match="negative"):
        parse_major(text, "usd")


def test_zero_and_spaces_around_an_amount_are_accepted() -> None:
    """Zero is an amount (the planner skips it), and blanks around a number mean nothing."""
    assert parse_major("0", "usd") == 0
    assert parse_major(" 0.00\t", " USD ") == 0
    assert parse_minor("000500", "Jpy") == 500


def test_twelve_digits_are_the_limit() -> None:
    """12 digits of minor units pass, since Stripe's pages contradict each other below that; 13 don't."""
    assert parse_major("9999999999.99", "usd") == AMOUNT_MINOR_MAX
    assert parse_minor("0" * 50 + "9" * 12, "usd") == AMOUNT_MINOR_MAX
    for parse, text in (
        (parse_major, "10000000000.00"),
        (parse_minor, "1" + "0" * 12),
        (parse_minor, "9" * 5000),
    ):
        with pytest.raises(InvalidInput, match="more than 12 digits"):
            parse(text, "usd")


@pytest.mark.parametrize(
    "text", ["", "us", "usdd", "xyz", "US$", "\u212awd", "u\u017fd", "usd\x00", "u\u200bsd"]
)
def test_unknown_currencies_are_refused(text: str) -> None:
    """Only the codes of the table pass; letters that lower() would turn into ASCII ones do not."""
    with pytest.raises(InvalidInput):
        parse_currency(text)


def test_reasons_never_echo_more_than_forty_characters_or_control_characters() -> None:
    """A hostile cell becomes a short printable reason."""
    with pytest.raises(InvalidInput) as caught:
        parse_major("\x1b[31m\u202e" + "A" * 10_000, "usd")
    assert caught.value.reason.isprintable()
    assert "A" * 41 not in caught.value.reason
    assert len(caught.value.reason) < 200


def test_amounts_that_are_no_ints_are_a_bug() -> None:
    """A float or a bool never becomes an amount, whatever its value."""
    for wrong in (19.99, 5.0, True, Decimal(5)):
        with pytest.raises(InvariantViolation):
            check_amount(wrong, "usd")  # type: ignore[arg-type]
        with pytest.raises(InvariantViolation):
            Money(wrong, "usd")  # type: ignore[arg-type]


def test_currencies_do_not_mix() -> None:
    """Adding, subtracting or ordering two currencies raises instead of giving a number."""
    usd, eur = Money(1, "usd"), Money(1, "eur")
    for mix in (lambda: usd + eur, lambda: usd - eur, lambda: usd < eur, lambda: usd <= eur):
        with pytest.raises(InvariantViolation, match="don't mix"):
            mix()
    with pytest.raises(InvariantViolation, match="canonical"):
        Money(1, "USD")


def test_money_of_one_currency_adds_and_compares() -> None:
    """Within a currency arithmetic is that of integers, and a difference may be negative."""
    assert Money(2, "jpy") - Money(5, "jpy") == Money(-3, "jpy")
    assert Money(2, "jpy") + Money(5, "jpy") == Money(7, "jpy")
    assert Money(2, "jpy") < Money(5, "jpy") <= Money(5, "jpy")
    assert str(Money(-305, "usd")) == "-3.05 USD"
    assert total_by_currency([Money(1, "usd"), Money(2, "eur"), Money(3, "usd")]) == {"usd": 4, "eur": 2}


def test_minimums_are_those_stripe_documents() -> None:
    """The table knows a minimum where the documentation names one, and says so where it doesn't."""
    assert minimum_minor("USD") == 50
    assert minimum_minor("gbp") == 30
    assert minimum_minor("huf") == 17_500
    assert minimum_minor("jpy") == 50
    assert minimum_minor("kwd") is None
    assert all(
        rule.minimum_minor is None or rule.minimum_minor % rule.step_minor == 0 for rule in RULES.values()
    )


@given(chargeable())
def test_what_is_printed_is_read_back(amount: tuple[int, str]) -> None:
    """Every chargeable amount survives printing and parsing, in major and in minor units."""
    minor, currency = amount
    text, code = format_money(minor, currency).split(" ")
    assert code == currency.upper()
    assert parse_major(text, code) == minor
    assert parse_minor(str(minor), currency) == minor


@given(st.from_regex(r"-?[0-9]{1,14}(\.[0-9]{1,5})?", fullmatch=True), CURRENCIES)
def test_a_parsed_amount_is_exact_or_refused(text: str, currency: str) -> None:
    """An accepted text and its integer are the same number, by an arithmetic the parser does not use."""
    exact = Decimal(text).scaleb(RULES[currency].decimals)
    try:
        minor = parse_major(text, currency)
    except InvalidInput:
        fraction = text.partition(".")[2]
        assert (
            text.startswith("-")
            or len(fraction) > RULES[currency].decimals
            or exact > AMOUNT_MINOR_MAX
            or exact % RULES[currency].step_minor
        )
    else:
        assert minor == exact
        assert type(minor) is int


@given(st.text(), st.text())
def test_any_text_is_an_amount_or_invalid_input(text: str, currency: str) -> None:
    """No text whatever raises anything but InvalidInput."""
    for code in (currency, "usd", "isk"):
        for parse in (parse_major, parse_minor):
            outcome: int | InvalidInput
            try:
                outcome = parse(text, code)
            except InvalidInput as error:
                outcome = error
            if isinstance(outcome, int):
                check_amount(outcome, code)
            else:
                assert outcome.reason.isprintable()


@given(st.integers(0, 10**15), CURRENCIES)
def test_rounding_down_gives_the_next_chargeable_amount_below(limit_minor: int, currency: str) -> None:
    """A limit moves down by less than one step, onto a multiple of it."""
    rounded = round_down_to_step(limit_minor, currency)
    step = RULES[currency].step_minor
    assert rounded % step == 0
    assert 0 <= limit_minor - rounded < step


@pytest.mark.parametrize("module", [money, cap])
def test_no_float_anywhere(module: object) -> None:
    """The modules that count money hold no float literal, no true division, no float() and no round()."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):  # type: ignore[arg-type]
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float))
        assert not isinstance(node, ast.Div)
        assert not (isinstance(node, ast.Name) and node.id in {"float", "round"})
