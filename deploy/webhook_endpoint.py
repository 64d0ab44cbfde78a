"""The webhook endpoint of a stack's own simulator: made once per home, moved where the receiver listens."""

import json
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from deploy.stripe_sim.client import call_sim

DESCRIPTION = "chargeonce dev"
TIMEOUT_SECONDS = 10.0


def point_endpoint(simulator_url: str, secret_key: str, receiver_url: str) -> str:
    """Let the simulator deliver its events to a receiver; return the secret that it signs them with.

    Raises:
        ClientError: The simulator did not answer, or refused.
        OSError: The same.
    """
    known = _ask(simulator_url, secret_key, "/v1/webhook_endpoints?limit=100", None)["data"]
    ours = next((one["id"] for one in known if one.get("description") == DESCRIPTION), None)
    fields = {"url": receiver_url, "enabled_events[]": "*", "description": DESCRIPTION}
    path = "/v1/webhook_endpoints" if ours is None else f"/v1/webhook_endpoints/{ours}"
    made = _ask(simulator_url, secret_key, path, fields)
    shown = call_sim(simulator_url, "GET", "/_sim/webhooks")["endpoints"]
    return next(str(one["secrets"][0]) for one in shown if one["id"] == made["id"])


def _ask(simulator_url: str, secret_key: str, path: str, fields: dict[str, str] | None) -> dict[str, Any]:
    request = Request(  # noqa: S310 - the stack's own simulator
        simulator_url + path,
        data=None if fields is None else urlencode(fields).encode(),
        headers={"Authorization": f"Bearer {secret_key}"},
    )
    with urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - see above
        body: dict[str, Any] = json.load(answer)
    return body
