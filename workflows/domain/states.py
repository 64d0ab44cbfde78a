"""The states of a charge: one table, and nothing else knows which way a charge may go.

Two rules of this module. Everything about transitions stands in `TRANSITIONS`; the SQL check, the README's
diagram and the tests are drawn from it. And it does not know who moves a charge or why: verdicts and
recovery decide, this table only says whether the step is legal.

**Theory of operation.** A charge is *planned*; its PaymentIntent is being created (*creating*), exists
unconfirmed (*prepared*), is being confirmed (*confirming*). `creating`, `confirming` and `canceling` are in
flight: a request has left or may have left, and only Stripe can say what it did. A settled charge stays
where it is, with two exceptions. A later run may take a charge over that ended without success: it is
*planned* again, with its keys and its PaymentIntent as they were (`workflows.domain.reopen` says what comes
first then). And Stripe may impose one from outside: a frozen request that lands late, or a 500 that is rolled
forward, can pay a PaymentIntent that we had given up. The truth wins, so every state but `skipped` may become
`succeeded` or `processing`; from `refused`, `canceled` and `review` that raises an alarm (`SURPRISES`).
`succeeded` is never left: refunds and disputes are recorded beside it (invariant I8).
"""

from collections.abc import Mapping
from enum import StrEnum

from workflows.domain.errors import invariant


class State(StrEnum):
    """Where a charge stands."""

    PLANNED = "planned"
    CREATING = "creating"
    PREPARED = "prepared"
    CONFIRMING = "confirming"
    CANCELING = "canceling"
    SUCCEEDED = "succeeded"
    PROCESSING = "processing"
    DECLINED = "declined"
    NEEDS_CUSTOMER = "needs_customer"
    REFUSED = "refused"
    REVIEW = "review"
    CANCELED = "canceled"
    SKIPPED = "skipped"


S = State

NOT_STARTED = frozenset({S.PLANNED, S.PREPARED})
IN_FLIGHT = frozenset({S.CREATING, S.CONFIRMING, S.CANCELING})
PAID_OR_PAYING = frozenset({S.SUCCEEDED, S.PROCESSING})
SETTLED = frozenset(State) - NOT_STARTED - IN_FLIGHT

# The ordinary steps: what we do, and what Stripe answers to it.
_STEPS: Mapping[State, frozenset[State]] = {
    S.PLANNED: frozenset(
        {S.CREATING, S.CONFIRMING, S.CANCELING, S.CANCELED, S.SKIPPED, S.NEEDS_CUSTOMER, S.REVIEW}
        | {S.DECLINED, S.REFUSED}  # given back: a run that nobody approved had taken it over
    ),
    S.CREATING: frozenset(
        {S.PREPARED, S.DECLINED, S.NEEDS_CUSTOMER, S.REFUSED, S.REVIEW, S.CANCELING, S.CANCELED}
    ),
    S.PREPARED: frozenset({S.CONFIRMING, S.CREATING, S.CANCELING, S.CANCELED, S.REVIEW}),
    S.CONFIRMING: frozenset(
        {S.SUCCEEDED, S.PROCESSING, S.DECLINED, S.NEEDS_CUSTOMER, S.REFUSED, S.REVIEW}
        | {S.CANCELING, S.CANCELED, S.CREATING}
    ),
    S.CANCELING: frozenset({S.CANCELED, S.PLANNED, S.DECLINED, S.NEEDS_CUSTOMER, S.REVIEW}),
    S.PROCESSING: frozenset({S.SUCCEEDED, S.DECLINED, S.NEEDS_CUSTOMER, S.CANCELED, S.REVIEW}),
    S.DECLINED: frozenset({S.PLANNED, S.CONFIRMING, S.CREATING, S.CANCELING, S.CANCELED, S.REVIEW}),
    S.NEEDS_CUSTOMER: frozenset({S.PLANNED, S.CONFIRMING, S.CANCELING, S.CANCELED, S.DECLINED, S.REVIEW}),
    S.REFUSED: frozenset({S.PLANNED, S.CREATING, S.CONFIRMING, S.CANCELING, S.CANCELED}),
    S.REVIEW: frozenset({S.CANCELING, S.CANCELED, S.DECLINED}),
    S.CANCELED: frozenset({S.CREATING, S.PLANNED}),
    S.SKIPPED: frozenset({S.PLANNED}),
    S.SUCCEEDED: frozenset(),
}

# A frozen send or a late roll-forward can pay what we had given up: the truth wins.
_TRUTH: Mapping[State, frozenset[State]] = {
    state: frozenset() if state in {S.SKIPPED, S.SUCCEEDED} else PAID_OR_PAYING - {state} for state in State
}

TRANSITIONS: Mapping[State, frozenset[State]] = {state: _STEPS[state] | _TRUTH[state] for state in State}

SURPRISES = frozenset({S.REFUSED, S.CANCELED, S.REVIEW})


def is_legal(before: State, after: State) -> bool:
    """Return whether a charge may go from `before` to `after`. Staying is not a transition."""
    return after in TRANSITIONS[before]


def advance(before: State, after: State) -> State:
    """Return `after`, or raise InvariantViolation where the table has no such step."""
    invariant(is_legal(before, after), f"no transition {before} → {after}")
    return after


def is_surprise(before: State, after: State) -> bool:
    """Return whether Stripe's answer overturns what had been concluded, which an operator must see."""
    return before in SURPRISES and after in PAID_OR_PAYING


def mermaid() -> str:
    """Return the README's state diagram: the ordinary steps, and in a note the rule that overrides them."""
    rows = ["stateDiagram-v2", "    [*] --> planned", "    [*] --> skipped"]
    for before, afters in _STEPS.items():
        rows += [f"    {before} --> {after}" for after in sorted(afters)]
    rows += [
        "    note right of succeeded",
        "        From every state but skipped, Stripe saying succeeded or processing wins.",
        "        Refunds and disputes are recorded beside succeeded, never instead of it.",
        "    end note",
    ]
    return "\n".join(rows)
