"""`refund`, `review`, `resolve`, `verify` and `restore` as somebody types them, against a whole stack."""

from collections.abc import Iterator

import pytest

from tests.forking import Nursery
from tests.processes.test_cli_with_stack import Terminal, open_terminal

pytestmark = pytest.mark.timeout(240)

LINES = 20
RUN = "billing-run/acct_sim/2031-03"
BECAUSE = ("--reason", "synthetic")


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Iterator[Terminal]:
    """`chargeonce dev` in one terminal, and another terminal beside it, with a run that is charged."""
    with open_terminal(tmp_path_factory.mktemp("home"), nursery) as terminal:
        path = terminal.seed(LINES - 1, "cus_late,usd,7.00,pm_card_chargeCustomerFail_late")
        assert terminal.type_json(*terminal.start("2031-03", path))[0] == 0
        yield terminal


def test_a_charge_is_refunded_in_parts_and_the_books_agree(terminal: Terminal) -> None:
    """Each part is a request of its own behind a vault key of its own; more than is left is refused."""
    code, refused = terminal.type_json("refund", "cus_c5/base", "--amount", "2.00", *BECAUSE)
    assert (code, "nobody is there to confirm" in refused["error"]) == (2, True)
    for amount in ("2.00", "1.25"):
        code, made = terminal.type_json("refund", "cus_c5/base", "--amount", amount, *BECAUSE, "--yes")
        assert (code, made["state"], made["kind"]) == (0, "made", "requested_by_customer"), made
    code, refused = terminal.type_json("refund", "cus_c5/base", "--amount", "2.26", *BECAUSE, "--yes")
    assert (code, "has not gone back yet" in refused["error"]) == (2, True), refused
    code, listed = terminal.type_json("refunds", "--charge", "cus_c5/base")
    assert [(one["amount_minor"], one["status"]) for one in listed["refunds"]] == [
        (125, "succeeded"),
        (200, "succeeded"),
    ]
    code, again = terminal.type_json("refund", "--request", listed["refunds"][0]["request_id"])
    assert (code, again["refund_id"]) == (0, listed["refunds"][0]["refund_id"])
    code, story = terminal.type_json("explain", "cus_c5/base")
    assert "succeeded" in story["state"]
    assert any("refund_made" in event["summary"] for event in story["events"])
    assert terminal.type_json("verify", RUN)[0] == 0


def test_nothing_goes_back_of_what_was_not_paid(terminal: Terminal) -> None:
    """A decline has nothing to refund, and the answer says what Stripe shows."""
    code, refused = terminal.type_json("refund", "cus_late/base", *BECAUSE, "--yes")
    assert (code, "nothing was paid" in refused["error"]) == (4, True), refused


def test_what_is_not_in_review_is_not_resolved(terminal: Terminal) -> None:
    """The list is empty, and a decision about a charge that nobody has to decide about is refused."""
    assert terminal.type_json("review") == (0, {"charges": []})
    code, refused = terminal.type_json("review", "cus_c1/base")
    assert (code, "not in review" in refused["error"]) == (4, True)
    code, refused = terminal.type_json("resolve", "cus_c1/base", "--as", "unpaid", *BECAUSE)
    assert (code, "not in review" in refused["error"]) == (4, True)


def test_an_account_is_verified_whole(terminal: Terminal) -> None:
    """By name, or with all others."""
    code, everything = terminal.type_json("verify", "--all")
    assert (code, everything["clean"], len(everything["accounts"])) == (0, True, 1)
    code, one = terminal.type_json("verify", "--account", "acct_sim", "--since", "30d")
    assert (code, one["accounts"][0]["lines_compared"]) == (0, LINES)
    assert terminal.type_json("verify")[0] == 2
    assert terminal.type_json("verify", RUN, "--all")[0] == 2


def test_a_restored_ledger_sends_nothing_until_it_is_cleared(terminal: Terminal) -> None:
    """A refund waits, and goes out once Stripe has been asked and the runs' keys are rotated."""
    assert terminal.type_json("restore")[1] == {"restored": False}
    assert terminal.type_json("restore", "--clear", *BECAUSE)[0] == 4
    assert terminal.type_json("restore", "--declare", *BECAUSE)[1]["declared"] is True
    code, waiting = terminal.type_json("refund", "cus_c7/base", "--yes", "--no-wait", *BECAUSE)
    assert (code, waiting["state"]) == (0, "requested")
    code, shown = terminal.type_json("restore")
    assert (shown["restored"], shown["runs"]) == (True, [RUN])
    code, cleared = terminal.type_json("restore", "--clear", *BECAUSE)
    assert (code, cleared["cleared"], len(cleared["revoked"]) > 0) == (0, True, True), cleared
    code, made = terminal.type_json("refund", "--request", waiting["request"])
    assert (code, made["state"]) == (0, "made"), made
    assert terminal.type_json("verify", RUN)[0] == 0
