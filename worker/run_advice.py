"""What a person can do about a run that waits for one, with the exact command."""

from collections.abc import Mapping
from typing import Any


def advise(document: Mapping[str, Any]) -> str | None:
    """Return why a run waits for a person and what to type; None where it does not.

    `document` has at least run, phase, plan_hash, hold, hold_reason and canceling.
    """
    run = document["run"]
    if document["canceling"]:
        return None
    if document["phase"] == "planned":
        paused = f" (and is {document['hold']}: {document['hold_reason']})" if document["hold"] else ""
        return (
            f"it waits for the approval of its plan{paused}; nobody is charged before: "
            f"chargeonce run approve {run} --hash {document['plan_hash']} --reason ..."
        )
    resume = f"chargeonce run resume {run} --reason ..."
    match document["hold"]:
        case None:
            return None
        case "paused":
            return f"it is paused ({document['hold_reason']}); nothing new starts until: {resume}"
        case "canary":
            return f"its canary is through ({document['hold_reason']}); to let the rest follow: {resume}"
        case "cap":
            return (
                f"it has reached its cap ({document['hold_reason']}); to let it move more: "
                f"chargeonce run raise-cap {run} --cap CURRENCY=AMOUNT --reason ..."
            )
        case _:
            return (
                f"a breaker holds it ({document['hold_reason']}); once that is mended: {resume}. "
                "Where Stripe just did not answer, it goes on by itself when it does"
            )
