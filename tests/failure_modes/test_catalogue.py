import asyncio
import re
from pathlib import Path

import pytest
import stripe

from tests.activities.scene import Scene
from tests.failure_modes.catalogue import ARTICLES, CATALOGUE, ONCE, Mode, draw_table
from tests.failure_modes.ours import count_outcome
from tests.failure_modes.shop import Shop

ROOT = Path(__file__).resolve().parents[2]
modes = pytest.mark.parametrize("mode", CATALOGUE, ids=lambda mode: mode.name.replace(" ", "_"))


@modes
async def test_an_unsafe_client_does_harm(shop: Shop, mode: Mode) -> None:
    """An unmodified library, used as its documentation invites to: the simulator's book shows the harm."""
    await mode.client(shop)
    outcome = await shop.outcome()
    print(f"unsafe client, {mode.name}: {outcome.show()}")
    assert outcome == mode.unsafe
    assert mode.unsafe.harm is not None


async def test_the_situation_alone_does_no_harm(shop: Shop) -> None:
    """With one key, made before the first attempt and kept, the same lost answer ends with one charge."""
    shop.lose_the_first_answer()
    due = shop.owe()
    client = shop.client()
    options: stripe.RequestOptions = {"idempotency_key": f"charge-{due.invoice}"}
    with pytest.raises(stripe.APIConnectionError):
        await asyncio.to_thread(client.v1.payment_intents.create, due.params, options)
    await asyncio.to_thread(client.v1.payment_intents.create, due.params, options)
    shop.paid.append(due.invoice)
    assert await shop.outcome() == ONCE


@modes
async def test_chargeonce_does_none(scene: Scene, mode: Mode) -> None:
    """The same situation through ledger, gateway and settler: each due is charged and recorded once."""
    await mode.way(scene)
    outcome = await count_outcome(scene)
    print(f"chargeonce, {mode.name}: {outcome.show()}")
    assert outcome == mode.ours
    assert mode.ours.harm is None
    assert mode.ours.due == mode.unsafe.due


def test_the_readme_shows_the_catalogue() -> None:
    """The table of the README is drawn from the one that the tests above check."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    match = re.search(r"<!-- failure-modes -->\n(.*?)\n<!-- /failure-modes -->", text, re.DOTALL)
    assert match is not None
    assert match[1] == draw_table()


def test_each_mode_has_a_name_a_client_and_an_article_of_its_own() -> None:
    """No row is there twice, and every article that modes were taken from is told in some row."""
    assert len({mode.name for mode in CATALOGUE}) == len(CATALOGUE)
    assert len({mode.client for mode in CATALOGUE}) == len(CATALOGUE)
    assert {mode.article for mode in CATALOGUE} == set(ARTICLES)
