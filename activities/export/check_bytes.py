"""The bytes of a pack's file held against its manifest, and where they differ."""

import csv
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from activities.export.findings import Finding
from activities.export.line_digests import LineDigests

_BYTES_AT_ONCE = 1 << 20


def find_in_bytes(path: Path, entry: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield what is wrong with a file's bytes: nothing where size and SHA-256 are those of its entry."""
    if path.is_symlink() or not path.is_file():
        yield Finding(path.name, "it is missing")
        return
    digest, size = hashlib.sha256(), 0
    digests = LineDigests(lines_per_digest=entry.get("lines_per_digest", 1), may_grow=False)
    has_lines = "digests" in entry
    with path.open("rb") as file:
        for part in file if has_lines else iter(lambda: file.read(_BYTES_AT_ONCE), b""):
            digest.update(part)
            size += len(part)
            if has_lines:
                digests.add(part)
    if digest.hexdigest() == entry["sha256"] and size == entry["bytes"]:
        return
    if has_lines and (span := digests.first_difference(entry["digests"])) is not None:
        yield _locate(path, entry, digests.lines, *span)
    else:
        yield Finding(path.name, f"its bytes are not those written ({size} now, {entry['bytes']} then)")


def _locate(path: Path, entry: Mapping[str, Any], lines_now: int, first: int, last: int) -> Finding:
    lines_then = entry["lines"]
    what = "it is not what was written"
    if lines_now != lines_then:
        change = "missing" if lines_now < lines_then else "added"
        what += f" from here on: {abs(lines_now - lines_then)} lines are {change}"
    elif last > first:
        what += f", here or within {last - first} lines"
    return Finding(path.name, what, line=first, row=_row_at(path, first))


def _row_at(path: Path, line: int) -> int | None:
    """Return the row that a line of a table belongs to: cells may have line breaks. None of the header."""
    if path.suffix != ".csv":
        return None
    with path.open("rb") as file:
        reader = csv.reader(part.decode("utf-8", "surrogateescape") for part in file)
        try:
            for number, _ in enumerate(reader):
                if reader.line_num >= line:
                    return number or None
        except csv.Error:
            pass
    return None
