"""What is kept on disk: batches, restarts, kill -9, and objects that are no longer in memory."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
import stripe

from deploy.stripe_sim import journal, store
from deploy.stripe_sim.log import Log
from deploy.stripe_sim.rows import Index, Rows
from deploy.stripe_sim.testing import RunningSim, running_sim
from tests.stripe_sim.calls import confirm, create
from tests.stripe_sim.conftest import open_client


def test_records_are_found_by_address(tmp_path: Path) -> None:
    """A record and its body are found again before and after they reach the file."""
    for folder in (None, tmp_path):
        log = Log(folder)
        assert list(log.read()) == []
        addresses = [log.append("a", number, body=b'{"b":%d}' % number) for number in range(3)]
        long = log.append("long", "x" * 100_000)
        for _ in range(2):
            assert log.load(addresses[1]) == (["a", 1], b'{"b":1}')
            assert log.load(long)[0] == ["long", "x" * 100_000]
            log.flush()
        log.close()


@pytest.mark.parametrize("cut_bytes", [1, 10, 40])
def test_a_batch_that_was_cut_is_lost_whole(tmp_path: Path, cut_bytes: int) -> None:
    """A kill in the middle of a write loses that request's batch and nothing before it."""
    log = Log(tmp_path)
    list(log.read())
    for request in range(2):
        log.append("first half", request)
        log.append("second half", request)
        log.commit()
    log.close()
    path = tmp_path / "stripe_sim.jsonl"
    os.truncate(path, path.stat().st_size - cut_bytes)
    again = Log(tmp_path)
    assert [record for _, record in again.read()] == [["first half", 0], ["second half", 0]]
    address = again.append("goes on")
    again.commit()
    assert again.load(address)[0] == ["goes on"]
    again.close()


def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    """A customer whose creation was answered is there after kill -9, and its key replays."""
    command = [sys.executable, "-m", "deploy.stripe_sim", "--port", "0", "--state-dir", str(tmp_path)]
    ids, replayed = [], []
    for _ in range(2):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[3]
            headers = {"Authorization": "Bearer sk_test_1", "Idempotency-Key": "k1"}
            request = Request(f"{url}/v1/customers", data=b"name=One", headers=headers, method="POST")
            with urlopen(request, timeout=30) as answer:
                ids.append(json.loads(answer.read())["id"])
                replayed.append(answer.headers.get("Idempotent-Replayed"))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)
            assert process.stdout is not None
            process.stdout.close()
    assert ids[0] == ids[1]
    assert replayed == [None, "true"]


async def test_objects_that_left_memory_are_read_again(
    sim: RunningSim, client: stripe.StripeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for two objects and two requests in memory, everything works as it does with room for all."""
    monkeypatch.setattr(store, "LIVE_OBJECTS_MAX", 2)
    monkeypatch.setattr(journal, "RECENT_REQUESTS_MAX", 2)
    intents = [await create(client, f"c{number}", amount=1_000 + number) for number in range(8)]
    for intent in intents:
        await confirm(client, intent.id, f"f{intent.id}")
    found = await client.v1.payment_intents.list_async({"customer": "cus_1", "limit": 100})
    assert [(item.id, item.amount, item.status) for item in reversed(found.data)] == [
        (intent.id, intent.amount, "succeeded") for intent in intents
    ]
    assert (await create(client, "c0", amount=1_000)).id == intents[0].id
    assert [movement.amount for movement in sim.movements] == [intent.amount for intent in intents]
    assert [entry.ordinal for entry in sim.requests] == list(range(1, 19))
    assert sim.requests[0].key == "c0"
    assert sim.summary()["statuses"] == {"succeeded": 8}


async def test_held_and_late_requests_survive_a_restart(tmp_path: Path) -> None:
    """A key that is in use, and a payment that comes late, are so after a restart too."""
    first, second = ({"path": "/confirm$", "only": [number]} for number in (1, 2))
    async with running_sim(state_dir=tmp_path, seed=7) as before, open_client(before.url) as client:
        before.seed("cus_1", "pm_card_visa_1")
        before.set_faults(
            {"name": "held", "match": first, "effect": {"kind": "hold", "seconds": 900}},
            {"name": "late", "match": second, "effect": {"kind": "late", "seconds": 900}},
        )
        intents = [await create(client), await create(client)]
        for number, intent in enumerate(intents):
            with pytest.raises(stripe.StripeError):
                await confirm(client, intent.id, f"k{number}")
    async with running_sim(state_dir=tmp_path) as after, open_client(after.url) as client:
        with pytest.raises(stripe.APIError) as caught:
            await confirm(client, intents[0].id, "k0")
        assert caught.value.http_status == 409
        after.clock.advance(1_000)
        assert len(after.movements) == 2
        assert (await confirm(client, intents[0].id, "k0")).status == "succeeded"
        assert after.requests[-1].replayed
        assert after.summary()["posts"] == 6


def test_rows_and_index() -> None:
    """Rows behave like a list that is read on demand, and an index like a dictionary of numbers."""
    rows = Rows(lambda: 4, lambda position: position * position)
    assert rows == [0, 1, 4, 9]
    assert (rows[-1], rows[1:3], list(reversed(rows)), 4 in rows) == (9, [1, 4], [9, 4, 1, 0], True)
    with pytest.raises(IndexError):
        rows[4]
    index = Index()
    index.put("a", 1)
    index.put("a", 2)
    assert (index.get("a"), "a" in index, index.get("b")) == (2, True, None)
    index.drop("a")
    assert "a" not in index
