"""The closing pack of a run against the ledger, and against the simulator's own book."""

import json
import stat
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from activities.export.audit_columns import AUDIT, RECORD
from activities.export.column_docs import describe_columns
from activities.export.columns import BY_NAME, TABLES
from activities.export.pack import Format
from activities.ledger.export import open_snapshot
from tests.activities.scene import GOOD_CARD, RUN_ID
from tests.export.office import FORMULA, LINES, SKIPPED, Office, findings, read_manifest, read_table
from workflows.domain.errors import InvalidInput, RefusedToStart


async def test_a_pack_of_every_outcome_equals_ledger_and_the_simulators_book(office: Office) -> None:
    """Counts, amounts and settlement agree per currency with what really moved, and the pack verifies."""
    await office.run()
    await office.live_a_while()
    pack = await office.export()
    manifest = read_manifest(pack.folder)
    assert manifest["complete"] is True, manifest["incomplete"]
    totals, settlement = manifest["totals"], manifest["settlement"]
    moved = office.moved()
    assert {code: total["paid_minor"] for code, total in totals.items()} == moved
    by_type = {code: total["by_type"] for code, total in settlement["totals"].items()}
    assert {code: types["charge"]["gross_minor"] for code, types in by_type.items()} == moved
    assert sum(manifest["counts"].values()) == manifest["selected"] == len(LINES) + len(SKIPPED)
    rows = read_table(pack.folder, "charges")
    assert Counter(row["state"] for row in rows) == {
        "succeeded": 5, "declined": 1, "needs_customer": 1, "processing": 1,
    }  # fmt: skip
    assert totals["usd"]["returned_minor"] == 300
    assert by_type["usd"]["refund"]["gross_minor"] == -300
    assert findings(pack.folder) == []


async def test_every_currency_has_its_own_decimals(office: Office) -> None:
    """500 JPY has none, 1.990 KWD has three, and a settlement's fee and net are in the same."""
    await office.run()
    pack = await office.export()
    shown = {row["currency"]: row["amount"] for row in read_table(pack.folder, "charges")}
    assert (shown["jpy"], shown["kwd"]) == ("500", "1.990")
    for row in read_table(pack.folder, "settlement"):
        assert Decimal(row["gross"]) - Decimal(row["fee"]) == Decimal(row["net"])
        decimals = {"jpy": 0, "kwd": 3}.get(row["settlement_currency"], 2)
        assert Decimal(row["gross_minor"]).scaleb(-decimals) == Decimal(row["gross"])


async def test_exceptions_have_everything_that_is_not_paid_or_unusual_and_what_to_do(office: Office) -> None:
    """Declines with their codes, waiting customers and debits, skipped rows, a refund and a dispute."""
    await office.run()
    await office.live_a_while()
    pack = await office.export()
    rows = read_table(pack.folder, "exceptions")
    by_customer = {row["customer"]: row for row in rows}
    assert by_customer.keys() == {f"cus_{number}" for number in (4, 5, 6, 7, 8, 90, 91)}
    assert by_customer["cus_5"]["code"] == "card_declined"
    assert by_customer["cus_6"]["code"] == "authentication_required"
    assert by_customer["cus_7"]["state"] == "processing"
    assert (by_customer["cus_4"]["unusual"], by_customer["cus_4"]["returned_minor"]) == ("refund", "300")
    assert "dispute" in by_customer["cus_8"]["unusual"]
    assert "answer the dispute at Stripe by 20" in by_customer["cus_8"]["what_to_do"]
    assert by_customer["cus_90"]["subject"] == "source_row"
    assert by_customer["cus_90"]["reason"] == "zero_amount: @nothing is owed"
    assert all(row["what_to_do"] for row in rows)


async def test_attempts_tell_every_send_with_the_age_of_its_key(office: Office) -> None:
    """Key, version, age in seconds, request id and verdict stand in one row for each request on the wire."""
    await office.run()
    pack = await office.export()
    rows = read_table(pack.folder, "attempts")
    assert Counter(row["key"] for row in rows) == Counter(post.key for post in office.scene.posts)
    assert {row["key_age_seconds"] for row in rows} == {"0.0"}
    assert all(row["request_id"].startswith("req_") and row["verdict"] for row in rows)
    assert {row["charge_id"] for row in rows} == {
        row["charge_id"] for row in read_table(pack.folder, "charges")
    }


