"""Numbers with their nouns, as people write them."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 line`, `2 lines`, `10,000 lines`; `plural` is for nouns that do not just take an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
