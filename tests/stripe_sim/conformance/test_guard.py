"""Real Stripe is asked only by those who want it, and only in test mode."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stripe_sim.conformance.conftest import KEY_VARIABLE, SERVERS

FACT = f"{Path(__file__).with_name('test_keys.py')}::test_a_key_is_answered_once[stripe test mode]"


def test_real_stripe_was_asked_too() -> None:
    """With a key of test mode every fact of this suite is also asked of the real API."""
    if not os.environ.get(KEY_VARIABLE):
        pytest.skip(f"asked of the simulator only: set {KEY_VARIABLE} to a key of Stripe's test mode")
    assert "stripe test mode" in SERVERS


@pytest.mark.parametrize("api_key", ["sk_live_0000000000", "rk_test_0000000000"])
def test_only_a_test_key_reaches_stripe(api_key: str) -> None:
    """With any other key the suite fails before it sends a request."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", FACT],
        env={**os.environ, KEY_VARIABLE: api_key}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "touches nothing but test mode" in done.stdout
    assert done.returncode == 1