async def test_the_audit_has_every_kind_of_line_with_the_documented_fields(office: Office) -> None:
    """A line has exactly the fields of its kind, and every row of the ledger has a line."""
    await office.run()
    await office.live_a_while()
    await office.scene.pause()
    await office.scene.owner.execute(
        "INSERT INTO refund_requests (request_id, charge_id, account, run_id, payment_intent, amount_minor,"
        " currency, kind, who, reason, state, requested_at, changed_at) SELECT repeat('a', 24), charge_id,"
        " account, run_id, payment_intent, 1, currency, 'duplicate', 'tests', 'scripted', 'requested',"
        " ledger_now(), ledger_now() FROM charges WHERE state = 'succeeded' LIMIT 1"
    )
    pack = await office.export()
    fields = {table.name: {RECORD, *table.names} for table in AUDIT}
    assert not any(RECORD in table.names for table in AUDIT)
    lines = [json.loads(line) for line in (pack.folder / "audit.jsonl").read_text().splitlines()]
    assert all(line.keys() == fields[line[RECORD]] for line in lines)
    kinds = Counter(line[RECORD] for line in lines)
    for table in ("run_events", "decisions", "refund_requests", "refunds", "disputes"):
        assert kinds[table] == await office.scene.pool.fetchval(f"SELECT count(*) FROM {table}") > 0


async def test_cells_that_a_spreadsheet_would_run_are_inert_and_counted(office: Office) -> None:
    """Formulas stand behind an apostrophe, numbers below zero do not, and Parquet keeps texts as they are."""
    from pyarrow.parquet import read_table as read_parquet

    await office.run()
    await office.live_a_while()
    pack = await office.export(formats=Format.BOTH)
    about = {row["customer"]: row["description"] for row in read_table(pack.folder, "charges")}
    assert about["cus_2"] == f"'{FORMULA}"
    assert about["cus_3"] == "'\t'+1 234"
    assert about["cus_6"] == "'-5"
    assert about["cus_8"] == "'\uff1dSUM(A1)"
    assert about["cus_4"] == LINES[3][3].replace(";=", ";'=")
    assert read_table(pack.folder, "runs")[0]["source"] == "'=lines.csv"
    refunds = [row["gross"] for row in read_table(pack.folder, "settlement") if row["type"] == "refund"]
    assert refunds == ["-3.00"]
    counted = {entry["name"]: entry.get("neutralised_cells") for entry in read_manifest(pack.folder)["files"]}
    assert (counted["charges.csv"], counted["runs.csv"]) == (5, 1)
    kept = read_parquet(pack.folder / "charges.parquet").to_pylist()
    assert [row["description"] for row in kept] == [line[3] for line in LINES]


async def test_parquet_equals_csv(office: Office) -> None:
    """Both formats of every table have the same rows, and each alone verifies with the same totals."""
    await office.run()
    await office.live_a_while()
    both = await office.export("both", Format.BOTH)
    assert findings(both.folder) == []
    names = {f"{table.name}.{ending}" for table in TABLES for ending in ("csv", "parquet")}
    assert {path.name for path in both.folder.iterdir()} == {
        *names, "audit.jsonl", "columns.md", "manifest.json",
    }  # fmt: skip
    parquet = await office.export("parquet", Format.PARQUET)
    assert findings(parquet.folder) == []
    assert parquet.manifest["totals"] == both.manifest["totals"]
    assert parquet.manifest["settlement"]["totals"] == both.manifest["settlement"]["totals"]


async def test_an_empty_run_has_a_pack(office: Office) -> None:
    """Every file is there with its header, in both formats, and verifies."""
    await office.run([])
    pack = await office.export(formats=Format.BOTH)
    assert read_table(pack.folder, "charges") == []
    assert len(read_table(pack.folder, "exceptions")) == len(SKIPPED)
    assert findings(pack.folder) == []


async def test_a_pack_is_its_owners_alone(office: Office) -> None:
    """It names customers: nobody else may look into it, whatever the umask."""
    await office.run(LINES[:1])
    pack = await office.export()
    assert stat.S_IMODE(pack.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in pack.folder.iterdir()} == {0o600}


def _filled(place: Path) -> None:
    place.mkdir()
    (place / "kept.txt").write_text("kept")


@pytest.mark.parametrize(
    ("prepare", "what"),
    [
        (_filled, "not empty"),
        (lambda place: place.write_text("kept"), "no folder"),
        (lambda place: place.symlink_to("/"), "no folder"),
    ],
)
async def test_what_is_there_is_never_written_over(office: Office, prepare: Any, what: str) -> None:
    """A folder with something in it, a file and a link are refused, and stay as they were."""
    await office.run(LINES[:1])
    prepare(office.folder / "pack")
    with pytest.raises(InvalidInput, match=what):
        await office.export()
    assert [path.name for path in office.folder.iterdir()] == ["pack"]


async def test_an_empty_folder_is_filled_and_a_missing_one_above_is_refused(office: Office) -> None:
    """Whoever made the folder may have it; where there is nothing to put it in, the message says so."""
    await office.run(LINES[:1])
    (office.folder / "pack").mkdir()
    assert findings((await office.export()).folder) == []
    with pytest.raises(InvalidInput, match="make it first"):
        await office.export("not/there")


