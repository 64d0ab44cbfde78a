"""Same seed, same drill: what is drawn depends on the seed and the key, never on time or order."""

import asyncio
from typing import Any

import stripe

from deploy.stripe_sim.testing import running_sim
from tests.stripe_sim.calls import confirm, create
from tests.stripe_sim.conftest import open_client

SOME = {"probability": 0.2}
PLAN: list[dict[str, Any]] = [
    {
        "name": "drop",
        "match": SOME,
        "place": "after",
        "effect": {"kind": "drop", "book": 0.5},
    },
    {
        "name": "error",
        "match": SOME,
        "effect": {"kind": "error", "stored": True, "book": 0.5},
    },
    {"name": "reset", "match": {"probability": 0.1}, "effect": {"kind": "reset"}},
    {"name": "late", "match": {"path": "/confirm$", "probability": 0.1}, "effect": {"kind": "late"}},
]
CHARGES = 30


async def _charge(client: stripe.StripeClient, number: int) -> None:
    """One charge with up to three sends of each step, as a client that resends does."""
    intent = None
    for _ in range(3):
        try:
            intent = intent or await create(client, f"create-{number}")
            await confirm(client, intent.id, f"confirm-{number}")
        except stripe.StripeError:
            continue
        return


async def _drill(seed: int, *, concurrent: bool) -> list[dict[str, Any]]:
    """Run the drill with a frozen clock and return the journal."""
    async with running_sim(seed=seed) as sim, open_client(sim.url) as client:
        sim.clock.freeze(1_790_000_000)
        sim.seed("cus_1", "pm_card_visa_1")
        sim.set_faults(*PLAN)
        if concurrent:
            await asyncio.gather(*(_charge(client, number) for number in range(CHARGES)))
        else:
            for number in range(CHARGES):
                await _charge(client, number)
        return [request.show() for request in sim.requests]


def _by_key(journal: list[dict[str, Any]]) -> dict[str, list[Any]]:
    """Return what each key met, send by send."""
    met: dict[str, list[Any]] = {}
    for request in journal:
        met.setdefault(request["key"], []).append(request["faults"])
    return met


async def test_one_client_has_the_same_journal_twice() -> None:
    """With one client and one request at a time the journal is the same, to the last field."""
    first = await _drill(7, concurrent=False)
    assert first == await _drill(7, concurrent=False)
    assert any(request["faults"] for request in first)
    assert first != await _drill(8, concurrent=False)


async def test_many_clients_meet_the_same_faults_per_key() -> None:
    """With thirty clients at once, each key meets the same faults in the same order of its sends."""
    first, second = await _drill(7, concurrent=True), await _drill(7, concurrent=True)
    alone = await _drill(7, concurrent=False)
    assert _by_key(first) == _by_key(second)
    creates = {key: faults for key, faults in _by_key(first).items() if key.startswith("create")}
    assert creates == {key: faults for key, faults in _by_key(alone).items() if key.startswith("create")}
