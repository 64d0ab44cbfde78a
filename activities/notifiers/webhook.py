"""A signed webhook: the payload as JSON, once per try, with a signature that its receiver can check."""

import json
import time

from activities.notifiers.destination import Payload
from activities.notifiers.http_post import post_json
from activities.notifiers.signature import HEADER, sign


class Webhook:
    """A system of the operator's own. How it checks the signature: `activities.notifiers.signature`."""

    name = "webhook"

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._secret = secret

    async def deliver(self, payload: Payload) -> str:
        """Post it, signed with the time of this try. A 2xx is delivered. Raises NotDelivered."""
        body = json.dumps(payload, sort_keys=True, separators=(",", ":")).encode()
        # Receivers compare `t` with their own clocks, so it is real time, whatever the ledger's clock says.
        signature = sign(self._secret, body, at_epoch_seconds=int(time.time()))
        return await post_json(self._url, body, headers={HEADER: signature})
