"""After a run every line that was planned and not charged has its reason, and the sums agree."""

from activities.plan_versus_actual import Difference, compare
from tests.activities.planning import RUN_ID, Plans
from tests.activities.scene import CANCEL, DECLINING_CARD, GOOD_CARD
from tests.activities.second_run import LATER, again, bill_again, close
from tests.ledger.planting import close_run
from workflows.domain.states import State


async def test_what_was_not_charged_as_planned_has_its_reason(plans: Plans) -> None:
    """Planned is charged plus what was declined, canceled, taken over or is open, in lines and in money."""
    scene = plans.scene
    scene.sim.seed("cus_1", f"{GOOD_CARD}_1")
    scene.sim.seed("cus_2", f"{DECLINING_CARD}_2")
    await plans.planned(
        f"cus_1,usd,1000,{GOOD_CARD}_1", f"cus_2,usd,500,{DECLINING_CARD}_2", "cus_3,eur,300,pm_3",
        "cus_4,eur,50,pm_4", "cus_5,eur,0,pm_5",
    )  # fmt: skip
    await scene.pool.execute(
        "UPDATE charges SET state = 'canceled', reason = 'run canceled' WHERE customer IN ('cus_3', 'cus_4')"
    )
    open_still = await compare(scene.pool, RUN_ID)
    assert [part.standing for part in open_still.currencies["usd"].differences] == ["not_started"]
    assert open_still.adds_up
    await scene.work()
    await close_run(scene.pool, RUN_ID)
    await plans.planned("cus_4,usd,70,pm_4", run_id=f"{RUN_ID}/r2")

    found = await compare(scene.pool, RUN_ID)
    assert found.adds_up
    usd, eur = found.currencies["usd"], found.currencies["eur"]
    assert (usd.planned_lines, usd.planned_minor, usd.charged_lines, usd.charged_minor) == (2, 1500, 1, 1000)
    [declined] = usd.differences
    assert (declined.standing, declined.lines, declined.amount_minor) == ("declined", 1, 500)
    assert declined.reason != "no reason recorded"
    assert (eur.planned_lines, eur.planned_minor, eur.charged_lines) == (2, 350, 0)
    assert set(eur.differences) == {
        Difference("canceled", "run canceled", 1, 300),
        Difference("taken_over", f"by run {RUN_ID}/r2", 1, 50),
    }
    assert found.document()["adds_up"] is True


async def test_money_that_moved_otherwise_than_planned_shows(plans: Plans) -> None:
    """A row whose amount is not the frozen one, or a line without a trace, does not add up."""
    scene = plans.scene
    scene.sim.seed("cus_1", f"{GOOD_CARD}_1")
    await plans.planned(f"cus_1,usd,1000,{GOOD_CARD}_1", "cus_2,usd,500,pm_2")
    await scene.pool.execute("UPDATE charges SET state = 'canceled' WHERE customer = 'cus_2'")
    await scene.work()
    assert (await compare(scene.pool, RUN_ID)).adds_up
    await scene.tamper("UPDATE charges SET amount_minor = 1001 WHERE customer = 'cus_1'")
    found = await compare(scene.pool, RUN_ID)
    assert (found.other_amounts, found.currencies["usd"].unexplained_minor) == (1, -1)
    assert not found.adds_up


async def test_a_correction_that_came_too_late_has_its_reason(plans: Plans) -> None:
    """Paid as it was before the correction: the sums agree, and the difference says why it is there."""
    scene = plans.scene
    await scene.plan([DECLINING_CARD])
    await scene.work()
    await close(scene)
    declined = await scene.charge()
    await bill_again(scene, again(amount_minor=declined.amount_minor + 100))
    open_still = await compare(scene.pool, LATER)
    assert open_still.adds_up
    b = scene.worker(run_id=LATER)
    intent = await b.intend(await b.claim_one(), CANCEL)
    await scene.pool.execute("UPDATE charges SET state = 'succeeded'")
    assert (await b.record(intent, await b.transmit(intent))).state is State.SUCCEEDED
    found = await compare(scene.pool, LATER)
    usd = found.currencies["usd"]
    assert (usd.planned_minor - usd.charged_minor, found.adds_up) == (100, True)
    assert usd.differences == (
        Difference("not_corrected", "it was paid as it was before the correction", 0, 100),
    )


async def test_a_correction_of_the_currency_that_came_too_late_adds_up_in_both(plans: Plans) -> None:
    """Planned in euros, paid in dollars: one line is missing there, and one too many is here."""
    scene = plans.scene
    await scene.plan([DECLINING_CARD])
    await scene.work()
    await close(scene)
    await bill_again(scene, again(currency="eur"))
    await scene.pool.execute("UPDATE charges SET state = 'succeeded'")
    found = await compare(scene.pool, LATER)
    assert found.adds_up
    assert {code: part.differences[0].lines for code, part in found.currencies.items()} == {
        "eur": 1,
        "usd": -1,
    }
