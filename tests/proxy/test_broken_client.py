"""The client that the proxy is for: a new random key per attempt, in a loop."""

import uuid

from tests.proxy.stage import Stage

DUE_MINOR = 2_999
CUSTOMERS = 10
CAP_MINOR = DUE_MINOR * CUSTOMERS * 110 // 100


async def test_a_new_key_per_attempt_stops_at_the_cap(stage: Stage) -> None:
    """A loop that charges ten customers again and again, each time as if for the first time, is stopped."""
    caller = await stage.caller_with({"usd": CAP_MINOR})
    attempts = paid = 0
    refused = None
    while refused is None:
        attempts += 1
        made = await caller.create(DUE_MINOR, key=uuid.uuid4().hex)
        said = await caller.confirm(made.body["id"], key=uuid.uuid4().hex)
        paid += said.status == 200
        refused = said if said.status == 429 else None
        assert attempts < 10 * CUSTOMERS
    moved = sum(entry.amount for entry in stage.sim.movements)
    standing = await stage.settled_standing()
    print(
        f"\ndue {CUSTOMERS} x {DUE_MINOR} = {CUSTOMERS * DUE_MINOR}, cap {CAP_MINOR}: the loop asked for "
        f"{attempts * DUE_MINOR}, moved {moved}, then {refused.body['error']['message']}"
    )
    assert moved == paid * DUE_MINOR == standing["settled_minor"]
    assert CAP_MINOR - DUE_MINOR < moved <= CAP_MINOR
