"""What can be changed while the simulator runs."""

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Self


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
    elif isinstance(default, bool):
        fine = isinstance(value, bool)
    elif isinstance(default, int | float):
        fine = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    elif isinstance(default, dict):
        fine = isinstance(value, dict) and all(isinstance(rate, int | float) for rate in value.values())
    else:
        fine = isinstance(value, str) and value.startswith("acct_")
    if not fine:
        raise SettingsError(f"{name} cannot be {value!r}")
