"""Kill -9 of the proxy at every step of a confirm."""

from pathlib import Path

import aiohttp
import pytest

from activities.crash_points import ProxyPoint
from deploy.postgres import Database
from tests.forking import Nursery
from tests.proxy.stage import Caller, Said, issue
from tests.proxy.two_proxies import TwoProxies, open_two_proxies
from workflows.domain.vault_keys import parse_vault_key

GOOD, BAD = "pm_card_visa_k", "pm_card_chargeCustomerFail_k"
AMOUNT = 700
TESTED = tuple(ProxyPoint)


@pytest.mark.parametrize("point", TESTED, ids=lambda point: point.value)
async def test_a_proxy_killed_at(
    point: ProxyPoint, database: Database, nursery: Nursery, tmp_path: Path
) -> None:
    """Killed at this point of a confirm: paid or declined once, and nothing stays held."""
    async with open_two_proxies(database, tmp_path, nursery, count=1) as world:
        world.sim.seed("cus_k", GOOD, BAD)
        key = await issue(database, {"usd": 2 * AMOUNT})
        known = parse_vault_key(key)
        assert known is not None
        for card in (BAD, GOOD):
            intent = await _confirm_through_a_kill(world, key, card, point)
            await world.sweep([known.key_id])
            paid = [entry.amount for entry in world.sim.movements if entry.payment_intent == intent]
            row = await world.owner.fetchrow("SELECT * FROM vault_budgets")
            assert row is not None
            assert paid == ([AMOUNT] if card == GOOD else [])
            assert (row["settled_minor"], row["held_minor"]) == (sum(paid), 0)
        assert await world.owner.fetchval("SELECT count(*) FROM vault_open") == 0
        assert await world.owner.fetchval("SELECT count(*) FROM vault_alarms") == 0


def test_every_point_has_a_kill_test() -> None:
    """The list in the code and the list of kill tests are the same."""
    assert set(TESTED) == set(ProxyPoint)


async def _confirm_through_a_kill(world: TwoProxies, key: str, card: str, point: ProxyPoint) -> str:
    (proxy,) = world.proxies
    caller = Caller(world.session, proxy.url, key)
    parameters = {"amount": AMOUNT, "currency": "usd", "customer": "cus_k", "payment_method": card}
    made = await caller.post("/v1/payment_intents", parameters, Idempotency_Key=f"create_{card}")
    await world.recorded()
    await proxy.kill()
    await proxy.start(CRASH_AT=point.value)
    said = await _try_to_confirm(caller, made.body["id"], card)
    await proxy.wait_for_death()
    await proxy.start()
    if said is None:  # as any client does that got no answer: the same key again
        said = await _try_to_confirm(caller, made.body["id"], card)
    assert said is not None
    assert said.status == (200 if card == GOOD else 402)
    await world.recorded()
    return str(made.body["id"])


async def _try_to_confirm(caller: Caller, intent: str, card: str) -> Said | None:
    try:
        return await caller.confirm(intent, key=f"confirm_{card}", card=card)
    except aiohttp.ClientError:
        return None
