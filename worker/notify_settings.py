"""Who is told about runs: read once from the environment, and nowhere else.

Nobody but the operator sets these, so nobody else can point a request anywhere. The URLs may hold secrets.
"""

from typing import TypeVar
from urllib.parse import urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from activities.notifiers.destination import LOOPBACK_HOSTS, Destination
from activities.notifiers.mail import MailBox, parse_mail_server
from activities.notifiers.slack import SlackChannel
from activities.notifiers.webhook import Webhook
from workflows.domain.errors import RefusedToStart

Value = TypeVar("Value")

PREFIX = "CHARGEONCE_NOTIFY_"
SECRET_LENGTH_MIN = 16
NOTHING_CONFIGURED = (
    f"nobody is to be notified: set {PREFIX}WEBHOOK_URL and {PREFIX}WEBHOOK_SECRET, {PREFIX}SLACK_URL, "
    f"or {PREFIX}SMTP_URL, {PREFIX}EMAIL_FROM and {PREFIX}EMAIL_TO"
)


class NotifySettings(BaseSettings):
    """Addresses of destinations. Without any of them nothing is announced."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore")

    webhook_url: SecretStr | None = None
    webhook_secret: SecretStr | None = None
    slack_url: SecretStr | None = None
    smtp_url: SecretStr | None = None
    email_from: str | None = None
    email_to: str | None = None
    """Addresses, separated by commas."""

    def destinations(self) -> list[Destination]:
        """Return those that are configured.

        Raises:
            RefusedToStart: One of them lacks something, or can't be right. No value is repeated.
        """
        found: list[Destination] = []
        if self.webhook_url is not None:
            secret = _needed(self.webhook_secret, "WEBHOOK_SECRET").get_secret_value()
            if len(secret) < SECRET_LENGTH_MIN:
                raise RefusedToStart(f"{PREFIX}WEBHOOK_SECRET has fewer than {SECRET_LENGTH_MIN} characters")
            found.append(Webhook(_web_address(self.webhook_url, "WEBHOOK_URL"), secret))
        if self.slack_url is not None:
            found.append(SlackChannel(_web_address(self.slack_url, "SLACK_URL")))
        if self.smtp_url is not None:
            server = parse_mail_server(self.smtp_url.get_secret_value())
            recipients = [one.strip() for one in _needed(self.email_to, "EMAIL_TO").split(",") if one.strip()]
            sender = _needed(self.email_from, "EMAIL_FROM").strip()
            found.append(MailBox(server, sender=sender, recipients=recipients))
        return found


def _needed(value: Value | None, name: str) -> Value:
    if value is None:
        raise RefusedToStart(f"{PREFIX}{name} is not set")
    return value


def _web_address(url: SecretStr, name: str) -> str:
    address = url.get_secret_value().strip()
    try:
        parts = urlsplit(address)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK_HOSTS)
        right = is_safe and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise RefusedToStart(
            f"{PREFIX}{name} can't be right: it begins with https:// and names a host "
            "(http:// is for receivers on this machine: the address itself may be a secret)"
        )
    return address
