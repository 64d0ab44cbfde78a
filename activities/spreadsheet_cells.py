"""Text that a spreadsheet shows and does not run.

A program that opens a CSV file takes a cell for a formula by its first character (OWASP, "CSV Injection"):
= + - @, their fullwidth forms, and what some programs skip before looking. A program that separates cells by
semicolons or tabs finds beginnings of cells inside of ours, so those are made inert as well.
"""

import re

_RUNS = "=+\\-@\uff1d\uff0b\uff0d\uff20\u2212\ufe62\ufe63\ufe66\ufe6b"
_SKIPPED = "\\s\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\\x00-\\x1f"
_DANGEROUS = re.compile(f"(^|[;\t\r\n])(?=[{_SKIPPED}]*[{_RUNS}])")
# A tab or a carriage return at the beginning is dropped by some programs, and what follows is then first.
_FIRST = re.compile("[\t\r\n]")


def neutral_cell(text: str) -> str:
    """Return `text` with an apostrophe before whatever a spreadsheet would run; anything else as it is.

    The apostrophe is the one that spreadsheets read as "this is text". A number that begins with a sign is
    text here too: pass numbers as numbers.
    """
    inert = _DANGEROUS.sub(lambda match: f"{match[0]}'", text)
    return f"'{inert}" if _FIRST.match(inert) else inert
