"""Every setting of the processes, read once from the environment, units in the names."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from workflows.contracts import Timing
from workflows.domain.errors import RefusedToStart

TEST_PREFIXES = ("sk_test_", "rk_test_")  # any other key may be live: a new kind, or one with a stray space


class Settings(BaseSettings):
    """What a process needs to know. Secrets never show in a repr."""

    model_config = SettingsConfigDict(env_prefix="CHARGEONCE_", frozen=True, extra="ignore")

    database_url: SecretStr
    stripe_secret_key: SecretStr = Field(
        validation_alias=AliasChoices("STRIPE_SECRET_KEY", "CHARGEONCE_STRIPE_SECRET_KEY")
    )
    stripe_api_base: str | None = None
    stripe_account: str | None = None
    """A connected account to bill for; None bills for the key's own account."""
    live: bool = False
    """Said out loud: a live key moves real money."""
    task_queue: str = "chargeonce"
    timing: Timing = Timing.PRODUCTION
    rate_per_second: float = Field(default=25.0, gt=0, le=10_000)
    """Requests per second and endpoint, of this process. Stripe's default limit is 25."""
    requests_at_once: int = Field(default=64, ge=1, le=100)
    slices_at_once: int = Field(default=4, ge=1, le=64)
    timeout_seconds: float = Field(default=15.0, gt=0, le=80)
    database_connections: int = Field(default=8, ge=2, le=100)
    call_style: Literal["raw", "typed"] = "raw"
    ready_file: Path | None = None

    def refuse_unspoken_live_key(self) -> None:
        """Raise RefusedToStart where the key is not known for a test key and nobody said `--live`."""
        if not self.live and not self.stripe_secret_key.get_secret_value().startswith(TEST_PREFIXES):
            raise RefusedToStart(
                "the Stripe key is live (it does not begin with sk_test_ or rk_test_), "
                "and --live was not said: nothing was started"
            )