async def test_a_run_that_is_not_there_leaves_nothing(office: Office) -> None:
    """The refusal comes before any folder is made."""
    with pytest.raises(RefusedToStart, match="there is no run"):
        await office.export()
    assert list(office.folder.iterdir()) == []


async def test_a_pack_of_a_run_is_the_same_whoever_writes_it(office: Office) -> None:
    """Rows have one order and values one form: two packs of one moment have the same bytes."""
    await office.run()
    one, two = await office.export("one"), await office.export("two", Format.BOTH)
    for path in one.folder.iterdir():
        if path.name != "manifest.json":
            assert path.read_bytes() == (two.folder / path.name).read_bytes(), path.name


def test_every_column_is_documented_once() -> None:
    """The documentation has each column of each table with its meaning, and is made of nothing else."""
    text = describe_columns()
    for table in (*TABLES, *AUDIT):
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert f"| {column.name} | {column.kind} | {column.about} |" in text
    assert text.count("\n| ") == sum(len(table.columns) + 1 for table in (*TABLES, *AUDIT))


async def test_columns_are_those_of_the_statements(office: Office) -> None:
    """What a statement returns and no column takes would be read for nothing."""
    from activities.ledger.export import _SQL

    used_for_advice = {
        "export_unusual_charges": {"phase", "hold", "hold_reason", "canceling", "create_version", "slice_no"}
    }
    blocks = {
        "export_runs": "runs", "export_charges": "charges", "export_attempts": "attempts",
        "export_unusual_charges": "exceptions", "export_skipped_rows": "exceptions",
        "export_taken_over": "exceptions", "export_settlement_lines": "settlement",
    }  # fmt: skip
    tables = {block: BY_NAME[table].names for block, table in blocks.items()}
    tables |= {f"audit_{table.name}": table.names for table in AUDIT}
    async with office.scene.pool.acquire() as connection:
        for block, names in tables.items():
            prepared = await connection.prepare(_SQL[block])
            found = {attribute.name for attribute in prepared.get_attributes()}
            assert found - set(names) - used_for_advice.get(block, set()) == set(), block


async def test_a_charge_that_was_taken_over_is_an_exception_of_the_run_that_lost_it(office: Office) -> None:
    """The earlier run's pack says who has it, the later one's has the charge, and both add up."""
    await office.run([(GOOD_CARD, 4_200, "usd", None), LINES[4]])
    declined = await office.scene.pool.fetchval("SELECT charge_id FROM charges WHERE state = 'declined'")
    later = f"{RUN_ID}/r2"
    await office.scene.owner.execute(
        "INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by,"
        " selected, planned_at, locked_at, plan_hash, approved_hash, counts) SELECT $1, account, period,"
        " 'execution-2', 'closed', source, source_sha256, started_by, 1, planned_at, locked_at, plan_hash,"
        " approved_hash, '{}'"
        " FROM billing_runs",
        later,
    )
    await office.scene.owner.execute(
        "INSERT INTO takeovers (charge_id, from_run, to_run, at, reason, from_state, currency, amount_minor)"
        " VALUES ($1, $2, $3, ledger_now(), 'declined before', 'declined', 'usd', 900)",
        declined, RUN_ID, later,
    )  # fmt: skip
    await office.scene.owner.execute("UPDATE charges SET run_id = $1 WHERE charge_id = $2", later, declined)
    pack = await office.export()
    assert findings(pack.folder) == []
    [lost] = [row for row in read_table(pack.folder, "exceptions") if row["subject"] == "taken_over"]
    assert (lost["other_run"], lost["amount"], lost["charge_id"]) == (later, "9.00", declined)
    assert pack.manifest["counts"] == {"skipped_rows": 2, "succeeded": 1, "taken_over": 1}
    assert [row["relation"] for row in read_table(pack.folder, "runs")] == ["exported", "taken_over_by"]


async def test_every_file_is_of_one_moment(office: Office) -> None:
    """What changes while the files are written, one after the other, is in none of them."""
    paid, *_ = await office.run(LINES[:2])
    async with open_snapshot(office.scene.pool, RUN_ID) as snapshot:
        before = [[dict(row) for row in batch] async for batch in snapshot.batches("export_charges")]
        await office.scene.owner.execute("UPDATE charges SET reason = 'changed' WHERE charge_id = $1", paid)
        await office.scene.pause()
        after = [[dict(row) for row in batch] async for batch in snapshot.batches("export_charges")]
        events = [row async for batch in snapshot.batches("audit_run_events") for row in batch]
    assert after == before
    assert "paused" not in {event["action"] for event in events}
