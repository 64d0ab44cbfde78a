"""A ledger, a simulator and workers around them, with both clocks in one hand.

Everything is real: PostgreSQL, the simulator over a socket, the SDK, ledger, sender, settler and carrier.
Only Temporal is left out: a `Worker` does what one attempt of an activity does.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import asyncpg

from activities.carry import Carrier, End
from activities.gateway.requests import StripeAccount, create_request
from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.charges import ChargeLedger, FirstSend, Resend
from activities.ledger.control import ControlLedger, Ruling
from activities.ledger.database import Pool, open_pool
from activities.ledger.frozen_plan import PlanTerms
from activities.ledger.planning import StagedLine
from activities.ledger.runs import RunLedger
from activities.limiter import Limiter
from activities.run_watch import RunWatch
from activities.send import Sender, request_for
from activities.settle import OPERATION_OF, Settler
from activities.skew_watch import SkewWatch
from deploy.postgres import Database
from deploy.stripe_sim.journal import Request
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.activities.local_limiter import LocalLimiter
from tests.ledger.planting import commit_plan
from workflows.domain.answer import METADATA_CHARGE, Answer
from workflows.domain.breaker import DEFAULT_RULES, Breaker, BreakerRules
from workflows.domain.charge import Charge, Intent, Outcome
from workflows.domain.keys import ChargeId, Identity, Operation, canonical_parameters
from workflows.domain.mode import claims_of
from workflows.domain.states import State
from workflows.domain.verdict import judge

START = 1_930_089_600.0  # 2031-03-01T00:00:00Z
ACCOUNT = StripeAccount("acct_sim", connected=False)
API_KEY = "sk_test_4Synthetic8Key0Of15Our23Tests42"
PERIOD, RUN_ID = "2031-03", "billing-run/acct_sim/2031-03"
TERMS = PlanTerms(run_id=RUN_ID, account=ACCOUNT.id, period=PERIOD, slice_lines=500)
AMOUNT_MINOR, CURRENCY = 4_200, "usd"
GOOD_CARD = "pm_card_visa_good"
DECLINING_CARD = "pm_card_chargeCustomerFail_bad"
SLOW_DEBIT = "pm_usBankAccount_slow"
RATE_PER_SECOND = 10_000.0
REQUESTS_AT_ONCE = 64
PAUSE_SECONDS = 0.001

CREATE, CONFIRM, CANCEL = Operation.CREATE, Operation.CONFIRM, Operation.CANCEL
OPERATIONS_SENT = {State.PLANNED: CREATE, State.PREPARED: CONFIRM}
PATHS = {CREATE: "^/v1/payment_intents$", CONFIRM: "/confirm$", CANCEL: "/cancel$"}


# What a run leaves behind, in the order in which it can be deleted.
LEDGER_TABLES = (
    "ledger_restores",
    "drift",
    "reconciliation_slices",
    "reconciliation_seen",
    "reconciliation_refunds",
    "reconciliation_requests",
    "reconciliation_gaps",
    "reconciliation_suspects",
    "reconciliations",
    "refund_requests",
    "inbox_events",
    "refunds",
    "disputes",
    "follow_ups",
    "corrections",
    "decisions",
    "attempts",
    "keys",
    "takeovers",
    "skipped_rows",
    "charges",
    "delivery_attempts",
    "notifications",
    "run_events",
    "run_totals",
    "billing_runs",
)


def seconds(clock_time: str) -> float:
    """Return hours:minutes[:seconds] as seconds."""
    hours, minutes, *rest = (int(part) for part in clock_time.split(":"))
    return float(hours * 3600 + minutes * 60 + (rest[0] if rest else 0))


@dataclass
class Worker:
    """One attempt of an activity in one process: its ledger, its limiter, its fence once it has claimed."""

    ledger: ChargeLedger
    gateway: StripeGateway
    limiter: Limiter
    sender: Sender
    settler: Settler
    breaker: Breaker
    watch: RunWatch
    carrier: Carrier
    run_id: str = RUN_ID
    is_draining: bool = False

    async def claim(self) -> list[Charge]:
        """Take everything that is due and may be carried on, as the run stands, under a new fence."""
        await self.watch.refresh()
        return await self.ledger.claim_due(self.run_id, limit=10_000, claims=claims_of(self.watch.mode))

    async def claim_one(self) -> Charge:
        """Take the only charge that is due."""
        [charge] = await self.claim()
        return charge

    async def work(self) -> dict[str, End]:
        """Claim what is due and carry it on, one after the other; return how each ended."""
        return {charge.charge_id: await self.carrier.carry(charge) for charge in await self.claim()}

    async def work_at_once(self) -> None:
        """Claim what is due and carry all of it on side by side, as a slice does."""
        await asyncio.gather(*(self.carrier.carry(charge) for charge in await self.claim()))

    async def intend(self, charge: Charge, operation: Operation) -> Intent:
        """Commit the first send of a new key and freeze there: the request has not left."""
        request = request_for(charge, operation)
        parameters = canonical_parameters(request.parameters)
        return await self.ledger.intend_first(
            FirstSend(charge, operation, request.path, parameters, reason="scripted")
        )

    async def intend_again(self, charge: Charge) -> Intent:
        """Commit one more send of the charge's newest key and freeze there."""
        operation = OPERATION_OF[charge.state]
        frozen, _ = await self.ledger.frozen_key(charge.key_of(operation, charge.version_of(operation)))
        return await self.ledger.intend_again(Resend(charge, frozen, reason="scripted"))

    async def transmit(self, intent: Intent) -> Answer:
        """Thaw: put an intent's request on the wire as it was frozen, however late."""
        return await self.gateway.post(
            intent.operation,
            account=ACCOUNT,
            path=intent.path,
            parameters=json.loads(intent.parameters),
            key=intent.key,
        )

    async def record(self, intent: Intent, answer: Answer) -> Charge:
        """Record an answer as the send path does."""
        verdict = judge(intent.operation, answer, first_send=intent.first_send)
        return await self.ledger.record(Outcome(intent, answer, verdict))


