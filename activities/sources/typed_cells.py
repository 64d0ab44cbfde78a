"""Values that come with a type become the text that a CSV file would hold, or are refused for their type.

Amounts stay exact: an integer or a decimal is the digits it is, and a float is refused whatever it shows,
since 0.1 + 0.2 is not 0.3 in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

# Far beyond every amount and identity; below it, writing a number out costs nothing.
_INTEGER_BITS_MAX = 256
_EXPONENT_MAX = 64

NOT_EXACT = "a float is not exact: give amounts as text, as an integer or as a decimal"


@dataclass(frozen=True, slots=True)
class RefusedCell:
    """Stands where a text would, and says why there is none."""

    reason: str


ToText = Callable[[object], str]


def text_of(value: object) -> str:
    """Return the text of a value that names something: text, or a whole number. None is an empty cell.

    Raises:
        InvalidInput: A decimal, float, boolean, nested value or anything else.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)  # a subclass may say something else of itself
    if isinstance(value, int) and not isinstance(value, bool):
        return _integer_text(value)
    if isinstance(value, Decimal):
        raise InvalidInput(f"{echo(str(value))} is a decimal number where a text is needed")
    raise InvalidInput(_refusal(value))


def minor_text_of(value: object) -> str:
    """Return the text of an amount in minor units, with as many decimals as a decimal has: none is right.

    Raises:
        InvalidInput: A float, boolean, nested value or anything else that is no text or exact number.
    """
    return _decimal_text(value) if isinstance(value, Decimal) else text_of(value)


def major_text_of(value: object) -> str:
    """Return the text of an amount in major units, a decimal's trailing zeros left out.

    In a text "1.000" means a thousand to half of Europe; in a decimal number it is one, and the zeros come
    from the scale of its column.

    Raises:
        InvalidInput: A float, boolean, nested value or anything else that is no text or exact number.
    """
    if not isinstance(value, Decimal):
        return text_of(value)
    text = _decimal_text(value)
    return text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text


def to_text_of(column: str) -> ToText:
    """Return how values of a column become text."""
    return {"amount": major_text_of, "amount_minor": minor_text_of}.get(column, text_of)


def _integer_text(value: int) -> str:
    if value.bit_length() > _INTEGER_BITS_MAX:
        raise InvalidInput("a whole number of more than 77 digits")
    return str(value)


def _decimal_text(value: Decimal) -> str:
    text = str(value)
    # 1E+999999999 written out would fill the memory; as it stands it is no plain number and is refused.
    if "E" in text and abs(value.adjusted()) <= _EXPONENT_MAX:
        return f"{value:f}"
    return text


def _refusal(value: object) -> str:
    match value:
        case float():
            return NOT_EXACT
        case bool():
            return f"{str(value).lower()} is neither a text nor an exact number"
        case dict() | list() | tuple():
            return "a nested value where a text or an exact number is needed"
        case _:
            return f"a value of type {type(value).__name__} is neither a text nor an exact number"
