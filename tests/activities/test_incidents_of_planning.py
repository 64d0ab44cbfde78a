"""Public incidents that planning keeps from happening, by their numbers."""

import pytest

from activities.sources.cells import DESCRIPTION_CHARACTERS_MAX, LINE_CHARACTERS_MAX
from tests.activities.planning import RUN_ID, Plans
from tests.activities.scene import GOOD_CARD, PERIOD
from workflows.domain.answer import (
    METADATA_CHARGE,
    METADATA_CREATE_KEY,
    METADATA_LINE,
    METADATA_PERIOD,
    METADATA_RUN,
)
from workflows.domain.errors import InvalidInput

TAGS = {f"tag_{number}": "x" for number in range(60)} | {"long": "v" * 700, "k" * 45: "x", "list": "[1, 2]"}


async def test_i21_tags_never_reach_the_metadata(plans: Plans) -> None:
    """Sixty tags, a value of 700 characters, a key of 45 and a list: refused by name, none of it is sent."""
    header = f"customer,currency,amount_minor,payment_method,{','.join(TAGS)}\n"
    source = plans.write(
        f"cus_1,usd,100,pm_1,{','.join(TAGS.values())}".replace("[1, 2]", '"[1, 2]"'), header=header
    )
    with pytest.raises(InvalidInput, match="unknown"):
        await plans.planner().preview(plans.request(source))


async def test_i21_b_the_longest_line_has_the_same_small_metadata(plans: Plans) -> None:
    """Whatever a source may say at most, the charge carries five short texts and goes through."""
    line, description = "l" * LINE_CHARACTERS_MAX, "d" * DESCRIPTION_CHARACTERS_MAX
    plans.scene.sim.seed("cus_1", GOOD_CARD)
    header = "customer,currency,amount_minor,payment_method,line,description\n"
    source = plans.write(f"cus_1,usd,4200,{GOOD_CARD},{line},{description}", header=header)
    await plans.planner().plan(await plans.locked(source))
    await plans.scene.work()
    charge = await plans.scene.charge()
    [movement] = plans.scene.sim.movements
    assert movement.metadata == {
        METADATA_CHARGE: charge.charge_id,
        METADATA_CREATE_KEY: f"create_{charge.charge_id}_v1",
        METADATA_LINE: line,
        METADATA_PERIOD: PERIOD,
        METADATA_RUN: RUN_ID,
    }
