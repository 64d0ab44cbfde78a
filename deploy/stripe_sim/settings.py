"""What can be changed while the simulator runs."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

# Three days in all, as docs.stripe.com/webhooks says of live mode; the steps are ours, Stripe's not public.
RETRY_SECONDS: Final = (300, 1_800, 7_200, 18_000, 36_000, 43_200, 43_200, 43_200, 43_200, 21_300)


class SettingsError(ValueError):
    """A setting that does not exist or has the wrong type."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults.

    `accept_keys` pins API keys; None accepts every `sk_test_` and `rk_test_` key. `revoked` refuses every
    key. `keys_kept_longer` remembers each idempotency key for up to half its retention more, drawn from the
    seed: Stripe promises at least 24 hours, not at most. Rates are per second, account and endpoint, such as
    `{"POST /v1/payment_intents": 25}`; `endpoint_rate_per_second` is for endpoints not named there; 0 is no
    limit. `confirms_max` cancels a PaymentIntent that failed so many confirms; 0 never does.

    `global_rate_per_second` is for an account as a whole and `search_rate_per_second` for its searches;
    `global_concurrency` and `endpoint_concurrency` are how many requests may run at once,
    `object_updates_per_hour` how often a PaymentIntent may be changed. `object_locks` refuses a second
    request on the same object while one is running (429 `lock_timeout`). With `stripe_defaults` every rate
    that is left at 0 is the one that Stripe documents for live mode.

    `search_lag_seconds` is how far search lags behind, `refund_settle_seconds` how long a refund that is
    pending or will fail stays as it is, `dispute_after_seconds` how long a disputed charge stays undisputed,
    all by the simulator's clock. By that clock, too, a webhook is tried again after each of
    `webhook_retry_seconds`; an attempt may take `webhook_timeout_seconds` of real time. So many as
    `webhook_concurrency` run at once per endpoint: 1 keeps them in order. Only this machine is ever contacted
    unless `webhooks_anywhere`.
    """

    account: str = "acct_sim"
    latency_ms: float = 0.0
    accept_keys: list[str] | None = None
    revoked: bool = False
    key_retention_seconds: float = 86_400.0
    keys_kept_longer: bool = False
    endpoint_rate_per_second: float = 0.0
    endpoint_rates: dict[str, float] = field(default_factory=dict)
    confirms_max: int = 0
    stripe_defaults: bool = False
    global_rate_per_second: float = 0.0
    search_rate_per_second: float = 0.0
    global_concurrency: int = 0
    endpoint_concurrency: int = 0
    object_updates_per_hour: int = 0
    object_locks: bool = False
    search_lag_seconds: float = 10.0
    refund_settle_seconds: float = 86_400.0
    dispute_after_seconds: float = 0.0
    webhook_retry_seconds: list[float] = field(default_factory=lambda: list(RETRY_SECONDS))
    webhook_timeout_seconds: float = 10.0
    webhook_concurrency: int = 1
    webhooks_anywhere: bool = False

    def with_changes(self, changes: dict[str, Any]) -> Self:
        """Return the settings with some values replaced; raises SettingsError."""
        known = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise SettingsError(f"no such setting: {name}; there are {', '.join(known)}")
            _check(name, value, known[name])
        return replace(self, **changes)

    def show(self) -> dict[str, Any]:
        """Return the settings as the admin API shows them."""
        return asdict(self)


def _check(name: str, value: Any, default: Any) -> None:
    if name == "accept_keys":
        fine = value is None or (isinstance(value, list) and all(isinstance(key, str) for key in value))
    elif isinstance(default, list):
        fine = isinstance(value, list) and all(_is_amount(item) for item in value)
    elif isinstance(default, bool):
        fine = isinstance(value, bool)
    elif isinstance(default, int | float):
        fine = _is_amount(value)
    elif isinstance(default, dict):
        fine = isinstance(value, dict) and all(isinstance(rate, int | float) for rate in value.values())
    else:
        fine = isinstance(value, str) and value.startswith("acct_")
    if not fine:
        raise SettingsError(f"{name} cannot be {value!r}")


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
