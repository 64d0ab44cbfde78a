"""After a run every line that was planned and not charged has its reason, and the sums agree."""

from activities.plan_versus_actual import Difference, compare
from tests.activities.planning import RUN_ID, Plans
from tests.activities.scene import DECLINING_CARD, GOOD_CARD
from tests.ledger.planting import close_run


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
    await scene.pool.execute("UPDATE charges SET amount_minor = 1001 WHERE customer = 'cus_1'")
    found = await compare(scene.pool, RUN_ID)
    assert (found.other_amounts, found.currencies["usd"].unexplained_minor) == (1, -1)
    assert not found.adds_up
