"""The breaker: stops a pass over many charges where going on would burn through customers.

Rules over the verdicts of one pass, and nothing else. What the trip means for the run (held, and by whom it
may go on again) is decided above.
"""

from dataclasses import dataclass
from enum import StrEnum

from workflows.domain.errors import invariant
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Verdict

NO_ANSWERS_IN_A_ROW_MAX = 100
OUTCOMES_MIN = 50  # fewer say nothing about a rate
DECLINED_PERCENT_MIN = 60.0

_NO_ANSWERS = frozenset({Cause.NO_ANSWER, Cause.UNREACHABLE, Cause.SERVER_ERROR})
_TURNED_DOWN = frozenset({State.DECLINED, State.REFUSED})
_OUTCOMES = _TURNED_DOWN | {State.SUCCEEDED, State.PROCESSING, State.NEEDS_CUSTOMER}

# The spend-cap proxy's own words for a vault key that does not open what it should.
_VAULT_KEY = {
    "vault_key_revoked": "the run's vault key was revoked: issue another",
    "vault_key_expired": "the run's vault key has expired: issue another",
    "vault_key_unknown": "the run's vault key was never issued: look at the worker's vault secret",
    "endpoint_not_allowed": "the run's vault key does not open this endpoint: issue one that does",
    "account_not_allowed": "the vault key is not for this account: issue one that is",
    "mode_not_allowed": "the vault key is for the other mode, test or live: issue one that is for this",
    "no_budget": "the vault key moves no money: issue one that does",
}


class Trip(StrEnum):
    """What opened a breaker."""

    CREDENTIALS = "credentials"
    CAP = "cap"
    SILENCE = "silence"
    DECLINES = "declines"


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """When a breaker opens; credentials and the cap open it at once."""

    no_answers_in_a_row_max: int = NO_ANSWERS_IN_A_ROW_MAX
    outcomes_min: int = OUTCOMES_MIN
    """How many charges must have an outcome before their rate of declines means anything."""
    declined_percent_min: float = DECLINED_PERCENT_MIN
    """From this share of them declined or refused, in percent, something is wrong with all of them."""

    def __post_init__(self) -> None:
        """Refuse rules that would open at nothing."""
        invariant(self.no_answers_in_a_row_max >= 1, "silence is at least one request without an answer")
        invariant(self.outcomes_min >= 1, "a rate needs at least one outcome")
        invariant(0 < self.declined_percent_min <= 100, "a share of declines is above 0 and at most 100 %")


DEFAULT_RULES = BreakerRules()


@dataclass(slots=True)
class Breaker:
    """Counts what the answers of one pass say, and opens once: the first reason stays."""

    rules: BreakerRules = DEFAULT_RULES
    declines_accepted: bool = False
    """Whether a person has seen the rate of declines and let the run go on all the same."""
    trip: Trip | None = None
    reason: str | None = None
    no_answers_in_a_row: int = 0
    outcomes: int = 0
    turned_down: int = 0

    def observe(self, verdict: Verdict) -> None:
        """Count the verdict on one send."""
        if verdict.cause is Cause.CREDENTIALS:
            self.refuse(describe_credentials(verdict.reason))
        elif verdict.cause is Cause.CAP:
            self._open(Trip.CAP, "the spend cap is reached: raise it, then the run goes on")
        if verdict.cause in _NO_ANSWERS:
            self._count_silence(verdict)
        else:
            self.no_answers_in_a_row = 0
        if verdict.state in _OUTCOMES:
            self._count_outcome(verdict.state)

    def refuse(self, reason: str) -> None:
        """Open: the credentials are refused, whatever it was that was asked by them."""
        self._open(Trip.CREDENTIALS, reason)

    def _count_silence(self, verdict: Verdict) -> None:
        self.no_answers_in_a_row += 1
        if self.no_answers_in_a_row >= self.rules.no_answers_in_a_row_max:
            times = f"{self.no_answers_in_a_row} times in a row"
            self._open(Trip.SILENCE, f"no answer of use from Stripe {times} ({verdict.reason})")

    def _count_outcome(self, state: State) -> None:
        self.outcomes += 1
        self.turned_down += state in _TURNED_DOWN
        percent = 100 * self.turned_down / self.outcomes
        if self.declines_accepted:
            return
        if self.outcomes >= self.rules.outcomes_min and percent >= self.rules.declined_percent_min:
            self._open(
                Trip.DECLINES,
                f"{self.turned_down} of {self.outcomes} charges in this pass were declined or refused: "
                "look at their reasons, then resume the run: after that no rate of declines holds it again",
            )

    def _open(self, trip: Trip, reason: str) -> None:
        if self.trip is None:
            self.trip, self.reason = trip, reason


def describe_credentials(code: str) -> str:
    """Return what it means that credentials were refused with this code, and what to do about it."""
    if code in _VAULT_KEY:
        return f"the spend-cap proxy refuses ({code}): {_VAULT_KEY[code]}, then resume the run"
    return f"Stripe refuses the credentials ({code}): mend them, then resume the run"
