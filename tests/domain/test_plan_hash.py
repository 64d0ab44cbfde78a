from workflows.domain.plan_hash import refuse_hash

RUN, PLANNED = "billing-run/acct_1/2031-03", "3f2a9c" + "0" * 58


def test_a_plan_is_approved_by_its_own_hash() -> None:
    """And by no other: the refusal names both."""
    assert refuse_hash(RUN, PLANNED, PLANNED) is None
    refused = refuse_hash(RUN, PLANNED, "f" * 64) or ""
    assert PLANNED in refused
    assert "f" * 64 in refused


def test_the_beginning_of_a_hash_is_none() -> None:
    """Whoever types what an example shows, dots and all, is told to give the whole hash."""
    for beginning in ("3f2a9c", "3f2a9c...", "3f2a9c…"):
        assert "give the whole hash" in (refuse_hash(RUN, PLANNED, beginning) or "")
    assert refuse_hash(RUN, PLANNED, "") is not None
