"""Incident I25: histories that no longer replay, and payloads and histories that grow with the customers."""

from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.stage import Stage, count_scheduled, finish
from tests.workflows.test_replay import parse, read, replay

LINES, LINES_PER_REAL_SLICE = 50_000, 500
PAYLOAD_BYTES_MAX = 200_000
EVENTS_MAX = 10_000


async def test_i25_a_a_run_of_200_lines_replays_on_this_build() -> None:
    """A history that an earlier build has written is one that this build would write."""
    history = parse(read("two_hundred_lines"))
    assert count_scheduled(history, "charge_slice") == 21
    await replay(history)


async def test_i25_c_a_run_of_50000_lines_stays_small(stage: Stage, ledger: FakeLedger) -> None:
    """A hundred slices of 500: no payload above 200 KB, far fewer than 10,000 events, and the run ends."""
    ledger.slices = LINES // LINES_PER_REAL_SLICE
    handle = await stage.start(slice_size=LINES_PER_REAL_SLICE)
    assert (await finish(handle)).phase == "closed"
    histories = await stage.histories(handle)
    largest = max(event.ByteSize() for history in histories for event in history.events)
    assert largest < PAYLOAD_BYTES_MAX / 20
    assert max(len(history.events) for history in histories) < EVENTS_MAX / 5
    assert sum(count_scheduled(history, "charge_slice") for history in histories) == 100
