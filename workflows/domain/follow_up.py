"""What a run still waits for after its charging, charge by charge, and what comes after each step of it.

Decisions only. A follow-up waits on one state of its charge: `declined` for a retry, `needs_customer` for
the customer, `processing` for the bank. Whatever moves the charge out of that state ends it, and may begin
another.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.keys import Operation
from workflows.domain.recovery import Finding, NotSettled, Settled
from workflows.domain.retry_policy import DAY_SECONDS, Decline, RetryPolicy, RetryRule
from workflows.domain.states import State
from workflows.domain.verdict import judge_status

LOOK_AGAIN_DAYS = 1  # how often Stripe is asked about a customer or a debit


class Kind(StrEnum):
    """What is waited for."""

    RETRY = "retry"
    CUSTOMER = "customer"
    DEBIT = "debit"


WAITS_ON = {Kind.RETRY: State.DECLINED, Kind.CUSTOMER: State.NEEDS_CUSTOMER, Kind.DEBIT: State.PROCESSING}
_KIND_OF = {state: kind for kind, state in WAITS_ON.items()}


class Outcome(StrEnum):
    """How a follow-up ends where its charge has not moved on; otherwise the charge's new state is its end."""

    NEVER_RETRIED = "never_retried"
    RETRIES_USED_UP = "retries_used_up"
    CUSTOMER_NEVER_CAME = "customer_never_came"
    STILL_PROCESSING = "still_processing"
    RUN_CANCELED = "run_canceled"


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One thing that is waited for, as the ledger has it. Times are epoch seconds."""

    follow_up_id: int
    kind: Kind
    step: int
    since: float
    due_at: float
    ends_at: float


@dataclass(frozen=True, slots=True)
class Wait:
    """Something is waited for. `step` counts the delays that are used up; times are epoch seconds."""

    kind: Kind
    rule: str
    step: int
    since: float
    due_at: float
    ends_at: float
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing is waited for any more. `outcome` is an Outcome, or the state that the charge has come to."""

    outcome: str
    reason: str


def begin(
    policy: RetryPolicy, state: State, decline: Decline, *, changed_at: float, step: int = 0
) -> Wait | End:
    """Return what is waited for with a charge that has just come to `state`, at `changed_at`.

    `step` is how many delays this run has used up for the charge so far. What comes back declined after days
    as a debit goes on behind the step that had begun it.
    """
    match _KIND_OF.get(state):
        case Kind.RETRY:
            rule = policy.rule_for(decline)
            used = rule.retry_after_days[:step]
            since = changed_at - (used[-1] * DAY_SECONDS if used else 0.0)
            return retry(rule, decline, step=step, since=since, declined_at=changed_at)
        case Kind.CUSTOMER:
            return _look(Kind.CUSTOMER, policy.customer_days, changed_at, step)
        case Kind.DEBIT:
            return _look(Kind.DEBIT, policy.debit_days, changed_at, step)
        case None:
            return End(state, f"it is {state}")


def go_on(
    policy: RetryPolicy,
    follow_up: FollowUp,
    state: State,
    decline: Decline,
    *,
    changed_at: float,
    now: float,
    step: int,
) -> Wait | End:
    """Return what comes after a look at a follow-up's charge, which is in `state` since `changed_at`.

    What comes back is the same follow-up, further on, where it is of the same kind.
    """
    if state is not WAITS_ON[follow_up.kind]:
        return begin(policy, state, decline, changed_at=changed_at, step=step)
    if follow_up.kind is Kind.RETRY:
        rule = policy.rule_for(decline)
        return retry(rule, decline, step=step, since=follow_up.since, declined_at=changed_at)
    return look_again(follow_up.kind, step=step, since=follow_up.since, ends_at=follow_up.ends_at, now=now)


