"""What happens next to a line that is not paid or unusual, and what somebody can do about it."""

from collections.abc import Iterator, Mapping
from typing import Any

from activities.next_step import describe_next_step

_SOURCE_ROW = (
    "nothing in this run, which never charges it; once what kept it is mended, a later run of the period "
    "may bill it (chargeonce run start --again)"
)


def what_to_do(row: Mapping[str, Any]) -> str:
    """Return the advice for one row of exceptions.csv, of whatever subject."""
    if row["subject"] == "source_row":
        return _SOURCE_ROW
    if row["subject"] == "taken_over":
        return f"nothing here: see the pack of {row['other_run']}"
    return "; ".join(_advise(row))


def _advise(row: Mapping[str, Any]) -> Iterator[str]:
    charge_id, unusual = row["charge_id"], str(row["unusual"]).split()
    if row["state"] == "review":
        yield f"decide: chargeonce review {charge_id}"
    elif "not_paid" in unusual:
        yield describe_next_step(row)
    if "drift" in unusual:
        yield "the ledger and Stripe differ: chargeonce reconcile show"
    if "dispute" in unusual:
        until = "" if row["dispute_due_by"] is None else f" by {row['dispute_due_by']:%Y-%m-%d %H:%M} UTC"
        yield f"answer the dispute at Stripe{until}"
    if "alarm" in unusual:
        yield f"see why: chargeonce explain {charge_id}"
    if not {"not_paid", "drift", "dispute", "alarm"} & set(unusual):
        yield "nothing: it is paid"