@dataclass
class Scene:
    """One run's ledger and the Stripe it charges at."""

    sim: RunningSim
    database: Database
    pool: Pool
    owner: "asyncpg.Connection[asyncpg.Record]"
    gateways: list[StripeGateway] = field(default_factory=list)

    # Time

    async def set_age(self, age_seconds: float, *, ledger_ahead_seconds: float = 0.0) -> None:
        """Stop both clocks so long after the start, the ledger's so far ahead of Stripe's."""
        self.sim.clock.freeze(START + age_seconds)
        at = datetime.fromtimestamp(START + age_seconds + ledger_ahead_seconds, tz=UTC)
        await self.owner.execute("SELECT move_ledger_clock(0, $1)", at)

    async def now(self) -> datetime:
        """Return the ledger's time."""
        return await self.pool.fetchval("SELECT ledger_now()")  # type: ignore[no-any-return]

    # Plan

    async def plan(self, cards: Sequence[str] = (GOOD_CARD,), **changes: Any) -> list[str]:
        """Plan one charge per card, each of a customer of its own, and return their ids."""
        lines = [staged_line(number, card, **changes) for number, card in enumerate(cards, start=1)]
        for line in lines:
            self.sim.seed(line.customer, line.payment_method or GOOD_CARD)
        runs = RunLedger(self.pool)
        await runs.lock(
            RUN_ID,
            account=ACCOUNT.id,
            period=PERIOD,
            owner="execution-1",
            source="lines.csv",
            source_sha256="0" * 64,
            started_by="tests",
        )
        await commit_plan(self.pool, TERMS, lines)
        return [line.charge_id for line in lines]

    async def prepare(self, worker: Worker, *, card: str = GOOD_CARD) -> Charge:
        """Plan one charge, claim it with `worker` and create its PaymentIntent."""
        await self.plan([card])
        sent = await worker.sender.send_first(await worker.claim_one(), CREATE, reason="planned")
        return sent.charge

    # Workers

    def worker(
        self,
        *,
        timeout_seconds: float = 10.0,
        url: str | None = None,
        limiter: Limiter | None = None,
        rules: BreakerRules = DEFAULT_RULES,
        run_id: str = RUN_ID,
    ) -> Worker:
        """Return a worker as a process of its own would have it: own ledger, gateway, limiter and breaker."""
        ledger, limiter = ChargeLedger(self.pool), limiter or LocalLimiter(RATE_PER_SECOND)
        gateway = StripeGateway(
            api_key=API_KEY,
            api_base=url or self.sim.url,
            connections=50,
            timeout_seconds=timeout_seconds,
        )
        self.gateways.append(gateway)
        skew = SkewWatch()
        sender = Sender(
            ledger=ledger,
            gateway=gateway,
            limiter=limiter,
            account=ACCOUNT,
            places=asyncio.Semaphore(REQUESTS_AT_ONCE),
            skew=skew,
        )
        settler = Settler(
            ledger=ledger, gateway=gateway, limiter=limiter, sender=sender, account=ACCOUNT, skew=skew
        )
        breaker, watch = Breaker(rules), RunWatch(ControlLedger(self.pool), run_id)
        carrier = Carrier(
            ledger=ledger,
            sender=sender,
            settler=settler,
            breaker=breaker,
            watch=watch,
            skew=skew,
            is_draining=lambda: worker.is_draining,
        )
        worker = Worker(ledger, gateway, limiter, sender, settler, breaker, watch, carrier, run_id)
        return worker

    async def work(self, run_id: str = RUN_ID) -> dict[str, End]:
        """Let a new worker claim what is due in a run and carry it on."""
        return await self.worker(run_id=run_id).work()

    # Decisions

    async def pause(self, kind: str = "paused") -> Ruling:
        """Let the run start nothing new."""
        return await ControlLedger(self.pool).hold(RUN_ID, kind, who="tests", reason="scripted")

    async def resume(self) -> Ruling:
        """Lift whatever hold there is."""
        return await ControlLedger(self.pool).resume(RUN_ID, who="tests", reason="scripted")

    async def cancel(self, run_id: str = RUN_ID) -> Ruling:
        """Let a run end, everything open canceled."""
        return await ControlLedger(self.pool).request_cancel(run_id, who="tests", reason="scripted")

    async def tamper(self, statement: str) -> None:
        """Give a charge another amount than its PaymentIntent has, which the ledger lets nobody do."""
        await self.owner.execute("ALTER TABLE charges DISABLE TRIGGER charges_check_body")
        try:
            await self.owner.execute(statement)
        finally:
            await self.owner.execute("ALTER TABLE charges ENABLE TRIGGER charges_check_body")

    # Faults

    def fault(self, kind: str, **options: Any) -> None:
        """Put one fault in force, alone; see `fault` for the options."""
        self.sim.set_faults(fault(kind, **options))

    def clear_faults(self) -> None:
        """Let everything through from now on."""
        self.sim.set_faults()

    # What happened

    @property
    def wire(self) -> list[str]:
        """Every POST, as `operation vN`, in the order of its arrival."""
        return [describe_key(request) for request in self.posts]

    @property
    def posts(self) -> list[Request]:
        """Every POST in the simulator's journal."""
        return [request for request in self.sim.requests if request.method == "POST"]

    @property
    def lookups(self) -> int:
        """How many GETs were on the wire."""
        return sum(request.method == "GET" for request in self.sim.requests)

    async def charge(self, charge_id: str | None = None) -> Charge:
        """Return a charge as it stands; without an id, the only one."""
        found = charge_id or await self.pool.fetchval("SELECT charge_id FROM charges")
        return await ChargeLedger(self.pool).read(found)

    async def due_at(self) -> datetime | None:
        """Return when the only charge is due."""
        return await self.pool.fetchval("SELECT due_at FROM charges")  # type: ignore[no-any-return]

    async def decisions(self) -> list[tuple[str, bool]]:
        """Return (decision, alarm) in the order of their making."""
        rows = await self.pool.fetch("SELECT decision, alarm FROM decisions ORDER BY decision_id")
        return [(row["decision"], row["alarm"]) for row in rows]

    async def alarms(self) -> int:
        """Return how many alarms were raised."""
        return sum(alarm for _, alarm in await self.decisions())

    async def sends(self) -> list[tuple[str, int, str | None]]:
        """Return (`operation vN`, send number, proof) of every attempt in the journal, oldest first."""
        rows = await self.pool.fetch(
            "SELECT k.operation, k.version, a.send_no, a.proof FROM attempts a JOIN keys k USING (key)"
            " ORDER BY a.intended_at, k.operation, k.version, a.send_no"
        )
        return [(f"{row['operation']} v{row['version']}", row["send_no"], row["proof"]) for row in rows]

    async def open_at_stripe(self) -> list[str]:
        """Return the PaymentIntents at Stripe that were never confirmed and still could be."""
        listed = await self.worker().gateway.list_payment_intents(
            ACCOUNT,
            customer=None,
            created_from_epoch_seconds=0,
            created_to_epoch_seconds=None,
            started_epoch_seconds=(await self.now()).timestamp(),
        )
        assert listed.complete
        return [one.id for one in listed.payment_intents if one.status == "requires_confirmation"]

    async def wait_for_a_blocked_statement(self) -> None:
        """Return once some statement waits for a lock; this server belongs to the test's process alone."""
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        async with asyncio.timeout(10):
            while not await self.owner.fetchval(waiting):  # noqa: ASYNC110 - nobody signals
                await asyncio.sleep(0.01)

    async def audit(self) -> None:
        """Judge ledger and wire by the simulator's own book: nobody twice, nobody counted who did not pay."""
        paid: dict[str, list[int]] = {}
        for movement in self.sim.movements:
            paid.setdefault(movement.metadata[METADATA_CHARGE], []).append(movement.amount)
        for charge_id, amounts in paid.items():
            assert len(amounts) == 1, f"I2: {charge_id} was charged {len(amounts)} times"
        for row in await self.pool.fetch("SELECT charge_id, state, amount_minor FROM charges"):
            amounts = paid.get(row["charge_id"], [])
            if row["state"] == State.SUCCEEDED:
                assert amounts == [row["amount_minor"]], f"{row['charge_id']} is not paid as the ledger says"
            if row["state"] in {State.DECLINED, State.REFUSED, State.CANCELED, State.NEEDS_CUSTOMER}:
                assert not amounts, f"{row['charge_id']} is {row['state']}, but was paid"
        await self._audit_wire()

    async def _audit_wire(self) -> None:
        committed = {
            row["key"]: (row["path"], row["at"].timestamp(), row["sends"])
            for row in await self.pool.fetch(
                "SELECT k.key, k.path, k.first_intended_at AS at, count(a.send_no) AS sends"
                "  FROM keys k JOIN attempts a USING (key) GROUP BY k.key"
            )
        }
        bodies: dict[str, set[str]] = {}
        counts: dict[str, int] = {}
        for request in self.posts:
            key = request.key or ""
            assert key in committed, f"I1: {key} was on the wire, but not in the ledger"
            assert request.path == committed[key][0], f"I3: {key} was sent to another path"
            bodies.setdefault(key, set()).add(request.body_sha256)
            counts[key] = counts.get(key, 0) + 1
        for key, count in counts.items():
            assert len(bodies[key]) == 1, f"I3: {key} was sent with several bodies"
            assert count <= committed[key][2], f"I7: {key} was sent more often than the journal says"


