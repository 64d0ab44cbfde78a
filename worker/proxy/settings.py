"""Every setting of the proxy, read once from its environment, units in the names."""

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from workflows.domain.errors import RefusedToStart

NO_LEDGER = (
    "CHARGEONCE_PROXY_DATABASE_URL is not set: where the ledger is, as a role of the proxy's own, such as "
    "postgresql://cap:...@127.0.0.1/ledger (`chargeonce migrate --proxy-role cap` grants it what it needs)"
)


def _also(name: str) -> AliasChoices:
    return AliasChoices(f"CHARGEONCE_PROXY_{name}", f"CHARGEONCE_{name}")


class ProxySettings(BaseSettings):
    """What the proxy needs to know. Secrets never show in a repr.

    The real key comes from STRIPE_SECRET_KEY, from a file, or from what a command prints; file and command
    may also say a JSON object of account and key. Whose the one key is, Stripe is asked.
    """

    model_config = SettingsConfigDict(
        env_prefix="CHARGEONCE_PROXY_", frozen=True, extra="ignore", populate_by_name=True
    )

    database_url: SecretStr
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0 takes a free one, and the ready file says which."""
    stripe_secret_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("STRIPE_SECRET_KEY", "CHARGEONCE_STRIPE_SECRET_KEY")
    )
    stripe_key_file: Path | None = Field(default=None, validation_alias=_also("STRIPE_KEY_FILE"))
    stripe_key_command: str | None = Field(default=None, validation_alias=_also("STRIPE_KEY_COMMAND"))
    account_keys: SecretStr | None = Field(default=None, validation_alias=_also("ACCOUNT_KEYS"))
    """A JSON object of account and key, for accounts with a key of their own."""
    connected_accounts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), validation_alias=_also("CONNECTED_ACCOUNTS")
    )
    """Accounts that are reached through the one key, separated by commas."""
    stripe_account: str | None = Field(default=None, validation_alias=_also("STRIPE_ACCOUNT"))
    """One more connected account: the one that workers bill for."""
    stripe_api_base: str | None = Field(default=None, validation_alias=_also("STRIPE_API_BASE"))
    live: bool = Field(default=False, validation_alias=_also("LIVE"))
    """Said out loud: a live key moves real money."""
    timeout_seconds: float = Field(default=20.0, gt=0, le=120)
    """A little longer than the clients' own, so that they give up first and the answer is still recorded."""
    connections: int = Field(default=512, ge=8, le=65_535)
    """To Stripe, for all accounts; one account gets another only while it holds fewer than are free."""
    database_connections: int = Field(default=6, ge=3, le=100)
    """Two are kept for good by who counts sends against caps; all else goes through what is left."""
    sweep_seconds: float = Field(default=60.0, ge=0)
    """How often unknown outcomes are looked up; 0 never does."""
    unknown_after_seconds: float = Field(default=120.0, ge=0)
    ready_file: Path | None = None

    @field_validator("connected_accounts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @property
    def connected(self) -> frozenset[str]:
        """Every account that is reached through the one key."""
        return frozenset(self.connected_accounts) | ({self.stripe_account} if self.stripe_account else set())


def load_proxy_settings(*, live: bool = False) -> ProxySettings:
    """Return the settings of the environment. Raises RefusedToStart without repeating a value."""
    try:
        settings = ProxySettings()
    except ValidationError as error:
        faults = {str(part["loc"][0]): part["type"] for part in error.errors() if part["loc"]}
        wrong = sorted(_variable_of(name) for name, kind in faults.items() if kind != "missing")
        raise RefusedToStart(
            f"the value of {', '.join(wrong)} can't be right" if wrong else NO_LEDGER
        ) from None
    return settings.model_copy(update={"live": True}) if live else settings


def _variable_of(location: str) -> str:
    name = location.upper()
    return name if name.startswith(("STRIPE_", "CHARGEONCE_")) else f"CHARGEONCE_PROXY_{name}"
