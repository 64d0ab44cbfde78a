"""The instruments of the proof, at a size that takes a moment."""

import subprocess
import sys

import pytest

from deploy.stripe_sim.proof.speed import measure_speed


def test_speed_is_measured_over_sockets() -> None:
    """Creates and confirms are counted against the CPU time of the simulator's process."""
    speeds = measure_speed(400)
    assert [speed.step for speed in speeds] == ["create", "confirm"]
    assert all(speed.per_second > 0 for speed in speeds)


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_proof_at_a_tenth_of_the_size() -> None:
    """Up to 100,000 PaymentIntents nothing falls short: faults, speed, and memory."""
    command = [sys.executable, "-m", "deploy.stripe_sim.proof", "--objects-max", "100000"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    assert "nothing fell short" in done.stdout