def staged_line(
    number: int, card: str, *, amount_minor: int = AMOUNT_MINOR, currency: str = CURRENCY, line: str = "base"
) -> StagedLine:
    """Return the plan's line for customer `number`."""
    identity = Identity.of(ACCOUNT.id, f"cus_{number}", PERIOD, line)
    return StagedLine(
        charge_id=identity.charge_id,
        customer=identity.customer,
        line=line,
        source_row=number + 1,
        currency=currency,
        amount_minor=amount_minor,
        payment_method=f"{card}_{number}",
        description=None,
        reason=None,
    )


def fault(
    kind: str,
    *,
    place: str = "before",
    name: str = "fault",
    operation: Operation | None = None,
    times: int = 0,
    match: dict[str, Any] | None = None,
    **effect: Any,
) -> dict[str, Any]:
    """Return one fault of a plan: `kind` with its `effect`, on the POSTs of an operation (or all)."""
    wanted: dict[str, Any] = {"times": times, **(match or {})}
    if operation is not None:
        wanted["path"] = PATHS[operation]
    return {"name": name, "place": place, "match": wanted, "effect": {"kind": kind, **effect}}


def describe_key(request: Request) -> str:
    """Return a POST's operation and version as its key tells them."""
    operation, _, rest = (request.key or "").partition("_")
    return f"{operation} {rest.rpartition('_')[2]}"


def create_body(charge: Charge, *, amount_minor: int, version: int) -> str:
    """Return the frozen parameters of a create with another amount, as a later takeover would freeze them."""
    request = create_request(
        amount_minor=amount_minor,
        currency=charge.currency,
        customer=charge.customer,
        payment_method=charge.payment_method or "",
        charge_id=ChargeId(charge.charge_id),
        create_key=charge.key_of(CREATE, version),
        period=charge.period,
        line=charge.line,
        run=charge.run_id,
    )
    return canonical_parameters(request.parameters)


@asynccontextmanager
async def open_scene(database: Database, **settings: Any) -> AsyncIterator[Scene]:
    """Open a ledger, emptied, and a simulator, whose clocks stand still at the start."""
    async with running_sim(**settings) as sim, open_pool(database.app_url, connections=6) as pool:
        owner = await asyncpg.connect(database.owner_url)
        scene = Scene(sim, database, pool, owner)
        try:
            for table in LEDGER_TABLES:
                await owner.execute(f"DELETE FROM {table}")
            await scene.set_age(0)
            yield scene
        finally:
            for gateway in scene.gateways:
                await gateway.close()
            await owner.close()
