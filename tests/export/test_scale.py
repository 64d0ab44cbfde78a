"""A pack of a million lines: its memory is that of a small one."""

import asyncio
import json
import sys
from pathlib import Path

import asyncpg
import pytest

from deploy.postgres import Database
from tests.forking import CHECKOUT

FEW, MANY = 20_000, 1_000_000
GROWTH_MAX = 1.25
ACCOUNT, PERIOD = "acct_sim", "2031-03"
RUN = f"billing-run/{ACCOUNT}/{PERIOD}"

_FILL = """
INSERT INTO billing_runs (run_id, account, period, owner, phase, source, source_sha256, started_by, selected,
                          planned_at, locked_at, plan_hash, approved_hash, approved_at, slices)
VALUES ('{run}', 'acct_sim', '2031-03', 'owner', 'settling', 'lines.csv', 'ab', 'tests', {lines},
        ledger_now(), ledger_now(), 'planted', 'planted', ledger_now(), 1);
INSERT INTO charges (charge_id, run_id, account, customer, period, line, source_row, slice_no, currency,
                     amount_minor, payment_method, state, reason, payment_intent, create_version,
                     confirm_version, changed_at)
SELECT md5(n::text), '{run}', 'acct_sim', 'cus_' || n, '2031-03', 'base', n, n / 500, 'usd', 1250, 'pm_' || n,
       CASE WHEN n % 10 = 0 THEN 'declined' ELSE 'succeeded' END, 'planted', 'pi_' || n, 1, 1, ledger_now()
  FROM generate_series(1, {lines}) n;
INSERT INTO keys (key, charge_id, operation, version, path, parameters, fingerprint, first_intended_at,
                  reason)
SELECT 'confirm_' || md5(n::text) || '_v1', md5(n::text), 'confirm', 1, '/v1/payment_intents', '{{}}', 'f',
       ledger_now(), 'planned'
  FROM generate_series(1, {lines}) n;
INSERT INTO attempts (key, send_no, fence, reason, intended_at, answered_at, transport, http_status,
                      request_id, proof, verdict, code)
SELECT 'confirm_' || md5(n::text) || '_v1', 1, 1, 'planned', ledger_now(), ledger_now(), 'answered', 200,
       'req_' || n, 'settled', 'settled', CASE WHEN n % 10 = 0 THEN 'card_declined' END
  FROM generate_series(1, {lines}) n;
ANALYZE;
"""
_EXPORT = """
import asyncio, json, re, sys, time
from pathlib import Path
from activities.accounts import AccountKeys, Accounts
from activities.export.check import check_pack
from activities.export.pack import Format, write_pack
from activities.ledger.database import open_pool
from workflows.domain.errors import RefusedToStart

def peak_kib():  # getrusage would tell that of whoever has started us, where it is larger
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

class Nobody(Accounts):
    def __init__(self): pass
    async def of(self, run, use=None): raise RefusedToStart("nobody is asked here")

async def main():
    began = time.monotonic()
    async with open_pool(sys.argv[1], connections=2) as pool:
        pack = await write_pack(pool, Nobody(), sys.argv[2], Path(sys.argv[3]), formats=Format(sys.argv[4]))
    written = time.monotonic() - began
    peak = peak_kib()
    found = check_pack(Path(sys.argv[3])).findings
    print(json.dumps({
        "lines": pack.manifest["selected"], "seconds": round(written, 1), "kib": peak,
        "kib_with_check": peak_kib(),
        "check_seconds": round(time.monotonic() - began - written, 1), "findings": len(found)}))
asyncio.run(main())
"""


async def _measure(database: Database, lines: int, out: Path, formats: str) -> dict[str, float]:
    run = f"{RUN}/{lines}"
    owner = await asyncpg.connect(database.owner_url)
    try:
        await owner.execute("DELETE FROM billing_runs WHERE run_id = $1", run)
        await owner.execute(_FILL.format(run=run, lines=lines))
    finally:
        await owner.close()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _EXPORT, database.app_url, run, str(out), formats, cwd=CHECKOUT,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await process.communicate()
    assert process.returncode == 0
    measured: dict[str, float] = json.loads(said)
    print(formats, measured)
    assert measured["findings"] == 0
    return measured


@pytest.mark.proof
@pytest.mark.timeout(1_800)
async def test_a_million_lines_take_no_more_memory_than_a_few(database: Database, tmp_path: Path) -> None:
    """Rows come through cursors and go to files: peak memory of a million is that of twenty thousand."""
    few = await _measure(database, FEW, tmp_path / "few", "csv")
    owner = await asyncpg.connect(database.owner_url)
    for table in ("attempts", "keys", "charges", "billing_runs"):
        await owner.execute(f"DELETE FROM {table}")
    await owner.close()
    many = await _measure(database, MANY, tmp_path / "many", "csv")
    assert many["kib"] <= few["kib"] * GROWTH_MAX
    assert many["kib_with_check"] <= few["kib_with_check"] * GROWTH_MAX
