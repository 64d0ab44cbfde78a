"""A closing pack held against its manifest: every byte, every row, and the totals from the rows again.

Nothing but the folder is needed: no ledger, no Stripe. What is found is told with its file, and with its line
and row where that can be said. A hash is no signature: who writes a new pack writes its manifest as well.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from activities.export.check_bytes import find_in_bytes
from activities.export.check_rows import find_between, find_in_counts, find_in_rows
from activities.export.column_docs import describe_columns
from activities.export.columns import BY_NAME, DOCUMENTATION_FILE, MANIFEST_FILE, SCHEMA, SCHEMA_VERSION
from activities.export.findings import Finding
from activities.export.manifest import unseal
from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

MANIFEST_BYTES_MAX = 64 * 1024 * 1024
FINDINGS_MAX = 100


@dataclass(frozen=True, slots=True)
class Checked:
    """A pack, and what is wrong with it. `rows` are those that were read again, by file."""

    manifest: Mapping[str, Any]
    findings: Sequence[Finding]
    rows: Mapping[str, int]

    @property
    def good(self) -> bool:
        """Whether it is what was written."""
        return not self.findings


def check_pack(folder: Path) -> Checked:
    """Return what is wrong with a pack: at most FINDINGS_MAX findings.

    Raises:
        InvalidInput: The folder holds no pack, or one of another version.
    """
    document, sealed = _read_manifest(folder)
    findings, rows = [] if sealed else [_UNSEALED], dict[str, int]()
    try:
        findings += islice(_find_all(folder, document, rows), FINDINGS_MAX)
    except (LookupError, TypeError, AttributeError, ValueError):
        if sealed:
            raise
        findings.append(Finding(MANIFEST_FILE, "the rest can't be checked by it"))
    return Checked(document, findings, rows)


_UNSEALED = Finding(MANIFEST_FILE, "it is not what was written: its own hash is another")


def _read_manifest(folder: Path) -> tuple[dict[str, Any], bool]:
    named = echo(str(folder))
    try:
        with (folder / MANIFEST_FILE).open("rb") as file:
            data = file.read(MANIFEST_BYTES_MAX)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError | NotADirectoryError)
        reason = "it has no manifest.json" if missing else error.strerror
        raise InvalidInput(f"{named} is no closing pack: {reason}") from None
    document, sealed = unseal(data)
    if sealed and (document.get("schema"), document.get("schema_version")) != (SCHEMA, SCHEMA_VERSION):
        raise InvalidInput(
            f"{named} is a pack of version {document.get('schema_version')}, and this checks {SCHEMA_VERSION}"
        )
    return document, sealed


def _find_all(folder: Path, document: Mapping[str, Any], rows: dict[str, int]) -> Iterator[Finding]:
    entries = {Path(entry["name"]).name: entry for entry in document["files"]}
    for path in sorted(folder.iterdir()):
        if path.name not in entries and path.name != MANIFEST_FILE:
            yield Finding(path.name, "it was not written with this pack")
    intact: set[str] = set()
    for name, entry in entries.items():
        found = list(find_in_bytes(folder / name, entry))
        yield from found
        if not found:
            intact.add(name)
    yield from find_in_counts(document)
    for name in sorted(intact):
        table = BY_NAME.get(Path(name).stem)
        if table is not None:
            yield from find_in_rows(folder / name, entries[name], table, document, rows)
    for table in BY_NAME.values():
        pair = (f"{table.name}.csv", f"{table.name}.parquet")
        if intact.issuperset(pair):
            yield from find_between(folder / pair[0], folder / pair[1], table)
    if (
        DOCUMENTATION_FILE in intact
        and (folder / DOCUMENTATION_FILE).read_bytes() != describe_columns().encode()
    ):
        yield Finding(DOCUMENTATION_FILE, "it describes other columns than this version writes")
