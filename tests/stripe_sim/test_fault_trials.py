"""Every kind of fault at every place it can stand: what the client is told, and what the money did."""

import pytest
import stripe

from deploy.stripe_sim.faults import EFFECT_KINDS, FaultPlanError, parse_plan
from deploy.stripe_sim.proof.fault_trials import TRIALS, Outcome, Trial, try_fault
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create

CONFIRMS = "/confirm$"


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: trial.name)
async def test_trial(trial: Trial) -> None:
    """The client is told what the fault says, and the book shows what really happened."""
    outcome = await try_fault(trial)
    assert outcome == Outcome(trial.told, trial.moved, trial.again, trial.later)


def test_every_kind_is_tried_at_every_place() -> None:
    """No kind of fault and no place of one is without a trial."""
    possible = {(kind, place) for kind, effect in EFFECT_KINDS.items() for place in effect.PLACES}
    assert {(trial.kind, trial.place) for trial in TRIALS} == possible


def test_a_place_that_makes_no_sense_is_refused() -> None:
    """A stored error cannot come in the middle of a body."""
    with pytest.raises(FaultPlanError, match="before or after"):
        parse_plan([{"name": "a", "effect": {"kind": "error"}, "place": "body"}])


async def test_key_revoked_from_request_n_on(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A 401 from the third request on lets two through and none after, whatever the method."""
    effect = {"kind": "error", "status": 401}
    sim.set_faults({"name": "revoked", "match": {"method": "*", "from_request": 3}, "effect": effect})
    intent = await create(client)
    await client.v1.payment_intents.retrieve_async(intent.id)
    for _ in range(2):
        with pytest.raises(stripe.AuthenticationError):
            await client.v1.payment_intents.retrieve_async(intent.id)


async def test_held_key_answers_409_until_the_clock_releases_it(
    sim: RunningSim, client: stripe.StripeClient
) -> None:
    """A held confirm is in use for its time, pays when it is over, and then replays what came of it."""
    sim.set_faults(
        {"name": "h", "match": {"path": CONFIRMS, "only": [1]}, "effect": {"kind": "hold", "seconds": 60}}
    )
    intent = await create(client)
    with pytest.raises(stripe.APIConnectionError):
        await confirm(client, intent.id, "k1")
    for _ in range(2):
        with pytest.raises(stripe.APIError) as caught:
            await confirm(client, intent.id, "k1")
        assert caught.value.http_status == 409
        sim.clock.advance(29)
    assert sim.movements == []
    sim.clock.advance(2)
    assert (await confirm(client, intent.id, "k1")).status == "succeeded"
    assert [entry.fate for entry in sim.requests][1:] == [
        "held, executed later",
        "conflict",
        "conflict",
        "replayed",
    ]


async def test_late_roll_forward_brings_its_events(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A stored 500 that is rolled forward pays an hour later; events tell, and the key still says 500."""
    sim.set_faults(
        {"name": "l", "match": {"path": CONFIRMS, "only": [1]}, "effect": {"kind": "late", "seconds": 3600}}
    )
    intent = await create(client)
    with pytest.raises(stripe.APIError):
        await confirm(client, intent.id, "k1")
    assert (await client.v1.payment_intents.retrieve_async(intent.id)).status == "requires_confirmation"
    sim.clock.advance(3_600)
    assert (await client.v1.payment_intents.retrieve_async(intent.id)).status == "succeeded"
    events = await client.v1.events.list_async({"type": "payment_intent.succeeded"})
    (event,) = events.data
    assert event.request is not None
    assert event.request.idempotency_key == "k1"
    with pytest.raises(stripe.APIError) as caught:
        await confirm(client, intent.id, "k1")
    assert caught.value.http_status == 500
    assert sim.requests[1].fate == "not executed, error stored, executed later"
