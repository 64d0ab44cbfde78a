"""A Slack-compatible incoming webhook: {"text": ...}, which Mattermost and others take as well."""

import json

from activities.notifiers.destination import Payload
from activities.notifiers.http_post import post_json
from activities.notifiers.wording import text_of

# The control characters of such a text: https://docs.slack.dev/messaging/formatting-message-text
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class SlackChannel:
    """A channel."""

    name = "slack"

    def __init__(self, url: str) -> None:
        self._url = url

    async def deliver(self, payload: Payload) -> str:
        """Post the message as text in which nothing is a link or a mention. Raises NotDelivered."""
        body = json.dumps({"text": text_of(payload).translate(_ESCAPES)}).encode()
        return await post_json(self._url, body, headers={})
