"""Named SQL blocks, read once from the `.sql` files beside this module.

A block starts with `-- name: snake_case`; the comment lines under it say what it does and name its
parameters in order. A test prepares every block against the migrated schema.
"""

import re
from importlib.resources import files

from workflows.domain.errors import invariant

_NAME = re.compile(r"^-- name: (?P<name>[a-z_]+)$", re.MULTILINE)


def load(file_name: str) -> dict[str, str]:
    """Return the blocks of `sql/{file_name}` by name."""
    text = files("activities.ledger").joinpath("sql", file_name).read_text(encoding="utf-8")
    starts = list(_NAME.finditer(text))
    ends = [match.start() for match in starts[1:]] + [len(text)]
    blocks = {match["name"]: text[match.end() : end].strip() for match, end in zip(starts, ends, strict=True)}
    invariant(len(blocks) == len(starts), f"{file_name} names a block twice")
    return blocks
