"""One cell of hostile text becomes one value, or a reason why it can't.

An identity must look like what it is: a character that nobody sees would make two identities, and so two
charges, out of one customer.
"""

import unicodedata

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.keys import canonical
from workflows.domain.vault import can_be_asked_for

CUSTOMER_CHARACTERS_MAX = 255
LINE_CHARACTERS_MAX = 100
PAYMENT_METHOD_CHARACTERS_MAX = 255
DESCRIPTION_CHARACTERS_MAX = 500
LINE_DEFAULT = "base"

_LAYOUT_CHARACTERS = frozenset("\n\r\t")
_INVISIBLE = frozenset({"Cf", "Zl", "Zp"})


def read_identity(cell: str, characters_max: int) -> str:
    """Return the cell stripped and in NFC, or "" when nothing is in it.

    Raises:
        InvalidInput: Not UTF-8, a control or invisible character anywhere (at the ends too: stripping would
            hide 0x1F), a stray quote, too long.
    """
    # Nearly every cell takes this branch: printable ASCII is in NFC and holds nothing invisible.
    if cell.isascii() and cell.isprintable():
        text = cell.strip(" ")
    else:
        refuse_unreadable(cell)
        for character in cell:
            if unicodedata.category(character) in _INVISIBLE:
                raise InvalidInput(f"an invisible character (U+{ord(character):04X}) in {echo(cell)}")
        text = canonical(cell, "cell") if cell.strip() else ""
    if len(text) > characters_max:
        raise InvalidInput(f"{echo(text)} is longer than {characters_max} characters")
    if text.startswith('"'):
        raise InvalidInput(f"a stray quote in {echo(text)}")
    return text


def read_customer(cell: str) -> str:
    """Return the canonical customer id.

    Raises:
        InvalidInput: Missing, no readable identity, or one that a URL's path can't hold.
    """
    if cell.isascii() and cell.isidentifier() and len(cell) <= CUSTOMER_CHARACTERS_MAX:
        return cell  # as ids of Stripe's are, and canonical as it stands
    text = read_identity(cell, CUSTOMER_CHARACTERS_MAX)
    if not text:
        raise InvalidInput("customer is missing")
    if not can_be_asked_for(text):
        raise InvalidInput(f"{echo(text)} can't be asked for at Stripe")
    return text


def read_line(cell: str) -> str:
    """Return the canonical name of the line; an empty cell is the line `base`."""
    if cell == LINE_DEFAULT:
        return cell
    return read_identity(cell, LINE_CHARACTERS_MAX) or LINE_DEFAULT


def read_payment_method(cell: str) -> str | None:
    """Return the payment method's id; an empty cell means the customer's default."""
    if cell.isascii() and cell.isidentifier() and len(cell) <= PAYMENT_METHOD_CHARACTERS_MAX:
        return cell  # see above
    return read_identity(cell, PAYMENT_METHOD_CHARACTERS_MAX) or None


def read_description(cell: str) -> str | None:
    """Return the description stripped: any text of 500 characters, line breaks and tabs included.

    Raises:
        InvalidInput: Not UTF-8, another control character, too long.
    """
    if not cell.isprintable():
        refuse_unreadable(cell, allowed=_LAYOUT_CHARACTERS)
    text = cell.strip()
    if len(text) > DESCRIPTION_CHARACTERS_MAX:
        raise InvalidInput(f"{echo(text)} is longer than {DESCRIPTION_CHARACTERS_MAX} characters")
    return text or None


def refuse_unreadable(cell: str, allowed: frozenset[str] = frozenset()) -> None:
    """Raise InvalidInput for a byte that was not UTF-8, a lone surrogate or a control character."""
    for character in cell:
        category = unicodedata.category(character)
        if category == "Cs":
            raise InvalidInput(f"{_surrogate_reason(ord(character))} in {echo(cell)}")
        if category == "Cc" and character not in allowed:
            raise InvalidInput(f"a control character (0x{ord(character):02X}) in {echo(cell)}")


def _surrogate_reason(code: int) -> str:
    # Bytes 0x80 to 0xFF arrive as U+DC80 to U+DCFF; only an escape sequence of JSON can write the others.
    if 0xDC80 <= code <= 0xDCFF:
        return f"not UTF-8: byte 0x{code - 0xDC00:02X}"
    return f"half a character (U+{code:04X})"
