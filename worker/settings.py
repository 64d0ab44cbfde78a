"""Every setting of the processes, read once from the environment, units in the names."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from workflows.domain.errors import RefusedToStart
from workflows.domain.timing import Timing
from workflows.domain.vault_keys import VAULT_SECRET_BYTES_MIN, Mode

Rate = Annotated[float, Field(gt=0, le=10_000)]

TEST_PREFIXES = ("sk_test_", "rk_test_")  # any other key may be live: a new kind, or one with a stray space


class LedgerSettings(BaseSettings):
    """What a command needs that asks neither Stripe nor Temporal. Secrets never show in a repr."""

    model_config = SettingsConfigDict(env_prefix="CHARGEONCE_", frozen=True, extra="ignore")

    database_url: SecretStr
    proxy_url: str | None = None
    """Where the spend-cap proxy listens; with it, no Stripe key is needed here, and none is used."""
    vault_secret: Annotated[SecretStr, Field(min_length=VAULT_SECRET_BYTES_MIN)] | None = None
    """From which the vault keys of runs are derived: the same in every process that works on runs."""
    live: bool = False
    """Said out loud: a live key moves real money."""

    @field_validator("proxy_url")
    @classmethod
    def _none_if_empty(cls, value: str | None) -> str | None:
        return value or None

    @property
    def mode(self) -> Mode:
        """Whether the vault keys of runs move real money; the proxy has to have been told as well."""
        return Mode.LIVE if self.live else Mode.TEST

    def need_vault_secret(self) -> SecretStr:
        """Return the vault secret of a process behind a proxy; raises RefusedToStart without."""
        if self.vault_secret is None:
            raise RefusedToStart("CHARGEONCE_VAULT_SECRET is not set, so no key of a run can be derived")
        return self.vault_secret


class Settings(LedgerSettings):
    """What a process needs to know that works on runs."""

    stripe_secret_key: SecretStr | None = Field(
        default=None, validation_alias=AliasChoices("STRIPE_SECRET_KEY", "CHARGEONCE_STRIPE_SECRET_KEY")
    )
    stripe_api_base: str | None = None
    stripe_account: str | None = None
    """The connected account that commands mean when they name none; None is the key's own account."""
    connected_accounts: Annotated[tuple[str, ...], NoDecode] = ()
    """Accounts that are reached through the one key, separated by commas."""
    account_keys: Annotated[dict[str, SecretStr], NoDecode] = {}
    """A JSON object of account and key, for accounts with a key of their own."""
    task_queue: str = "chargeonce"
    timing: Timing = Timing.PRODUCTION
    rate_per_second: Rate = 25.0
    """Requests per second, account and endpoint, of all processes together. Stripe's default limit is 25."""
    account_rates: Annotated[dict[str, Rate], NoDecode] = {}
    """A JSON object of account and rate, for accounts with a limit of their own."""
    spare_share: float = Field(default=0.0, ge=0, le=0.9)
    """What share of each rate is left free, for the merchant's live traffic."""
    requests_at_once: int = Field(default=64, ge=1, le=100)
    """Requests between intent and answer, per process and account."""
    slices_at_once: int = Field(default=4, ge=1, le=64)
    """Slices of a run at the same time, and of an account in one process: 500 lines take 0.7 MB of memory."""
    timeout_seconds: float = Field(default=15.0, gt=0, le=80)
    database_connections: int = Field(default=8, ge=2, le=100)
    call_style: Literal["raw", "typed"] = "raw"
    inbox_sweep_seconds: float = Field(default=5.0, ge=0, le=3_600)
    """How often the webhook inbox is looked at without a wake-up; 0: it is worked through elsewhere."""
    notify_sweep_seconds: float = Field(default=60.0, ge=0, le=86_400)
    """How often notifications are looked for that nobody delivers; 0: they are looked for elsewhere."""
    ready_file: Path | None = None

    @field_validator("connected_accounts", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("account_keys", "account_rates", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:  # whose message repeats what it could not read, which may be a key
            raise ValueError("not a JSON object") from None

    def need_stripe_key(self) -> SecretStr:
        """Return the Stripe key of a process without a proxy; raises RefusedToStart without either."""
        if self.stripe_secret_key is None:
            raise RefusedToStart("neither CHARGEONCE_PROXY_URL nor STRIPE_SECRET_KEY is set")
        return self.stripe_secret_key

    def refuse_unspoken_live_key(self) -> None:
        """Raise RefusedToStart where a key is not known for a test key and nobody said `--live`."""
        if self.proxy_url is not None:
            return  # a vault key says test or live itself, and the proxy does not mix them
        keys = (self.need_stripe_key(), *self.account_keys.values())
        if not self.live and not all(key.get_secret_value().startswith(TEST_PREFIXES) for key in keys):
            raise RefusedToStart(
                "the Stripe key is live (it does not begin with sk_test_ or rk_test_), "
                "and --live was not said: nothing was started"
            )
