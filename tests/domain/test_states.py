"""The transition table: total, and the truth can always win."""

from itertools import product

import pytest

from workflows.domain import states
from workflows.domain.errors import InvariantViolation
from workflows.domain.states import (
    IN_FLIGHT,
    NOT_STARTED,
    PAID_OR_PAYING,
    SETTLED,
    SURPRISES,
    TRANSITIONS,
    State,
    advance,
    is_legal,
    is_surprise,
    mermaid,
)


def test_the_table_is_total() -> None:
    """Every state has a row, and every row leads to states."""
    assert set(TRANSITIONS) == set(State)
    assert all(isinstance(after, State) for afters in TRANSITIONS.values() for after in afters)


def test_staying_is_no_transition() -> None:
    """No state leads to itself."""
    assert not any(before in afters for before, afters in TRANSITIONS.items())


def test_succeeded_is_never_left() -> None:
    """Refunds and disputes stand beside `succeeded`, never instead of it (I8)."""
    assert TRANSITIONS[State.SUCCEEDED] == frozenset()


@pytest.mark.parametrize(
    "before", [state for state in State if state not in {State.SKIPPED, State.SUCCEEDED}]
)
def test_the_truth_can_always_win(before: State) -> None:
    """From every state but `skipped`, Stripe saying succeeded or processing is one legal step."""
    assert is_legal(before, State.SUCCEEDED)
    assert before is State.PROCESSING or is_legal(before, State.PROCESSING)


def test_every_charge_is_in_exactly_one_group() -> None:
    """Not started, in flight and settled share no state and leave none out (I9)."""
    assert set(State) == NOT_STARTED | IN_FLIGHT | SETTLED
    assert len(NOT_STARTED) + len(IN_FLIGHT) + len(SETTLED) == len(State)


def test_every_state_can_be_reached() -> None:
    """From `planned`, following the table, every state comes up."""
    seen, todo = {State.PLANNED}, [State.PLANNED]
    while todo:
        new = TRANSITIONS[todo.pop()] - seen
        seen |= new
        todo += new
    assert seen == set(State)


def test_every_in_flight_state_can_be_settled() -> None:
    """No request in flight can get stuck: each of its states has steps that settle it."""
    assert all(TRANSITIONS[state] & SETTLED for state in IN_FLIGHT)


def test_money_moves_only_after_a_confirm_or_by_stripe() -> None:
    """`confirming` is entered from a state that has a PaymentIntent: `planned` has one if it was reopened."""
    before = {state for state in State if State.CONFIRMING in TRANSITIONS[state]}
    assert not before & {State.CREATING, State.CANCELING, State.CANCELED, State.SKIPPED}


def test_what_ended_without_success_may_be_planned_again() -> None:
    """A later run may take over exactly what has ended, is not paid or being paid, and is not in review."""
    again = {state for state in SETTLED if State.PLANNED in TRANSITIONS[state]}
    assert again == SETTLED - PAID_OR_PAYING - {State.REVIEW}


def test_an_illegal_step_raises_and_a_legal_one_returns() -> None:
    """`advance` agrees with the table on every pair of states."""
    for before, after in product(State, State):
        if is_legal(before, after):
            assert advance(before, after) is after
        else:
            with pytest.raises(InvariantViolation):
                advance(before, after)


def test_a_surprise_is_money_after_we_had_given_up() -> None:
    """Exactly a payment out of refused, canceled or review is a surprise."""
    surprises = {pair for pair in product(State, State) if is_surprise(*pair)}
    assert surprises == set(product(SURPRISES, PAID_OR_PAYING))


def arrows() -> list[tuple[str, str]]:
    """Return the diagram's arrows between states, in the order in which they are drawn."""
    pairs = (row.strip().split(" --> ") for row in mermaid().splitlines() if " --> " in row)
    return [(before, after) for before, after in pairs if before != "[*]"]


def test_the_diagram_is_drawn_from_the_table() -> None:
    """Every arrow is a transition; every transition without one is the note's: the truth wins."""
    drawn = set(arrows())
    table = {(before.value, after.value) for before in State for after in TRANSITIONS[before]}
    assert drawn <= table
    undrawn = table - drawn
    assert {after for _, after in undrawn} == {state.value for state in PAID_OR_PAYING}
    assert "From every state but skipped, Stripe saying succeeded or processing wins." in mermaid()


def test_the_diagram_does_not_depend_on_hashing() -> None:
    """The arrows stand in the table's order, sorted within a state, so that sets can't shuffle them."""
    order = list(states.TRANSITIONS)
    assert arrows() == sorted(arrows(), key=lambda pair: (order.index(State(pair[0])), pair[1]))
