"""A million lines become a plan in flat memory, from either kind of file."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.postgres import Database

LINES = 1_000_000
PART_LINES = 50_000
MEMORY_MIB_MAX = 300
SECONDS_MAX = 1_500
CHECKOUT = Path(__file__).resolve().parents[2]


def columns(part: int) -> dict[str, list[Any]]:
    """Return lines of one part of the source; amounts repeat as prices do."""
    numbers = range(part * PART_LINES, (part + 1) * PART_LINES)
    return {
        "customer": [f"cus_{number:014d}" for number in numbers],
        "currency": ["eur" if number % 3 else "usd" for number in numbers],
        "amount_minor": [500 + number % 1_499 for number in numbers],
        "payment_method": [f"pm_{number:024d}" for number in numbers],
    }


def parts() -> Iterator[dict[str, list[Any]]]:
    """Yield the source part by part."""
    for part in range(LINES // PART_LINES):
        yield columns(part)


def write_csv(path: Path) -> None:
    """Write the source as CSV."""
    with path.open("w") as file:
        file.write("customer,currency,amount_minor,payment_method\n")
        for part in parts():
            file.writelines(f"{','.join(map(str, row))}\n" for row in zip(*part.values(), strict=True))


def write_parquet(path: Path) -> None:
    """Write the same source as Parquet."""
    writer: pq.ParquetWriter | None = None
    for part in parts():
        table = pa.table(part)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


async def plan(database: Database, source: Path, period: str) -> dict[str, Any]:
    """Plan a source in a child process, and return what it tells about itself."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.activities.planning_child", database.app_url, str(source), period,
        cwd=CHECKOUT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdout, _ = await asyncio.wait_for(child.communicate(), SECONDS_MAX)
    assert child.returncode == 0
    told: dict[str, Any] = json.loads(stdout)
    return told


@pytest.mark.proof
@pytest.mark.timeout(2 * SECONDS_MAX)
async def test_a_million_lines_are_planned_in_flat_memory(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From CSV and from Parquet: below 300 MiB, and the comparison with the other period is in the plan."""
    write_csv(tmp_path / "charges.csv")
    write_parquet(tmp_path / "charges.parquet")
    for name, period in (("charges.csv", "2031-03"), ("charges.parquet", "2031-04")):
        told = await plan(database, tmp_path / name, period)
        with capsys.disabled():
            rate = LINES / told["seconds"]
            print(
                f"\n{name}: {rate:,.0f} rows/s ({told['seconds']:.1f} s, {told['cpu_seconds']:.1f} s of CPU "
                f"in the planner), {told['memory_mib']:.0f} MiB"
            )
        assert (told["selected"], told["slices"]) == (LINES, LINES // 500)
        assert told["memory_mib"] < MEMORY_MIB_MAX
    assert told["comparison"]["same"] == LINES
