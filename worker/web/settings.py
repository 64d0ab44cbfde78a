"""Every setting of the webhook receiver, read once from its environment, units in the names.

It needs the database and the endpoints' secrets. It has no Stripe key, so whoever breaks into the one process
that the internet talks to can't charge anybody.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from workflows.domain.errors import RefusedToStart
from workflows.domain.webhook_signature import TOLERANCE_SECONDS

BODY_BYTES_MAX = 512 * 1024  # the largest events of Stripe's are a tenth of it


def _also(name: str) -> AliasChoices:
    return AliasChoices(f"CHARGEONCE_WEB_{name}", f"CHARGEONCE_{name}")


class WebSettings(BaseSettings):
    """What the receiver needs to know. Secrets never show in a repr."""

    model_config = SettingsConfigDict(
        env_prefix="CHARGEONCE_WEB_", frozen=True, extra="ignore", populate_by_name=True
    )

    database_url: SecretStr = Field(validation_alias=_also("DATABASE_URL"))
    webhook_secrets: Annotated[tuple[tuple[str, SecretStr], ...], NoDecode] = Field(
        validation_alias=AliasChoices("CHARGEONCE_WEBHOOK_SECRETS")
    )
    """`acct_1=whsec_...`, separated by commas: whose endpoint, and its secret; both while one is rolled."""
    connected_accounts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=_also("CONNECTED_ACCOUNTS")
    )
    """Accounts whose events a platform's endpoint brings, separated by commas."""
    stripe_account: str | None = Field(default=None, validation_alias=_also("STRIPE_ACCOUNT"))
    """One more connected account: the one that workers bill for."""
    host: str = "127.0.0.1"
    port: int = Field(default=12113, ge=0, le=65_535)
    """0 takes a free one, and the ready file says which."""
    live: bool = Field(default=False, validation_alias=_also("LIVE"))
    """Whether live events are taken, and those of the sandbox refused."""
    tolerance_seconds: float = Field(default=TOLERANCE_SECONDS, gt=0, le=3_600)
    body_bytes_max: int = Field(default=BODY_BYTES_MAX, ge=1_024, le=16 * 1024 * 1024)
    commit_seconds: float = Field(default=8.0, gt=0, le=60)
    """How long a commit is waited for before Stripe is told to come again."""
    database_connections: int = Field(default=3, ge=1, le=100)
    ready_file: Path | None = None

    @field_validator("connected_accounts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(_parts_of(value)) if isinstance(value, str) else value

    @field_validator("webhook_secrets", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [part.partition("=") for part in _parts_of(value)]
        if not pairs or not all(account and secret.startswith("whsec_") for account, _, secret in pairs):
            raise ValueError("not ACCOUNT=whsec_... separated by commas")
        return tuple((account, secret) for account, _, secret in pairs)

    @property
    def connected(self) -> frozenset[str]:
        """Every account whose events may come through another account's endpoint."""
        return frozenset(self.connected_accounts) | ({self.stripe_account} if self.stripe_account else set())


def load_web_settings(*, live: bool = False) -> WebSettings:
    """Return the settings of the environment. Raises RefusedToStart without repeating a value."""
    try:
        settings = WebSettings()
    except ValidationError as error:
        names = ", ".join(sorted({str(part["loc"][0]) for part in error.errors() if part["loc"]}))
        raise RefusedToStart(
            f"settings of the webhook receiver are missing or can't be right: {names}"
        ) from None
    return settings.model_copy(update={"live": True}) if live else settings


def _parts_of(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())
