"""When a pass over many charges stops by itself."""

import pytest

from workflows.domain.breaker import Breaker, BreakerRules, Trip
from workflows.domain.errors import InvariantViolation
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof, Verdict

NO_ANSWER = Verdict(Proof.UNKNOWN, cause=Cause.NO_ANSWER, reason="timeout")
PREPARED = Verdict(Proof.PROVED, state=State.PREPARED, reason="requires_confirmation")


def outcome(state: State) -> Verdict:
    """Return the verdict of a charge that ended like this."""
    return Verdict(Proof.PROVED, state=state, reason="test")


def refused_by(code: str) -> Verdict:
    """Return the verdict on a 401 or 403 with this code."""
    return Verdict(Proof.NOT_EXECUTED, cause=Cause.CREDENTIALS, reason=code)


def observing(*verdicts: Verdict, rules: BreakerRules | None = None) -> Breaker:
    """Return a breaker that has seen these verdicts."""
    breaker = Breaker(rules or BreakerRules())
    for verdict in verdicts:
        breaker.observe(verdict)
    return breaker


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("api_key_expired", "Stripe refuses the credentials (api_key_expired)"),
        ("HTTP 401", "Stripe refuses the credentials (HTTP 401)"),
        ("vault_key_revoked", "(vault_key_revoked): the run's vault key was revoked"),
        ("vault_key_expired", "(vault_key_expired): the run's vault key has expired"),
        ("endpoint_not_allowed", "(endpoint_not_allowed): the run's vault key does not open this endpoint"),
        ("vault_key_unknown", "(vault_key_unknown): the run's vault key was never issued"),
        ("account_not_allowed", "(account_not_allowed): the vault key is not for this account"),
        ("no_budget", "(no_budget): the vault key moves no money"),
    ],
)
def test_one_refusal_of_the_credentials_opens_it_and_names_the_code(code: str, words: str) -> None:
    """A key that does not open is the same for everybody who comes next."""
    breaker = observing(refused_by(code))
    assert breaker.trip is Trip.CREDENTIALS
    assert words in (breaker.reason or "")
    assert "resume" in (breaker.reason or "")


def test_the_cap_opens_it_at_once() -> None:
    """Over the cap nothing more can move until somebody raises it."""
    breaker = observing(Verdict(Proof.NOT_EXECUTED, cause=Cause.CAP, reason="spend_cap_exceeded"))
    assert breaker.trip is Trip.CAP


@pytest.mark.parametrize("cause", [Cause.NO_ANSWER, Cause.UNREACHABLE, Cause.SERVER_ERROR])
def test_silence_opens_it_after_so_many_in_a_row(cause: Cause) -> None:
    """One fewer does not, and any answer of use starts the count again."""
    silent = Verdict(Proof.UNKNOWN, cause=cause, reason="no answer")
    rules = BreakerRules(no_answers_in_a_row_max=4)
    assert observing(*[silent] * 3, rules=rules).trip is None
    assert observing(*[silent] * 3, PREPARED, *[silent] * 3, rules=rules).trip is None
    assert observing(*[silent] * 4, rules=rules).trip is Trip.SILENCE


@pytest.mark.parametrize(
    ("declined", "paid", "opens"),
    [(49, 0, False), (50, 0, True), (30, 20, True), (29, 21, False), (59, 41, False), (60, 40, True)],
)
def test_a_spike_of_declines_opens_it(declined: int, paid: int, *, opens: bool) -> None:
    """From 50 outcomes on, of which at least 60 % were turned down, something is wrong with all of them."""
    breaker = observing(*[outcome(State.SUCCEEDED)] * paid, *[outcome(State.DECLINED)] * declined)
    assert (breaker.trip is Trip.DECLINES) is opens


def test_refusals_count_like_declines_and_preparations_not_at_all() -> None:
    """What is wrong with every request burns through customers as surely as a bank that says no."""
    refused = [outcome(State.REFUSED)] * 30 + [outcome(State.DECLINED)] * 20
    assert observing(*[PREPARED] * 500, *refused).trip is Trip.DECLINES
    assert observing(*[PREPARED] * 500, *refused[:-1]).trip is None


def test_the_first_reason_stays() -> None:
    """What came after it opened does not hide what opened it."""
    breaker = observing(refused_by("api_key_expired"), *[NO_ANSWER] * 200)
    assert breaker.trip is Trip.CREDENTIALS
    assert "api_key_expired" in (breaker.reason or "")


@pytest.mark.parametrize(
    "rules", [{"no_answers_in_a_row_max": 0}, {"outcomes_min": 0}, {"declined_percent_min": 0}]
)
def test_rules_that_would_open_at_nothing_are_refused(rules: dict[str, int]) -> None:
    """A breaker that nothing has to happen for would stop every run."""
    with pytest.raises(InvariantViolation):
        BreakerRules(**rules)
