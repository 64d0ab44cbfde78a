"""A planner as a worker has it, beside the ledger and the simulated Stripe of a scene."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from activities.accounts import AccountKeys, Accounts, Credentials
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.planning import PlanLedger
from activities.ledger.runs import Run, RunLedger
from activities.plan import Planner
from tests.activities.local_limiter import LocalLimiter
from tests.activities.scene import ACCOUNT, API_KEY, PERIOD, RATE_PER_SECOND, Scene
from workflows.contracts import RunRequest

HEADER = "customer,currency,amount_minor,payment_method\n"
RUN_ID = f"billing-run/{ACCOUNT.id}/{PERIOD}"


@dataclass
class Plans:
    """Plans over CSV files in a folder of their own."""

    scene: Scene
    folder: Path
    opened: list[Accounts] = field(default_factory=list)

    def write(self, *rows: str, header: str = HEADER) -> Path:
        """Write the rows as a new source, and return its path."""
        path = self.folder / f"charges-{len(list(self.folder.iterdir()))}.csv"
        write_lines(path, *rows, header=header)
        return path

    def request(self, source: Path, **changes: Any) -> RunRequest:
        """Return what asks for a run over `source`; any plan is approved unless told otherwise."""
        fields: dict[str, Any] = {
            "account": ACCOUNT.id,
            "period": PERIOD,
            "run_id": f"billing-run/{ACCOUNT.id}/{changes.get('period', PERIOD)}",
            "source": str(source),
            "source_sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "started_by": "tests",
            "approve_any": "approved_hash" not in changes,
        }
        return RunRequest(**{**fields, **changes})

    async def locked(self, source: Path, **changes: Any) -> RunRequest:
        """Lock a run over `source`, and return its request."""
        request = self.request(source, **changes)
        await RunLedger(self.scene.pool).lock(
            request.run_id,
            account=request.account,
            period=request.period,
            owner="execution-1",
            source=request.source,
            source_sha256=request.source_sha256,
            started_by=request.started_by,
        )
        return request

    async def planned(self, *rows: str, **changes: Any) -> Run:
        """Lock and plan a run over these rows."""
        return await self.planner().plan(await self.locked(self.write(*rows), **changes))

    def planner(self, **options: Any) -> Planner:
        """Return a planner as a process of its own would have it."""
        accounts = Accounts(
            AccountKeys(key=SecretStr(API_KEY), api_base=self.scene.sim.url),
            open_gateway=_open_gateway,
            limiter_of=lambda _: LocalLimiter(RATE_PER_SECOND),
            requests_at_once=16,
            slices_at_once=4,
        )
        self.opened.append(accounts)
        return Planner(ledger=PlanLedger(self.scene.pool), accounts=accounts, **options)

    async def states(self, run_id: str = RUN_ID) -> dict[str, tuple[str, str | None]]:
        """Return state and reason of every charge of a run, by customer."""
        rows = await self.scene.pool.fetch(
            "SELECT customer, state, reason FROM charges WHERE run_id = $1", run_id
        )
        return {row["customer"]: (row["state"], row["reason"]) for row in rows}

    async def skipped(self, run_id: str = RUN_ID) -> dict[str | None, tuple[str, str]]:
        """Return reason and detail of every source row without a charge of the run, by customer."""
        rows = await self.scene.pool.fetch(
            "SELECT customer, reason, detail FROM skipped_rows WHERE run_id = $1", run_id
        )
        return {row["customer"]: (row["reason"], row["detail"]) for row in rows}


def write_lines(path: Path, *rows: str, header: str = HEADER) -> None:
    """Write a source."""
    path.write_text(header + "".join(f"{row}\n" for row in rows))


def _open_gateway(credentials: Credentials) -> StripeGateway:
    return StripeGateway(api_key=credentials.api_key.get_secret_value(), api_base=credentials.api_base)
