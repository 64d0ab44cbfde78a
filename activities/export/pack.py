"""The closing pack of a run, written: every file over one moment of the ledger, whole or not at all."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from activities.accounts import Accounts
from activities.export.advice import what_to_do
from activities.export.audit_columns import AUDIT, AUDIT_FILE
from activities.export.cells import to_major
from activities.export.column_docs import describe_columns
from activities.export.columns import (
    ATTEMPTS,
    CHARGES,
    DOCUMENTATION_FILE,
    EXCEPTIONS,
    MANIFEST_FILE,
    RUNS,
    SCHEMA,
    SCHEMA_VERSION,
    SETTLEMENT,
    Table,
)
from activities.export.manifest import seal
from activities.export.pack_files import CsvFile, HashedFile, JsonLinesFile, ParquetFile, TableFile, TextFile
from activities.export.settlement import Reading, read_settlement, settle
from activities.export.totals import ChargeTotals, SettlementTotals
from activities.export.whole_folder import refuse_unusable, whole_folder
from activities.ledger.database import Pool
from activities.ledger.export import RunHeader, Snapshot, open_snapshot, read_settlement_window
from activities.ledger.settlement_spool import SettlementSpool, open_spool
from workflows.contracts import RunKey
from workflows.domain.errors import invariant

Derive = Callable[[Mapping[str, Any]], Mapping[str, Any]]
Records = AsyncIterator[Iterable[Mapping[str, Any]]]


class Format(StrEnum):
    """In what the tables are written."""

    CSV = "csv"
    PARQUET = "parquet"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack that was written."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def complete(self) -> bool:
        """Whether everything that belongs into it could be read."""
        return bool(self.manifest["complete"])


@dataclass
class _Writing:
    """One pack while it is written."""

    folder: Path
    formats: Sequence[Callable[[Path, Table], TableFile]]
    snapshot: Snapshot
    charges: ChargeTotals = field(default_factory=ChargeTotals)
    settlement: SettlementTotals = field(default_factory=SettlementTotals)
    entries: list[dict[str, Any]] = field(default_factory=list)

    async def write_table(
        self, table: Table, records: Records, add: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Write one table in every format, and add up its rows."""
        with ExitStack() as opened:
            files = [opened.enter_context(kind(self.folder, table)) for kind in self.formats]
            async for batch in records:
                rows = list(batch)
                for row in rows:
                    add(row)
                made = [tuple(row[name] for name in table.names) for row in rows]
                for file in files:
                    file.write(made)
        self.entries += [file.entry() for file in files]

    async def write_audit(self) -> None:
        """Write audit.jsonl, one kind after the other."""
        with JsonLinesFile(self.folder / AUDIT_FILE) as file:
            for table in AUDIT:
                async for batch in self.snapshot.batches(f"audit_{table.name}"):
                    file.write_all(table.name, (dict(row) for row in batch))
        self.entries.append(file.entry())

    def write_documentation(self) -> None:
        """Write columns.md."""
        with TextFile(self.folder / DOCUMENTATION_FILE) as file:
            file.write_lines(describe_columns())
        self.entries.append(file.entry())

    async def rows(self, *blocks: str, derive: Derive = lambda _row: {}) -> Records:
        """Yield the rows of blocks of export.sql, with what is made of each of them."""
        for block in blocks:
            async for batch in self.snapshot.batches(block):
                yield [{**row, **derive(row)} for row in map(dict, batch)]

    async def exceptions(self) -> Records:
        """Yield charges, rows of the source and takeovers; what one kind does not have is empty."""
        empty = dict.fromkeys(EXCEPTIONS.names)

        def complete(row: Mapping[str, Any]) -> Mapping[str, Any]:
            full = {**empty, **row}
            return {**full, "amount": _amount(full)["amount"], "what_to_do": what_to_do(full)}

        blocks = ("export_unusual_charges", "export_skipped_rows", "export_taken_over")
        async for batch in self.rows(*blocks, derive=complete):
            yield batch

    async def settlements(self, spool: SettlementSpool, reading: Reading) -> Records:
        """Yield what Stripe's balance shows of each charge."""
        async for batch in self.snapshot.batches("export_settlement_lines"):
            yield [row for line in map(dict, batch) for row in settle(line, spool, reading)]


