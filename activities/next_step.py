"""What happens next to a charge, in one line: by its state, what its run does now, and what it waits for."""

from collections.abc import Mapping
from typing import Any

_LATER_RUN = "a later run of the period may take it over (chargeonce run start --again)"
_BY_STATE = {
    "creating": "looked up at Stripe; then adopted, sent again under its key, or past the window re-keyed",
    "confirming": "looked up at Stripe; then settled, sent again under its key, or past the window re-keyed",
    "canceling": "looked up at Stripe; then canceled, or whatever Stripe says it is",
    "succeeded": "nothing: it is paid",
    "processing": "Stripe says in some days whether the debit went through",
    "review": "somebody has to look at it: see the reason",
}
_NOT_BEGUN = {
    "planned": "its first request leaves when its slice is worked through",
    "prepared": "its PaymentIntent is confirmed when its slice is worked through",
}
_ENDED_UNPAID = {
    "declined": "nothing more in this run: the bank has declined it",
    "needs_customer": "nothing more in this run: the customer has to authenticate or pay on session",
    "refused": "nothing more in this run: correct what Stripe refused",
    "canceled": "nothing more in this run: it was canceled, and moved no money",
}
_WAITS = {
    "retry": "tried again by the run's retry policy",
    "customer": "the run waits for the customer to authenticate or pay on session, and looks",
    "debit": "the run asks Stripe whether the debit went through",
}


_TAKEN_OVER = "Stripe is asked what became of what an earlier run sent for it; then it goes on from there"
_CHARGING_IS_OVER = frozenset({"retrying", "closed"})


def describe_next_step(charge: Mapping[str, Any]) -> str:
    """Return what happens next to a charge.

    `charge` has its state, its run's phase, hold and canceling, and kind (retry, customer, debit), due_at and
    ends_at of what is still waited for, as follow_up, follow_up_due_at and follow_up_ends_at.
    """
    state = charge["state"]
    if charge["follow_up"] is not None:
        due, ends = charge["follow_up_due_at"], charge["follow_up_ends_at"]
        return f"{_WAITS[charge['follow_up']]}, next at {_time(due)}, until {_time(ends)} at the latest"
    if state == "skipped":
        return f"nothing in this run, which never charges it; once what kept it is mended, {_LATER_RUN}"
    if state in _NOT_BEGUN:
        return _describe_beginning(charge)
    if state not in _ENDED_UNPAID:
        return _BY_STATE[state]
    if charge["phase"] in _CHARGING_IS_OVER:
        return f"{_ENDED_UNPAID[state]}; {_LATER_RUN}"
    if state == "declined":
        return "its run goes on; once the charging is over, the retry policy says whether it is tried again"
    return f"{_ENDED_UNPAID[state]}; once that has closed, {_LATER_RUN}"


def is_kept(charge: Mapping[str, Any]) -> bool:
    """Return whether a charge that has not begun waits for a person to decide about its run."""
    has_to_wait = charge["phase"] == "planned" or charge["hold"] is not None
    return has_to_wait and charge["state"] in _NOT_BEGUN and not charge["canceling"]


def _describe_beginning(charge: Mapping[str, Any]) -> str:
    if charge["canceling"]:
        return "it is canceled: its run is being canceled"
    if charge["phase"] == "planned":
        return "nothing before somebody approves the plan of its run"
    if charge["hold"] is not None:
        return f"nothing while its run is held ({charge['hold']}: {charge['hold_reason']})"
    if charge["state"] == "planned" and charge.get("create_version"):
        return _TAKEN_OVER
    return _NOT_BEGUN[charge["state"]]


def _time(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"
