"""Hostile text is quoted in messages here, and nowhere else; and made safe for terminals.

A cell of a source file can hold terminal escapes, bidirectional overrides or a megabyte of anything; a
message that repeats it must stay one short readable line.
"""

ECHO_CHARACTERS_MAX = 40


def echo(text: str) -> str:
    """Return at most the first 40 characters of `text`, quoted, everything unprintable escaped.

    Unprintable is what `str.isprintable` says: control and format characters (bidirectional overrides, zero
    width), line separators and the lone surrogates that stand for bytes that were not UTF-8.
    """
    if len(text) > ECHO_CHARACTERS_MAX:
        return f"{text[:ECHO_CHARACTERS_MAX]!r}…"
    return repr(text)


def readable(text: str) -> str:
    """Return `text` whole for a terminal: what `echo` escapes is escaped, but for line breaks and tabs."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1]
        for character in text
    )
