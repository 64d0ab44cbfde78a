"""columns.md of a closing pack, made of what the writers go by."""

from collections.abc import Iterator

from activities.export.audit_columns import AUDIT, AUDIT_FILE, RECORD
from activities.export.columns import SCHEMA, SCHEMA_VERSION, TABLES, Column

_INTRODUCTION = f"""# The columns of a {SCHEMA}, version {SCHEMA_VERSION}

One run, as its ledger was at one moment: `snapshot_at` in manifest.json. Stripe was asked for settlement
just before.

- Amounts are integers in the unit that Stripe counts in (`..._minor`), and decimals in major units beside
  them, with as many digits after the point as Stripe has for the currency: 1999 is 19.99 USD, 500 is 500 JPY,
  1990 is 1.990 KWD. Parquet has three digits after the point for all.
- Times are ISO 8601 in UTC, by the ledger's clock where no other is named.
- An empty cell means that there is no value. Parquet has null there.
- CSV is RFC 4180 in UTF-8. A text that a spreadsheet would run as a formula stands behind an apostrophe, also
  where such a beginning follows a semicolon, a tab or a line break inside of a cell; manifest.json counts the
  cells that were changed so. Numbers are left as they are, with their sign. Parquet and {AUDIT_FILE} have
  every text as it is.
- `chargeonce export --check DIR` verifies every file against manifest.json, and the totals against the rows.
"""


def describe_columns() -> str:
    """Return the documentation of all files as Markdown; the same for every pack of this version."""
    return "\n".join(_describe())


def _describe() -> Iterator[str]:
    yield _INTRODUCTION
    for table in TABLES:
        yield f"## {table.name}\n\nOne row for {table.a_row}.\n"
        yield from _table(table.columns)
    yield f"## {AUDIT_FILE}\n\nOne JSON object a line; `{RECORD}` says what it is and which fields follow.\n"
    for table in AUDIT:
        yield f"### {table.name}\n\nOne line for {table.a_row}.\n"
        yield from _table(table.columns)


def _table(columns: tuple[Column, ...]) -> Iterator[str]:
    yield "| column | kind | meaning |\n|---|---|---|"
    yield from (f"| {column.name} | {column.kind} | {column.about} |" for column in columns)
    yield ""
