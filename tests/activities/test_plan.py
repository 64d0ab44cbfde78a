"""Planning from a real file into a real ledger: what is planned is what was asked for, or nothing is."""

from pathlib import Path

import pytest

from activities import crash_points
from activities.crash_points import CrashPoint
from activities.ledger.runs import RunLedger
from activities.plan import Planner
from activities.sources.csv_file import sha256_of
from tests.activities.scene import ACCOUNT, PERIOD, RUN_ID, Scene, Worker
from tests.activities.test_carry import refusing_url
from workflows.contracts import RunRequest
from workflows.domain.errors import InvalidInput, NothingWasSent

HEADER = "customer,currency,amount_minor,payment_method\n"


def planner(scene: Scene, worker: Worker) -> Planner:
    """Return a planner as a worker has it."""
    return Planner(
        ledger=RunLedger(scene.pool), gateway=worker.gateway, limiter=worker.limiter, account=ACCOUNT
    )


async def locked(scene: Scene, source: Path) -> RunRequest:
    """Lock a run over `source` and return its request."""
    request = RunRequest(
        account=ACCOUNT.id,
        period=PERIOD,
        run_id=RUN_ID,
        source=str(source),
        source_sha256=sha256_of(source),
        started_by="tests",
    )
    await RunLedger(scene.pool).lock(
        RUN_ID,
        account=ACCOUNT.id,
        period=PERIOD,
        owner="execution-1",
        source=request.source,
        source_sha256=request.source_sha256,
        started_by=request.started_by,
    )
    return request


async def test_a_source_that_changes_while_it_is_read_is_refused(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hash was right at the first look; by the last one it is another file, and nothing is planned."""
    source = tmp_path / "charges.csv"
    source.write_text(f"{HEADER}cus_1,usd,100,pm_1\n")
    request = await locked(scene, source)

    def change(point: CrashPoint) -> None:
        if point is CrashPoint.PLAN_WHILE_STREAMING:
            source.write_text(f"{HEADER}cus_1,usd,900,pm_1\n")

    monkeypatch.setattr(crash_points, "_hook", change)
    with pytest.raises(InvalidInput, match="has changed"):
        await planner(scene, scene.worker()).plan(request)
    assert await scene.pool.fetchval("SELECT count(*) FROM charges") == 0


async def test_a_planner_that_meets_silence_says_so(scene: Scene, tmp_path: Path) -> None:
    """An error of one of many lookups arrives as itself: its type and message are what a history shows."""
    source = tmp_path / "charges.csv"
    source.write_text(f"{HEADER}cus_1,usd,100,\ncus_2,usd,100,\n")
    request = await locked(scene, source)
    with pytest.raises(NothingWasSent, match="does not say how cus_"):
        await planner(scene, scene.worker(url=refusing_url())).plan(request)
    assert (await RunLedger(scene.pool).read(RUN_ID)).phase == "locked"
