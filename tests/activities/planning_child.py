"""Plans one source in a process of its own, and tells how fast and in how much memory, as JSON on stdout."""

import asyncio
import json
import resource
import sys
import time

from pydantic import SecretStr

from activities.accounts import AccountKeys, Accounts
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import open_pool
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import RunLedger
from activities.plan import Planner
from activities.sources.opening import open_source
from tests.activities.local_limiter import LocalLimiter
from workflows.contracts import RunRequest

ACCOUNT = "acct_scale"


async def main(database_url: str, source: str, period: str) -> None:
    """Lock and plan `source`; payment methods are in it, so nobody is asked anything."""
    accounts = Accounts(
        AccountKeys(key=SecretStr("sk_test_synthetic"), connected=frozenset({ACCOUNT})),
        open_gateway=lambda _: StripeGateway(api_key="sk_test_synthetic", api_base="http://127.0.0.1:1"),
        limiter_of=lambda _: LocalLimiter(25.0),
        requests_at_once=64,
        slices_at_once=4,
    )
    request = RunRequest(
        account=ACCOUNT,
        period=period,
        run_id=f"billing-run/{ACCOUNT}/{period}",
        source=source,
        source_sha256=await open_source(source).fingerprint(),
        started_by="tests",
    )
    async with open_pool(database_url, connections=2) as pool:
        await RunLedger(pool).lock(
            request.run_id,
            account=ACCOUNT,
            period=period,
            owner="execution-1",
            source=source,
            source_sha256=request.source_sha256,
            started_by="tests",
        )
        began = time.monotonic()
        run = await Planner(ledger=PlanLedger(pool), accounts=accounts).plan(request)
        seconds = time.monotonic() - began
        summary = await pool.fetchval(
            "SELECT detail FROM run_events WHERE action = 'planned' AND run_id = $1", run.run_id
        )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    told = {
        "selected": run.selected,
        "slices": run.slices,
        "plan_hash": run.plan_hash,
        "seconds": seconds,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
        "comparison": summary["comparison"],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
