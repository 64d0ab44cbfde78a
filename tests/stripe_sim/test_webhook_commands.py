"""Plans for webhooks in a file, and the delivery log on the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import stripe

from deploy.stripe_sim.testing import RunningSim
from deploy.stripe_sim.webhook_plan import WebhookPlanError, parse_webhook_plan, read_webhook_plan
from tests.stripe_sim.calls import create
from tests.stripe_sim.test_command_line import run


async def test_one_file_for_both_plans(sim: RunningSim, client: stripe.StripeClient, tmp_path: Path) -> None:
    """`sim faults set` puts both kinds of faults in force; `sim webhooks` shows what came."""
    plan = tmp_path / "drill.json"
    lost = {"name": "lost", "match": {"type": "created"}, "effect": {"kind": "drop"}}
    plan.write_text(json.dumps({"faults": [], "webhooks": [lost]}))
    done = await asyncio.to_thread(run, "faults", "set", str(plan), url=sim.url)
    assert done.exit_code == 0, done.stderr
    body: Any = {"url": "http://127.0.0.1:9/hook", "enabled_events": ["payment_intent.created"]}
    await client.v1.webhook_endpoints.create_async(body)
    await create(client)
    await sim.deliver()
    shown = await asyncio.to_thread(run, "webhooks", url=sim.url)
    assert "dropped by a fault" in shown.stdout
    assert "1 attempts in all" in shown.stdout
    counts = sim.simulator.courier.plan.show()["counts"]
    assert counts == {"lost": {"matched": 1, "fired": 1}}


@pytest.mark.parametrize(
    "document",
    [
        {},
        [{"effect": {"kind": "drop"}}],
        [{"name": "x", "effect": {"kind": "explode"}}],
        [{"name": "x", "effect": {"kind": "drop"}, "surprise": 1}],
        [{"name": "x", "effect": {"kind": "drop"}, "match": {"type": "("}}],
        [{"name": "x", "effect": {"kind": "drop"}, "match": {"probability": 2}}],
        [{"name": "x", "effect": {"kind": "delay", "seconds": -1}}],
        [{"name": "x", "effect": {"kind": "drop"}}, {"name": "x", "effect": {"kind": "drop"}}],
    ],
)
def test_plans_that_make_no_sense(document: Any) -> None:
    """A plan is refused as a whole, with the reason."""
    with pytest.raises(WebhookPlanError):
        parse_webhook_plan(document)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file is a plan error like any other."""
    with pytest.raises(WebhookPlanError):
        read_webhook_plan(tmp_path / "nothing.json")
