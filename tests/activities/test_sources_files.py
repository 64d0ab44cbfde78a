"""Files of JSON lines and Parquet: what is theirs alone, and what no file may do."""

import os
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from activities.sources import SourceLine
from activities.sources.json_lines import LINE_CHARACTERS_MAX
from tests.activities.sources_at_hand import (
    Value,
    lines_of,
    opened,
    problems_of,
    read,
    write_parquet,
)
from workflows.domain.errors import InvalidInput

GOOD = '{"customer": "c1", "currency": "usd", "amount": "1"}'


async def read_json(folder: Path, content: str | bytes) -> list[Value]:
    """Read a content as JSON lines."""
    path = folder / "rows.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return await read(opened(str(path)))


def objects(count: int, start: int = 0) -> str:
    """Return lines that can be billed."""
    return "".join(
        f'{{"customer": "c{number}", "currency": "usd", "amount": 1}}\n'
        for number in range(start, start + count)
    )


async def test_numbers_of_json_are_read_digit_by_digit(tmp_path: Path) -> None:
    """No amount passes through a float: what is written is what is billed, or too many decimals."""
    found = await read_json(
        tmp_path,
        '{"customer": "c1", "currency": "usd", "amount": 19.990}\n'
        '{"customer": "c2", "currency": "usd", "amount": 1e3}\n'
        '{"customer": "c3", "currency": "usd", "amount": 0.30000000000000004}\n'
        '{"customer": "c4", "currency": "usd", "amount_minor": 1999}\n'
        '{"customer": "c5", "currency": "usd", "amount": NaN}\n',
    )
    assert [line.amount_minor for line in lines_of(found)] == [1999, 100_000, 1999]
    assert [problem.reason for problem in problems_of(found)] == [
        "'0.30000000000000004' has too many decimals: usd has 2",
        "'NaN' is not a plain number (digits with at most one '.')",
    ]


async def test_keys_may_change_from_line_to_line(tmp_path: Path) -> None:
    """Order, capitals and blanks of keys mean nothing, null is empty, and rows are physical lines."""
    found = await read_json(
        tmp_path,
        '\ufeff{"customer": "c1", "currency": "usd", "amount": "1", "amount_minor": null}\r\n'
        "\n"
        '{"Amount_Minor": 5, " currency ": "JPY", "CUSTOMER": "c2", "line": null, "amount": null}\n'
        '{"customer": "c3", "amount": "1"}\n',
    )
    assert lines_of(found) == [
        SourceLine(1, "c1", "base", "usd", 100, None, None),
        SourceLine(3, "c2", "base", "jpy", 5, None, None),
    ]
    assert [(problem.row, problem.column, problem.reason) for problem in problems_of(found)] == [
        (4, "currency", "currency is empty")
    ]


@pytest.mark.parametrize("key", ["amount", "customer", "note"])
async def test_a_key_that_stands_twice_is_refused(tmp_path: Path, key: str) -> None:
    """Two amounts under one name: parsers differ in which they would bill, so neither is."""
    (problem,) = problems_of(
        await read_json(tmp_path, f'{{"{key}": "1", "currency": "usd", "{key}": "2"}}\n')
    )
    assert problem.reason == f"columns duplicated: '{key}'"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "broken JSON"),
        (f"{GOOD},", "broken JSON (Extra data at character"),
        (f"{GOOD} {GOOD}", "broken JSON"),
        ("[" * 20_000, "broken JSON"),
        ('{"amount": ' + "9" * 5000 + "}", "broken JSON"),
        ('{"amount": 1e99999999999999999999}', "broken JSON"),
        ("customer,currency,amount", "broken JSON"),
        ("[1]", "a line of JSON that is no object: '[1]'"),
        ("null", "a line of JSON that is no object: 'null'"),
        ('{"customer": "' + "c" * LINE_CHARACTERS_MAX + '"}', "a line of more than"),
    ],
)
async def test_a_line_that_is_no_object_cannot_be_skipped(tmp_path: Path, line: str, said: str) -> None:
    """It is told by its row, takes no other row with it, and the file must not be billed."""
    found = await read_json(tmp_path, f"{objects(1)}{line}\n{objects(2, start=1)}")
    (problem,) = problems_of(found)
    assert problem.row == 2
    assert said in problem.reason
    assert not problem.skippable
    assert [line.row for line in lines_of(found)] == [1, 3, 4]


async def test_half_a_character_of_json_is_refused(tmp_path: Path) -> None:
    """A lone surrogate, which only an escape of JSON can write, is no text."""
    (problem,) = await read_json(tmp_path, '{"customer": "c\\ud83d", "currency": "usd", "amount": 1}\n')
    assert "half a character (U+D83D)" in problems_of([problem])[0].reason