async def write_pack(
    pool: Pool, accounts: Accounts, run_id: str, out: Path, *, formats: Format = Format.CSV
) -> Pack:
    """Write the closing pack of a run into `out`, a folder that is not there yet or empty.

    What Stripe or the proxy does not let us read is missing from settlement.csv alone; the manifest says so.

    Raises:
        InvalidInput: `out` can't be used.
        RefusedToStart: There is no such run.
    """
    refuse_unusable(out)
    window = await read_settlement_window(pool, run_id)
    with whole_folder(out) as folder, open_spool(folder / "spool.sqlite") as spool:
        reading = await read_settlement(
            accounts, RunKey(run_id=run_id, account=window.account), window, spool
        )
        async with open_snapshot(pool, run_id) as snapshot:
            writing = _Writing(folder, _WRITERS[formats], snapshot)
            await _write_everything(writing, spool, reading)
        document = _manifest(writing, reading)
        with HashedFile(folder / MANIFEST_FILE) as file:
            file.write(seal(document))
    return Pack(out, document)


_WRITERS: Mapping[Format, Sequence[Callable[[Path, Table], TableFile]]] = {
    Format.CSV: [CsvFile],
    Format.PARQUET: [ParquetFile],
    Format.BOTH: [CsvFile, ParquetFile],
}


async def _write_everything(writing: _Writing, spool: SettlementSpool, reading: Reading) -> None:
    await writing.write_table(RUNS, writing.rows("export_runs"), _ignore)
    await writing.write_table(CHARGES, writing.rows("export_charges", derive=_amount), writing.charges.add)
    await writing.write_table(ATTEMPTS, writing.rows("export_attempts"), _ignore)
    await writing.write_table(EXCEPTIONS, writing.exceptions(), _ignore)
    await writing.write_table(SETTLEMENT, writing.settlements(spool, reading), writing.settlement.add)
    await writing.write_audit()
    writing.write_documentation()


def _ignore(_row: Mapping[str, Any]) -> None:
    return


def _amount(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"amount": to_major(row["amount_minor"], row["currency"])}


def _manifest(writing: _Writing, reading: Reading) -> dict[str, Any]:
    header, charges = writing.snapshot.header, writing.charges
    counts = {**charges.lines, **{name: header.counts[name] for name in _elsewhere(header)}}
    invariant(counts == dict(header.counts), "charges.csv has every charge that the ledger counts")
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "run": header.run_id,
        "account": header.account,
        "period": header.period,
        "phase": header.phase,
        "plan_hash": header.plan_hash,
        "locked_at": header.locked_at.isoformat(),
        "closed_at": None if header.closed_at is None else header.closed_at.isoformat(),
        "snapshot_at": header.now.isoformat(),
        "complete": not reading.gaps,
        "incomplete": reading.gaps,
        "closed": header.phase == "closed",
        "selected": header.selected,
        "counts": dict(sorted(counts.items())),
        "planned": {
            row["currency"]: {name: row[name] for name in ("lines", "amount_minor", "cap_minor")}
            for row in header.plan
        },
        "totals": charges.as_json(),
        "settlement": {**writing.settlement.as_json(), "requests": reading.requests},
        "csv": "texts that a spreadsheet would run as a formula stand behind an apostrophe, and are counted "
        "for each file; everything else is as it is in the ledger",
        "files": writing.entries,
    }


def _elsewhere(header: RunHeader) -> Iterator[str]:
    """Yield what the run has selected and has no row in charges.csv: exceptions.csv has it."""
    return (name for name in ("skipped_rows", "taken_over") if name in header.counts)
