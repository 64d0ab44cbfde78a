"""Every order in which the events of one charge may come, against one pure model of row and Stripe."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.domain.test_merge import CHARGE, INTENT, OWN
from workflows.domain.answer import Lookup, PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.merge import About, Apply, about, is_known, merge
from workflows.domain.recovery import Settled, find_confirmed
from workflows.domain.states import State

S = State
DELIVERIES_MAX = 5
FRESH = replace(INTENT, status="requires_confirmation")
DECLINE = {"last_error_code": "card_declined", "last_decline_code": "insufficient_funds"}
DECLINED = replace(FRESH, status="requires_payment_method", latest_charge="ch_1", **DECLINE)  # type: ignore[arg-type]
PROCESSING = replace(FRESH, status="processing", latest_charge="ch_1")
PAID = replace(FRESH, status="succeeded", latest_charge="ch_1")
PAID_LATER = replace(PAID, latest_charge="ch_2")
CANCELED = replace(FRESH, status="canceled")

Step = tuple[str, PaymentIntent]


@dataclass(frozen=True, slots=True)
class History:
    """What happens at Stripe, an event per step, all within one second; and how each charge ends."""

    steps: tuple[Step, ...]
    starts: tuple[State, ...]
    ends: State


CREATED: Step = ("payment_intent.created", FRESH)
HISTORIES = {
    "paid": History(
        (CREATED, ("charge.succeeded", PAID), ("payment_intent.succeeded", PAID)),
        (S.PREPARED, S.CONFIRMING, S.SUCCEEDED, S.CANCELING, S.REVIEW),
        S.SUCCEEDED,
    ),
    "declined, then paid": History(
        (
            CREATED,
            ("charge.failed", DECLINED),
            ("payment_intent.payment_failed", DECLINED),
            ("charge.succeeded", PAID_LATER),
            ("payment_intent.succeeded", PAID_LATER),
        ),
        (S.CONFIRMING, S.DECLINED, S.SUCCEEDED, S.NEEDS_CUSTOMER, S.PLANNED),
        S.SUCCEEDED,
    ),
    "declined": History(
        (CREATED, ("charge.failed", DECLINED), ("payment_intent.payment_failed", DECLINED)),
        (S.CONFIRMING, S.DECLINED),
        S.DECLINED,
    ),
    "debit that is paid": History(
        (
            CREATED,
            ("charge.pending", PROCESSING),
            ("payment_intent.processing", PROCESSING),
            ("charge.succeeded", PAID),
            ("payment_intent.succeeded", PAID),
        ),
        (S.CONFIRMING, S.PROCESSING, S.SUCCEEDED),
        S.SUCCEEDED,
    ),
    "debit that fails": History(
        (
            CREATED,
            ("charge.pending", PROCESSING),
            ("payment_intent.processing", PROCESSING),
            ("charge.failed", DECLINED),
            ("payment_intent.payment_failed", DECLINED),
        ),
        (S.CONFIRMING, S.PROCESSING),
        S.DECLINED,
    ),
    "canceled": History(
        (CREATED, ("payment_intent.canceled", CANCELED)),
        (S.PREPARED, S.DECLINED, S.CANCELING, S.CANCELED),
        S.CANCELED,
    ),
}


def orders(events: int) -> Iterator[tuple[int, ...]]:
    """Every order of up to five deliveries in which each of so many events comes once or more often."""
    for repeated in range(DELIVERIES_MAX - events + 1):
        for extra in itertools.combinations_with_replacement(range(events), repeated):
            yield from sorted(set(itertools.permutations((*range(events), *extra))))


def deliver(
    row: Charge, history: History, order: Sequence[int], *, at_once: bool, late: int | None
) -> Charge:
    """Work through deliveries in an order and return the row.

    With `at_once` each look finds Stripe as early as the events that came allow; else at its end. The look
    for delivery `late` is taken then and applied after the next delivery's, as by a process that was slow.
    """
    reached = 0 if at_once else len(history.steps) - 1
    pending: tuple[Charge, PaymentIntent] | None = None
    for place, number in enumerate(order):
        reached = max(reached, number)
        event_type, intent = history.steps[number][0], history.steps[reached][1]
        if about(event_type) is About.PAYMENT and not is_known(row, OWN, event_type):
            if place == late:
                pending = (row, intent)
                continue
            row = apply(row, row, intent)
        if pending is not None:
            row = apply_late(row, *pending, now=intent)
            pending = None
    return row if pending is None else apply_late(row, *pending, now=history.steps[reached][1])


def apply_late(row: Charge, before: Charge, seen: PaymentIntent, *, now: PaymentIntent) -> Charge:
    """Apply what was seen earlier if the row is still the one from before the look; else look again."""
    return apply(row, before, seen) if row == before else apply(row, row, now)


def apply(row: Charge, before: Charge, seen: PaymentIntent) -> Charge:
    """Apply a merge as the ledger does."""
    result = merge(before, seen)
    return replace(row, state=result.state) if isinstance(result, Apply) else row


def finish(row: Charge, last: PaymentIntent) -> Charge:
    """Let the run settle what is in flight, past the window, as it would without any webhook."""
    if row.state is not S.CONFIRMING:
        return row
    lookup = Lookup((last,), complete=True, started_epoch_seconds=0.0, skew_seconds=0.0)
    found = find_confirmed(
        lookup, payment_intent_id=OWN, latest_charge_before=None, window_passed=True, key_answered=False
    )
    assert isinstance(found, Settled)
    return replace(row, state=found.state)


@pytest.mark.parametrize("name", HISTORIES)
def test_every_order_ends_in_the_same_state(name: str) -> None:
    """Duplicates, equal seconds, events before their time, slow looks: the end is what Stripe's end is."""
    history = HISTORIES[name]
    count = 0
    for order in orders(len(history.steps)):
        for start in history.starts:
            for at_once in (True, False):
                for late in (None, *range(len(order))):
                    row = replace(CHARGE, state=start, payment_intent=OWN)
                    row = deliver(row, history, order, at_once=at_once, late=late)
                    row = finish(row, history.steps[-1][1])
                    assert row.state is history.ends, (order, start, at_once, late)
                    count += 1
    print(f"{name}: {count} deliveries of up to {DELIVERIES_MAX} events in every order")
    assert count >= 1_000
