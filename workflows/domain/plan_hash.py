"""An approval names one plan by its hash, whole: why any other is refused, said the same everywhere."""

from workflows.domain.echo import echo


def refuse_hash(run_id: str, planned: str, approved: str) -> str | None:
    """Return why `approved` does not approve the plan of the hash `planned`, or None where it is that hash.

    The beginning of a hash is no hash: somebody who approves should have seen all of it, or copied it.
    """
    if approved == planned:
        return None
    if approved and planned.startswith(approved.rstrip(".…")):
        return f"{echo(approved)} is only the beginning of a hash: give the whole hash, {planned}"
    return (
        f"the plan of {run_id} has the hash {planned}, and the approval is for {approved}: "
        f"look at the plan, then approve its own hash"
    )
