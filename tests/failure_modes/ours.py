"""The same situations through chargeonce's own send path: ledger, gateway, settler and carrier.

Money moves with the confirm, so what befalls the unsafe client's only request befalls the confirm here; an
answer that is lost is lost for the create as well.
"""

import asyncio

from activities.carry import LATER_SECONDS, End
from activities.ledger.runs import RunLedger
from tests.activities.scene import (
    ACCOUNT,
    AMOUNT_MINOR,
    CONFIRM,
    CREATE,
    GOOD_CARD,
    PERIOD,
    RUN_ID,
    TERMS,
    Scene,
    Worker,
    fault,
    seconds,
    staged_line,
)
from tests.failure_modes.outcome import Outcome
from tests.ledger.planting import commit_plan
from workflows.domain.charge import Intent
from workflows.domain.keys import Identity
from workflows.domain.states import State

PATIENCE_SECONDS = 0.5
SLOWNESS_SECONDS = 1.5


async def count_outcome(scene: Scene) -> Outcome:
    """Count by the simulator's book and by the ledger, and let the auditor look at both and the wire."""
    await scene.audit()
    rows = await scene.pool.fetch("SELECT state FROM charges")
    recorded = sum(row["state"] == State.SUCCEEDED for row in rows)
    return Outcome(due=len(rows), charged=len(scene.sim.movements), recorded=recorded)


async def settle(scene: Scene, worker: Worker | None = None) -> None:
    """Let a worker claim what is due and carry it to its end."""
    ends = await (worker or scene.worker()).work()
    assert set(ends.values()) == {End.SETTLED}


async def settle_in_passes(scene: Scene, worker: Worker) -> int:
    """Do the same where charges may be left for later, as the run's timer does; return the passes."""
    passes, ends = 1, await worker.work()
    while End.DEFERRED in ends.values():
        await wait_until_quiet(scene)
        await scene.set_age(passes * LATER_SECONDS)
        passes, ends = passes + 1, await scene.work()
    assert set(ends.values()) == {End.SETTLED}
    return passes


async def wait_until_quiet(scene: Scene) -> None:
    """Return once Stripe has finished what it is still running for clients that are gone."""
    async with asyncio.timeout(10):
        while any(request.fate == "running" for request in scene.sim.requests):  # noqa: ASYNC110 - nobody signals
            await asyncio.sleep(0.01)


async def lose_both_answers(scene: Scene) -> None:
    """Stripe books create and confirm, and the connection closes before either answer."""
    await scene.plan()
    scene.sim.set_faults(
        fault("drop", name="create", place="after", operation=CREATE, times=1),
        fault("drop", name="confirm", place="after", operation=CONFIRM, times=1),
    )
    await settle(scene)


async def lose_patience(scene: Scene) -> None:
    """The confirm is booked, and its answer comes long after the worker has stopped waiting."""
    await scene.plan()
    scene.fault("delay", place="after", seconds=2.0, operation=CONFIRM, times=1)
    await settle(scene, scene.worker(timeout_seconds=PATIENCE_SECONDS))


async def confirm_and_vanish(scene: Scene) -> tuple[Worker, Intent]:
    """Let a worker send the confirm, which is booked, and die before an answer reaches it."""
    worker = scene.worker()
    intent = await worker.intend(await scene.prepare(worker), CONFIRM)
    scene.fault("drop", place="after", operation=CONFIRM, times=1)
    await worker.transmit(intent)
    return worker, intent


async def die_in_between(scene: Scene) -> None:
    """The process is gone after its confirm; the next one finds key and body on disk."""
    await confirm_and_vanish(scene)
    await settle(scene)


async def two_amounts_of_one_customer(scene: Scene) -> None:
    """Two lines of the same amount for one customer in one period are two identities, so four keys."""
    base = staged_line(1, GOOD_CARD)
    identity = Identity.of(ACCOUNT.id, base.customer, PERIOD, "usage")
    usage = base._replace(charge_id=identity.charge_id, line="usage", source_row=3)
    scene.sim.seed(base.customer, base.payment_method or GOOD_CARD)
    runs = RunLedger(scene.pool)
    await runs.lock(
        RUN_ID,
        account=ACCOUNT.id,
        period=PERIOD,
        owner="execution-1",
        source="lines.csv",
        source_sha256="0" * 64,
        started_by="tests",
    )
    await commit_plan(scene.pool, TERMS, [base, usage])
    await settle(scene)


async def two_customers_at_once(scene: Scene) -> None:
    """A batch of two, in the same instant."""
    await scene.plan([GOOD_CARD, GOOD_CARD])
    await settle(scene)


async def wait_a_day(scene: Scene) -> None:
    """The confirm was booked, the answer lost and the worker away for 25 hours: the lookup comes first."""
    await confirm_and_vanish(scene)
    await scene.set_age(seconds("25:00"))
    await settle(scene)


async def meet_a_409(scene: Scene) -> None:
    """The confirm is still running when its key is sent again: the key stays, the charge is unknown."""
    await scene.plan()
    scene.fault("delay", seconds=SLOWNESS_SECONDS, operation=CONFIRM, times=1)
    await settle_in_passes(scene, scene.worker(timeout_seconds=PATIENCE_SECONDS))
    assert 409 in {request.status for request in scene.posts}
    assert set(scene.wire) == {"create v1", "confirm v1"}


async def meet_a_429_after_a_lost_answer(scene: Scene) -> None:
    """The confirm was booked and not answered, and what comes next, a lookup, is answered 429."""
    await scene.plan()
    lookup = {"method": "GET", "times": 1}
    scene.sim.set_faults(
        fault("drop", name="lost", place="after", operation=CONFIRM, times=1),
        {"name": "429", "match": lookup, "effect": {"kind": "error", "status": 429}},
    )
    await settle_in_passes(scene, scene.worker())
    assert 429 in {request.status for request in scene.sim.requests}
    assert scene.wire == ["create v1", "confirm v1"]


async def meet_a_stored_500(scene: Scene) -> None:
    """The confirm was booked and answered 500, which its key would bring again for a day."""
    await scene.plan()
    scene.fault("error", place="after", status=500, stored=True, operation=CONFIRM, times=1)
    await settle(scene)


async def change_the_source(scene: Scene) -> None:
    """The source has another amount by now: the next start is refused, and the resume goes by the plan."""
    await confirm_and_vanish(scene)
    holder = await RunLedger(scene.pool).lock(
        f"{RUN_ID}/r2",
        account=ACCOUNT.id,
        period=PERIOD,
        owner="execution-2",
        source="corrected.csv",
        source_sha256="2" * 64,
        started_by="tests",
    )
    assert holder.run_id == RUN_ID
    await settle(scene)
    assert [movement.amount for movement in scene.sim.movements] == [AMOUNT_MINOR]


async def two_workers_at_once(scene: Scene) -> None:
    """Both have claimed the charge and carry it at the same time; only the newer fence may send."""
    await scene.plan()
    workers = scene.worker(), scene.worker()
    claimed = [(worker, await worker.claim_one()) for worker in workers]
    ends = await asyncio.gather(*(worker.carrier.carry(charge) for worker, charge in claimed))
    assert ends == [End.SUPERSEDED, End.SETTLED]
    assert scene.wire == ["create v1", "confirm v1"]
