"""By a vault key the gateway tells the proxy until when it may send, and keeps the key to itself."""

import time

from activities.gateway.calls import NOT_AFTER_HEADER, boottime_seconds
from activities.gateway.classify import AnswerReader
from activities.gateway.stripe_gateway import StripeGateway
from tests.gateway.till import ACCOUNT, API_KEY, CREATE, create, create_key, gateway_at, nothing_was_sent
from tests.gateway.wire import answering, http, raw_server
from workflows.domain.answer import Answer
from workflows.domain.vault_keys import CHANCE_BYTES, Mode, random_vault_key

VAULT_KEY = random_vault_key(Mode.TEST, bytes(range(CHANCE_BYTES)))
OTHER_KEY = random_vault_key(Mode.TEST, bytes(reversed(range(CHANCE_BYTES))))
PAID = http("200 OK", b'{"object": "payment_intent"}', "Content-Type: application/json")


async def send(gateway: StripeGateway, *, leave_within_seconds: float | None = 5.0) -> Answer:
    """Send a create that may leave for so long."""
    request = create()
    leave_by = None if leave_within_seconds is None else boottime_seconds() + leave_within_seconds
    return await gateway.post(
        CREATE, account=ACCOUNT, path=request.path, parameters=request.parameters, key=create_key(),
        leave_by_boottime_seconds=leave_by,
    )  # fmt: skip


def header_of(request: bytes, name: str) -> str | None:
    """Return a header of a request on the wire."""
    for line in request.decode().split("\r\n"):
        found, _, value = line.partition(": ")
        if found.lower() == name.lower():
            return value
    return None


async def test_the_proxy_is_told_until_when_it_may_send() -> None:
    """The not-after time is the process's own deadline, in real time; a request without one has no header."""
    async with (
        raw_server(answering(PAID), keep_open=True) as wire,
        gateway_at(wire.url, api_key=VAULT_KEY) as gateway,
    ):
        await send(gateway)
        await send(gateway, leave_within_seconds=None)
    first, second = wire.requests
    assert abs(float(header_of(first, NOT_AFTER_HEADER) or 0) - time.time() - 5.0) < 4.0
    assert header_of(second, NOT_AFTER_HEADER) is None


async def test_stripe_itself_is_told_nothing_of_it() -> None:
    """With a real key there is no proxy on the way, and no header of ours on the wire."""
    async with raw_server(answering(PAID)) as wire, gateway_at(wire.url, api_key=API_KEY) as gateway:
        await send(gateway)
    assert header_of(wire.requests[0], NOT_AFTER_HEADER) is None


async def test_runs_share_connections_and_no_key() -> None:
    """A gateway under another key sends by that one, over the same connections, and closes with them."""
    async with raw_server(answering(PAID), keep_open=True) as wire:
        gateway = gateway_at(wire.url, api_key=VAULT_KEY)
        other = gateway.under(OTHER_KEY)
        for each in (gateway, other, gateway):
            await send(each)
        await gateway.close()
        assert nothing_was_sent(await send(other))
    keys = [header_of(request, "Authorization") for request in wire.requests]
    assert keys == [f"Bearer {VAULT_KEY}", f"Bearer {OTHER_KEY}", f"Bearer {VAULT_KEY}"]


def test_a_vault_key_is_as_secret_as_a_stripe_key() -> None:
    """Any whole vault key in a text from outside is blanked, ours or not; a public id is not."""
    reader = AnswerReader(VAULT_KEY)
    cleaned = reader.text(f"{VAULT_KEY} {OTHER_KEY} {OTHER_KEY[:18]}")
    assert cleaned == f"[key] [key] {OTHER_KEY[:18]}"
