"""Accounts, keys and rates as the environment names them."""

import pytest

from worker.environment import load_settings
from worker.settings import Settings
from workflows.domain.errors import RefusedToStart

KEY = "sk_test_synthetic_platform"
LIVE_KEY = "sk_live_synthetic_other"


@pytest.fixture(autouse=True)
def _configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARGEONCE_DATABASE_URL", "postgresql://127.0.0.1:1/ledger")
    monkeypatch.setenv("STRIPE_SECRET_KEY", KEY)


def load(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Settings:
    """Return the settings of an environment with these variables as well."""
    for name, value in variables.items():
        monkeypatch.setenv(f"CHARGEONCE_{name}", value)
    return load_settings()


def test_connected_accounts_are_listed_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spaces and a last comma do no harm, and none at all is none."""
    assert load(monkeypatch).connected_accounts == ()
    settings = load(monkeypatch, CONNECTED_ACCOUNTS="acct_a, acct_b,")
    assert settings.connected_accounts == ("acct_a", "acct_b")


def test_accounts_have_keys_and_rates_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are JSON objects; a key never shows."""
    settings = load(
        monkeypatch,
        ACCOUNT_KEYS=f'{{"acct_c": "{KEY}_c"}}',
        ACCOUNT_RATES='{"acct_c": 80}',
        SPARE_SHARE="0.2",
    )
    assert settings.account_keys["acct_c"].get_secret_value() == f"{KEY}_c"
    assert settings.account_rates == {"acct_c": 80.0}
    assert settings.spare_share == 0.2
    assert KEY not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ACCOUNT_KEYS", f"acct_c={LIVE_KEY}"),
        ("ACCOUNT_KEYS", f'["{LIVE_KEY}"]'),
        ("ACCOUNT_RATES", '{"acct_c": 0}'),
        ("ACCOUNT_RATES", '{"acct_c": "fast"}'),
        ("SPARE_SHARE", "0.95"),
        ("RATE_PER_SECOND", "0"),
    ],
)
def test_what_can_not_be_right_is_named_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """The refusal names the variable; its value may be a key."""
    with pytest.raises(RefusedToStart, match=f"CHARGEONCE_{name}") as refused:
        load(monkeypatch, **{name: value})
    assert LIVE_KEY not in str(refused.value)
    assert refused.value.__cause__ is None


def test_any_live_key_must_be_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One live key among test keys moves real money like any other."""
    settings = load(monkeypatch, ACCOUNT_KEYS=f'{{"acct_c": "{LIVE_KEY}"}}')
    with pytest.raises(RefusedToStart, match="--live"):
        settings.refuse_unspoken_live_key()
    settings.model_copy(update={"live": True}).refuse_unspoken_live_key()
