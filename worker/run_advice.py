"""What a person can do about a run that waits for one, with the exact command."""

from collections.abc import Mapping
from typing import Any

from workflows.domain.counted import counted


def describe_approval(run_id: str, plan_hash: str) -> str:
    """Return the command that approves this plan of this run; only its reason is left to fill in."""
    return f"chargeonce run approve {run_id} --hash {plan_hash} --reason ..."


def describe_cancel(run_id: str) -> str:
    """Return the command that gives this run up; only its reason is left to fill in."""
    return f"chargeonce run cancel {run_id} --reason ..."


def describe_resume(run_id: str) -> str:
    """Return the command that lets this run go on; only its reason is left to fill in."""
    return f"chargeonce run resume {run_id} --reason ..."


def describe_recovery(run_id: str) -> str:
    """Return the command that gives this run a new workflow; only its reason is left to fill in."""
    return f"chargeonce run recover {run_id} --reason ..."


def describe_canary(canary: Mapping[str, Any] | None) -> str | None:
    """Return what becomes of a run with this canary (`contracts.Canary` as JSON); None where it has none."""
    if not canary or not canary.get("lines"):
        return None
    first, percent = counted(canary["lines"], "line"), canary.get("declined_percent_max")
    then = "it holds until somebody has looked"
    if percent is not None:
        then = (
            f"it goes on by itself where at most {percent:g} % ended unpaid and none unknown, else it holds"
        )
    return f"canary: the first {first} charged alone, then {then}"


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
            f"it waits for approval{paused}; nobody is charged before: "
            f"{describe_approval(run, document['plan_hash'])}"
        )
    resume = describe_resume(run)
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