async def test_utf16_is_named_as_such(tmp_path: Path) -> None:
    """JSON lines that a spreadsheet wrote as UTF-16 get one reason that says what to do."""
    (problem,) = await read_json(tmp_path, objects(3).encode("utf-16"))
    assert "UTF-16" in problems_of([problem])[0].reason


async def test_rows_of_parquet_are_counted_through_row_groups(tmp_path: Path) -> None:
    """Row numbers are those of records, from 1, whatever groups and batches they are in."""
    path = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "customer": pa.array([f"c{n}" for n in range(2500)]).dictionary_encode(),
            "Currency ": pa.array(["usd"] * 2500, pa.large_string()),
            "amount": pa.array(
                [None if n == 1700 else Decimal(n) for n in range(2500)], pa.decimal256(40, 6)
            ),
            "line": pa.nulls(2500),
        }
    )
    parquet.write_table(table, path, row_group_size=900)
    found = await read(opened(str(path)))
    assert [value.row for value in found] == list(range(1, 2501))
    assert [(problem.row, problem.reason) for problem in problems_of(found)] == [(1701, "amount is empty")]
    assert lines_of(found)[-1] == SourceLine(2500, "c2499", "base", "usd", 249_900, None, None)


def test_a_large_row_group_is_read_in_flat_memory(tmp_path: Path) -> None:
    """Sixty megabytes of one row group cost a fraction of them."""
    path, count = tmp_path / "rows.parquet", 120_000
    columns = {
        "customer": [f"cus_{number:014d}" for number in range(count)],
        "currency": ["usd"] * count,
        "amount_minor": list(range(count)),
        "description": [f"{number:0500d}" for number in range(count)],
    }
    parquet.write_table(pa.table(columns), path, row_group_size=count, use_dictionary=False)
    ran = subprocess.run(
        [sys.executable, "-c", READ_AND_WEIGH, str(path)], capture_output=True, text=True, check=True
    )
    read_count, grown_kib = map(int, ran.stdout.split())
    assert read_count == count
    assert grown_kib < 30 * 1024


READ_AND_WEIGH = """
import resource, sys
from pathlib import Path
from activities.sources.parquet_file import read_parquet

rows = read_parquet(Path(sys.argv[1]))
next(rows)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(1 + sum(1 for _ in rows), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("seed", range(40))
async def test_a_corrupt_parquet_file_is_invalid_input(tmp_path: Path, seed: int) -> None:
    """Bytes changed anywhere give a reason, a row that can't be billed, or the same rows: never a crash."""
    chance = random.Random(seed)
    path = tmp_path / "rows.parquet"
    rows = [{"customer": f"c{n}", "currency": "usd", "amount": f"{n}"} for n in range(300)]
    write_parquet(path, rows)
    content = bytearray(path.read_bytes())
    for _ in range(1 + seed % 4):
        content[chance.randrange(len(content))] = chance.randrange(256)
    path.write_bytes(content[: len(content) if seed % 5 else chance.randrange(len(content))])
    reasons = []
    try:
        reasons += [problem.reason for problem in problems_of(await read(opened(str(path))))]
    except InvalidInput as error:
        reasons.append(error.reason)
    assert all(reason.isprintable() for reason in reasons)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
async def test_a_file_that_cannot_be_read_is_invalid_input(tmp_path: Path, suffix: str) -> None:
    """Missing, empty, a directory, a FIFO: each is refused with its reason, and none makes us wait."""
    cases = {"missing": "No such file", "empty": "is empty", "folder": "a directory", "fifo": "regular file"}
    (tmp_path / f"empty.{suffix}").touch()
    (tmp_path / f"folder.{suffix}").mkdir()
    os.mkfifo(tmp_path / f"fifo.{suffix}")
    for name, said in cases.items():
        source = opened(str(tmp_path / f"{name}.{suffix}"))
        with pytest.raises(InvalidInput, match=said):
            await read(source)
        if name != "empty":
            with pytest.raises(InvalidInput, match=said):
                await source.fingerprint()


async def test_another_kind_of_file_is_no_parquet(tmp_path: Path) -> None:
    """A CSV file under the wrong name is told so."""
    path = tmp_path / "rows.parquet"
    path.write_text("customer,currency,amount\nc1,usd,1\n")
    with pytest.raises(InvalidInput, match="no intact Parquet file: 'Parquet magic bytes not found"):
        await read(opened(str(path)))
