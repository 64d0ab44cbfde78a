"""Amounts as people read them, also of currencies that nobody here has heard of: a caller may name any."""

from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money


def show_money(amount_minor: int | None, currency: str | None) -> str:
    """Return "19.99 USD", or the bare minor units where the currency is unknown; "" without an amount."""
    if amount_minor is None:
        return ""
    if currency is None:
        return str(amount_minor)
    try:
        return format_money(amount_minor, currency)
    except InvalidInput:
        return f"{amount_minor} {currency} (smallest units)"