def find_later(lookup: Lookup, *, payment_intent_id: str, state: State) -> Finding:
    """Return what a lookup means for a charge in `needs_customer` or `processing`, made while it was there.

    A customer who has tried and failed may try again, so only an end counts there. A debit that is no longer
    processing has failed: its PaymentIntent says of what (a lookup from before, trace T8, is refused by the
    guards of whoever applies this).
    """
    for intent in lookup.payment_intents:
        if intent.id != payment_intent_id:
            continue
        verdict = judge_status(Operation.CONFIRM, intent)
        may_come_back = {State.DECLINED, State.NEEDS_CUSTOMER} if state is State.NEEDS_CUSTOMER else set()
        if verdict.state is None or verdict.state in {state, *may_come_back}:
            return NotSettled(f"Stripe says {intent.status}")
        return Settled(verdict.state, intent, f"Stripe says {intent.status}: {verdict.reason}")
    return NotSettled("the PaymentIntent was not found, which is no evidence")


def decline_evidence(found: PaymentIntent, confirm_version: int) -> dict[str, Any]:
    """Return why a PaymentIntent was declined last, and by which confirm, as evidence to be kept.

    Whoever books a decline that no answer to a send has told keeps it with the decision: policies go by it.
    """
    return {
        "decline": {
            "code": found.last_decline_code or found.last_error_code,
            "advice": found.last_advice_code,
            "network_advice": found.last_network_advice_code,
            "confirm_version": confirm_version,
        }
    }


def retry(rule: RetryRule, decline: Decline, *, step: int, since: float, declined_at: float) -> Wait | End:
    """Return when a declined charge is tried again: so many days after `since`, the first decline.

    Never within a day of the newest one: that long Stripe would only repeat it.
    """
    days = rule.retry_after_days
    if not days:
        return End(Outcome.NEVER_RETRIED, f"{decline}: by rule {rule.name!r} it is never tried again")
    if step >= len(days):
        return End(
            Outcome.RETRIES_USED_UP, f"{decline}: all {len(days)} retries of rule {rule.name!r} were made"
        )
    due_at = max(since + days[step] * DAY_SECONDS, declined_at + DAY_SECONDS)
    return Wait(
        Kind.RETRY,
        rule.name,
        step,
        since,
        due_at,
        max(since + days[-1] * DAY_SECONDS, due_at),
        f"{decline}: retry {step + 1} of {len(days)}, {days[step]} days after the first decline "
        f"(rule {rule.name!r})",
    )


def cancel_first(end: End, *, changed_at: float) -> Wait:
    """Return the short wait of a charge that is declined for good while a confirm of it may still pay (I12).

    Its PaymentIntent is canceled first, with the first look at what is due.
    """
    reason = f"{end.reason}; a confirm of it never got its answer, so it is canceled at Stripe first"
    return Wait(Kind.RETRY, end.outcome, 0, changed_at, changed_at, changed_at, reason)


def look_again(kind: Kind, *, step: int, since: float, ends_at: float, now: float) -> Wait | End:
    """Return when Stripe is asked again about a customer or a debit that has not come to an end by `now`."""
    if now >= ends_at:
        days = round((ends_at - since) / DAY_SECONDS)
        if kind is Kind.CUSTOMER:
            return End(Outcome.CUSTOMER_NEVER_CAME, f"the customer has not paid within {days} days")
        return End(Outcome.STILL_PROCESSING, f"the bank has not said within {days} days what became of it")
    rule = WAITS_ON[kind].value
    every = LOOK_AGAIN_DAYS * DAY_SECONDS
    due_at = min(since + (int((now - since) // every) + 1) * every, ends_at)
    return Wait(kind, rule, step, since, due_at, ends_at, f"still {rule}: asked again in a day")


def _look(kind: Kind, days: int, since: float, step: int) -> Wait | End:
    state = WAITS_ON[kind]
    if not days:
        return End(state, f"by the policy nothing is waited for that is {state}")
    ends_at = since + days * DAY_SECONDS
    due_at = min(since + LOOK_AGAIN_DAYS * DAY_SECONDS, ends_at)
    waits_for = "the customer" if kind is Kind.CUSTOMER else "the bank"
    reason = f"it waits for {waits_for}, {days} days at most"
    return Wait(kind, state.value, step, since, due_at, ends_at, reason)
