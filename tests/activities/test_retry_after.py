"""A long `Retry-After` becomes a due time, not a sleep that nobody sees or can end."""

import asyncio
from datetime import timedelta

import pytest

from activities.carry import End
from tests.activities.scene import CONFIRM, CREATE, Scene
from workflows.domain.keys import Operation
from workflows.domain.states import State

HOUR_SECONDS = 3_600


@pytest.mark.parametrize("operation", [CREATE, CONFIRM], ids=["create", "confirm"])
@pytest.mark.parametrize("status", [429, 503])
async def test_an_hours_retry_after_is_a_due_time(scene: Scene, operation: Operation, status: int) -> None:
    """The charge is left at once, due when Stripe said, with the reason; after that it pays, once."""
    await scene.plan()
    scene.fault(
        "error", status=status, headers={"Retry-After": str(HOUR_SECONDS)}, operation=operation, times=1
    )
    async with asyncio.timeout(10):
        assert set((await scene.work()).values()) == {End.DEFERRED}
    due_at = await scene.due_at()
    assert due_at is not None
    assert due_at - await scene.now() > timedelta(seconds=HOUR_SECONDS - 30)
    assert (await scene.charge()).reason == f"Stripe asks to wait {HOUR_SECONDS} s"
    assert await scene.work() == {}
    await scene.set_age(HOUR_SECONDS + 60)
    assert set((await scene.work()).values()) == {End.SETTLED}
    assert (await scene.charge()).state is State.SUCCEEDED
    await scene.audit()
