"""Runs whose payloads are encrypted, on a real Temporal server, and what stands in their histories."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from tests.codec.keyring import keys_of, written
from tests.workflows.fake_ledger import FakeLedger
from tests.workflows.fakes import fake_activities
from tests.workflows.stage import IDENTITY, build_worker
from worker.payload_codec import KEY_ID_FIELD, converter_for


async def connect(address: str, *names: str) -> Client:
    """Return a client that encrypts with the first of these keys; without any, one that encrypts nothing."""
    converter = converter_for(keys_of(written(*names)) if names else None)
    return await Client.connect(address, data_converter=converter, identity=IDENTITY)


def worker_of(client: Client, task_queue: str, ledger: FakeLedger) -> Worker:
    """Return a worker with the client's keys."""
    return build_worker(client, task_queue, fake_activities(ledger))


def payloads_of(history: WorkflowHistory) -> list[Payload]:
    """Return every payload of a history, but for the markers that the SDK's core writes itself."""
    return [
        payload
        for event in history.events
        if not event.HasField("marker_recorded_event_attributes")
        for payload in _payloads_in(event)
    ]


def key_ids_of(history: WorkflowHistory) -> list[str]:
    """Return the id of the key of each payload; empty where it is not encrypted."""
    return [payload.metadata[KEY_ID_FIELD].decode() for payload in payloads_of(history)]


def bytes_of(*histories: WorkflowHistory) -> bytes:
    """Return histories as Temporal keeps them."""
    return b"".join(event.SerializeToString() for history in histories for event in history.events)


def _payloads_in(message: Message) -> Iterator[Payload]:
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for part in _parts_of(value):
            if isinstance(part, Message):
                yield from _payloads_in(part)


def _parts_of(value: Any) -> list[Any]:
    if isinstance(value, Message):
        return [value]
    return list(value.values()) if hasattr(value, "values") else list(value)
