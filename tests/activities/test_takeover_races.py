"""Run after run over the same lines, with senders that freeze, die and thaw: the book shows each line once.

Every run prints its seed; CHARGEONCE_SEED repeats one.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from activities import crash_points
from activities.crash_points import CrashPoint
from activities.ledger.runs import RunLedger
from deploy.postgres import Database
from tests.activities.conftest import hurry
from tests.activities.scene import (
    AMOUNT_MINOR,
    DECLINING_CARD,
    GOOD_CARD,
    RUN_ID,
    SLOW_DEBIT,
    Scene,
    Worker,
    fault,
    open_scene,
    seconds,
    staged_line,
)
from tests.activities.second_run import bill_again, close
from tests.activities.test_races import draw_seed
from workflows.domain.answer import Answer
from workflows.domain.charge import Intent
from workflows.domain.errors import StaleWrite
from workflows.domain.states import PAID_OR_PAYING, State
from workflows.domain.window import SAFETY_MARGIN_SECONDS, WINDOW_SECONDS

CUSTOMERS = 6
CARDS = (GOOD_CARD, DECLINING_CARD, DECLINING_CARD, SLOW_DEBIT, "pm_card_authenticationRequired")
STEPS = ("work",) * 5 + ("move",) * 4 + ("thaw", "close", "close", "close", "cancel", "faults")
MOVES = ("0:01", "1:00", "6:00", "23:50", "24:00", "24:00", "72:00")
DEATHS = (
    CrashPoint.SETTLE_AFTER_LOOKUP, CrashPoint.SETTLE_AFTER_APPLY, CrashPoint.CREATE_BEFORE_INTENT,
    CrashPoint.CONFIRM_BEFORE_INTENT, CrashPoint.CANCEL_BEFORE_INTENT, CrashPoint.CREATE_AFTER_RECORD,
    CrashPoint.CONFIRM_AFTER_RECORD, CrashPoint.CANCEL_AFTER_RECORD,
)  # fmt: skip


class Died(Exception):
    """The process of this worker is gone."""


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


class Saga:
    """A random life of a few lines over several runs of their period."""

    def __init__(self, scene: Scene, dice: random.Random) -> None:
        self.scene = scene
        self.dice = dice
        self.runs = [RUN_ID]
        self.age_seconds = 0.0
        self.frozen: list[tuple[Worker, Intent]] = []
        self.steps: list[str] = []

    async def begin(self) -> None:
        """Plan the first run."""
        await self.scene.plan([self.dice.choice(CARDS) for _ in range(CUSTOMERS)])

    async def step(self) -> None:
        """Take one random step."""
        name = self.dice.choice(STEPS)
        self.steps.append(name)
        await getattr(self, f"_{name}")()

    async def end(self) -> None:
        """Thaw everybody, mend the wire, and bill until nothing is due any more."""
        self.scene.clear_faults()
        while self.frozen:
            await self._thaw()
        for _ in range(8):
            self.age_seconds += WINDOW_SECONDS + 60
            await self.scene.set_age(self.age_seconds)
            await self.scene.worker(run_id=self.runs[-1]).work()
            if await self._try_to_close():
                await self._bill_again(GOOD_CARD)

    async def _work(self) -> None:
        worker = self.scene.worker(run_id=self.runs[-1], timeout_seconds=5)
        transmit = worker.sender._transmit

        async def freeze_or_die(intent: Intent, leave_by: float) -> Answer:
            fate = self.dice.random()
            if fate < 0.12:
                self.frozen.append((worker, intent))
                raise Died
            answer = await transmit(intent, leave_by)
            if fate < 0.2:
                raise Died
            return answer

        worker.sender._transmit = freeze_or_die  # type: ignore[method-assign]
        with self._dying_anywhere():
            for charge in await worker.claim():
                try:
                    await worker.carrier.carry(charge)
                except Died:
                    if self.dice.random() < 0.5:
                        return

    @contextmanager
    def _dying_anywhere(self) -> Iterator[None]:
        def die(point: CrashPoint) -> None:
            if point in DEATHS and self.dice.random() < 0.04:
                raise Died

        crash_points.install(die)
        try:
            yield
        finally:
            crash_points.install(crash_points._survive)

    async def _thaw(self) -> None:
        if self.frozen:
            worker, intent = self.frozen.pop(self.dice.randrange(len(self.frozen)))
            await worker.record(intent, await worker.transmit(intent))

    async def _move(self) -> None:
        self.age_seconds += seconds(self.dice.choice(MOVES))
        await self.scene.set_age(self.age_seconds)

    async def _faults(self) -> None:
        match = {"probability": 0.1}
        faults = [
            fault("drop", name="lost before", place="before", match=match),
            fault("drop", name="lost after", place="after", match=match),
            fault("error", name="stored 500", status=500, stored=True, book=0.5, match=match),
            fault("error", name="400", status=400, match={"probability": 0.05}),
        ]
        self.scene.sim.set_faults(*(faults if self.dice.random() < 0.7 else []))

    async def _cancel(self) -> None:
        await self.scene.cancel(self.runs[-1])
        await self._work()

    async def _close(self) -> None:
        if await self._try_to_close():
            await self._bill_again(None)

    async def _try_to_close(self) -> bool:
        try:
            await close(self.scene, self.runs[-1])
        except StaleWrite:
            return False
        return True

    async def _bill_again(self, card: str | None) -> None:
        number = len(self.runs) + 1
        self.runs.append(f"{RUN_ID}/r{number}")
        lines = [
            staged_line(
                customer,
                f"{card or self.dice.choice(CARDS)}_{number}",
                amount_minor=AMOUNT_MINOR + self.dice.choice((0, 0, 100, 200)),
            )
            for customer in range(1, CUSTOMERS + 1)
        ]
        await bill_again(self.scene, *lines, run_id=self.runs[-1])

    async def judge(self) -> None:
        """I2, I3 and I7 by book and wire, I4 and I5 by the journal, I9 for every run."""
        await self.scene.audit()
        runs = RunLedger(self.scene.pool)
        for run_id in self.runs:
            counted = sum((await runs.counts(run_id)).values())
            assert counted == (await runs.read(run_id)).selected, f"I9: {run_id}"
        too_early = await self.scene.pool.fetch(
            "SELECT k.key FROM keys k"
            "  JOIN keys p ON p.charge_id = k.charge_id AND p.operation = k.operation"
            "             AND p.version = k.version - 1"
            " WHERE k.first_intended_at - p.first_intended_at < $1 * interval '1 second'"
            "   AND (k.operation <> 'cancel' OR k.payment_intent = p.payment_intent)",
            WINDOW_SECONDS,
        )
        assert not too_early, f"I4: {too_early}"
        too_late = await self.scene.pool.fetch(
            "SELECT a.key FROM keys k JOIN attempts a USING (key)"
            " WHERE a.send_no > 1 AND a.intended_at - k.first_intended_at >= $1 * interval '1 second'",
            WINDOW_SECONDS - SAFETY_MARGIN_SECONDS,
        )
        assert not too_late, f"I5: {too_late}"


async def live(stage: Database, seed: int, *, keys_kept_longer: bool) -> None:
    """Live one saga to its end, judged at every step."""
    dice = random.Random(seed)
    async with open_scene(stage, seed=seed, keys_kept_longer=keys_kept_longer) as scene:
        saga = Saga(scene, dice)
        await saga.begin()
        for _ in range(45):
            await saga.step()
            await saga.judge()
        await saga.end()
        await saga.judge()
        for row in await scene.pool.fetch("SELECT state, reason, payment_intent, run_id FROM charges"):
            for_people = row["state"] == State.REVIEW or "not canceled yet" in (row["reason"] or "")
            assert row["state"] in PAID_OR_PAYING or for_people, (seed, saga.steps, dict(row))


@pytest.mark.parametrize("keys_kept_longer", [False, True], ids=["keys_pruned", "keys_kept_longer"])
async def test_no_line_is_paid_twice_over_any_runs(stage: Database, *, keys_kept_longer: bool) -> None:
    """Declined, canceled, corrected, frozen, killed: I2 to I5, I7 and I9 hold, and every line is billed."""
    await live(stage, draw_seed(), keys_kept_longer=keys_kept_longer)


@pytest.mark.proof
@pytest.mark.timeout(1_800)
async def test_no_line_is_paid_twice_in_a_hundred_sagas(stage: Database) -> None:
    """The same over a hundred seeds."""
    first = draw_seed()
    for number in range(100):
        await live(stage, first + number, keys_kept_longer=number % 2 == 1)
