"""What an answer proves, over every answer there could be."""

# ruff: noqa: FBT001 - hypothesis passes arguments by name

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.domain.strategies import answers, operations, payment_intents
from workflows.domain.answer import Answer, PaymentIntent, Transport
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import CONCLUSIVE_STATUSES, Cause, Proof, judge, judge_status

ANSWERED = Transport.ANSWERED


@given(operations, answers, st.booleans())
def test_every_answer_has_a_verdict(operation: Operation, answer: Answer, first_send: bool) -> None:
    """Any answer to any operation is judged without an error, and state and cause are set as promised."""
    verdict = judge(operation, answer, first_send=first_send)
    assert (verdict.state is not None) == (verdict.proof is Proof.PROVED)
    assert (verdict.cause is not None) == (verdict.proof in {Proof.NOT_EXECUTED, Proof.UNKNOWN})
    assert verdict.reason


@given(operations, answers, st.booleans())
def test_a_verdict_depends_on_its_arguments_alone(
    operation: Operation, answer: Answer, first_send: bool
) -> None:
    """The same answer is judged the same way twice."""
    first = judge(operation, answer, first_send=first_send)
    assert judge(operation, answer, first_send=first_send) == first


@given(
    operations, answers, st.booleans(), st.sampled_from([kind for kind in Transport if kind is not ANSWERED])
)
def test_silence_proves_no_state(
    operation: Operation, answer: Answer, first_send: bool, transport: Transport
) -> None:
    """Without a readable answer nothing is proved; only a request that never left did nothing for sure."""
    verdict = judge(operation, replace(answer, transport=transport), first_send=first_send)
    assert verdict.proof is not Proof.PROVED
    never_left = transport is Transport.NOT_SENT or answer.code == "upstream_not_reached"
    assert (verdict.proof is Proof.NOT_EXECUTED) == never_left


@given(operations, answers)
def test_only_a_first_send_is_refused(operation: Operation, answer: Answer) -> None:
    """A later send's 400 or 404 says nothing about the sends before it (trace T6)."""
    assert judge(operation, answer, first_send=False).state is not State.REFUSED


@given(operations, answers, st.booleans(), st.sampled_from([401, 403, 429]))
def test_credentials_and_limits_prove_no_state(
    operation: Operation, answer: Answer, first_send: bool, status: int
) -> None:
    """401, 403 and 429 prove no state, unless they carry a PaymentIntent that an earlier send settled."""
    answer = replace(answer, http_status=status)
    verdict = judge(operation, answer, first_send=first_send)
    intent = answer.payment_intent
    if intent is None or intent.status not in CONCLUSIVE_STATUSES:
        assert verdict.proof is not Proof.PROVED


@given(operations, answers, st.booleans(), st.integers(min_value=500, max_value=599) | st.just(424))
def test_a_server_error_is_never_a_state(
    operation: Operation, answer: Answer, first_send: bool, status: int
) -> None:
    """5xx and 424 leave the outcome unknown, unless they carry a PaymentIntent that is settled."""
    answer = replace(answer, transport=ANSWERED, http_status=status, code="api_error")
    verdict = judge(operation, answer, first_send=first_send)
    intent = answer.payment_intent
    if intent is None or intent.status not in CONCLUSIVE_STATUSES:
        expected = {Proof.UNKNOWN} if status >= 500 or not answer.replayed else {Proof.OUTDATED}
        assert verdict.proof in expected


@given(operations, answers, st.booleans(), st.sampled_from(sorted(CONCLUSIVE_STATUSES)))
def test_an_error_with_a_settled_payment_intent_settles(
    operation: Operation, answer: Answer, first_send: bool, status: str
) -> None:
    """The first row: an error that carries a settled PaymentIntent is judged by it, whatever else it says."""
    intent = PaymentIntent("pi_1", status, 100, "eur", 1)
    answer = replace(answer, transport=ANSWERED, http_status=400, code=None, payment_intent=intent)
    assert judge(operation, answer, first_send=first_send).state is CONCLUSIVE_STATUSES[status]


@given(operations, answers, st.booleans())
def test_paid_needs_a_payment_intent_that_says_so(
    operation: Operation, answer: Answer, first_send: bool
) -> None:
    """`succeeded`, `processing` and `canceled` come only from what Stripe says of a PaymentIntent."""
    verdict = judge(operation, answer, first_send=first_send)
    if verdict.state in set(CONCLUSIVE_STATUSES.values()):
        assert answer.payment_intent is not None
        assert CONCLUSIVE_STATUSES[answer.payment_intent.status] is verdict.state


@given(operations, answers, st.booleans(), st.integers(min_value=300, max_value=599))
def test_a_replayed_error_is_history(
    operation: Operation, answer: Answer, first_send: bool, status: int
) -> None:
    """A replayed error is a stored failure or outdated; it proves a state only by a settled PaymentIntent."""
    answer = replace(answer, transport=ANSWERED, http_status=status, replayed=True, code="api_error")
    verdict = judge(operation, answer, first_send=first_send)
    if verdict.proof is Proof.PROVED:
        assert answer.payment_intent is not None
        assert answer.payment_intent.status in CONCLUSIVE_STATUSES
    else:
        assert verdict.proof is Proof.OUTDATED or verdict.cause is Cause.STORED_FAILURE


@given(answers, st.booleans())
def test_a_refund_or_cancel_is_never_refused(answer: Answer, first_send: bool) -> None:
    """`refused` is a word about create and confirm: a refused cancel says nothing about the charge."""
    for operation in (Operation.CANCEL, Operation.REFUND):
        assert judge(operation, answer, first_send=first_send).state is not State.REFUSED


@given(payment_intents, operations)
def test_an_unknown_status_goes_to_people(intent: PaymentIntent, operation: Operation) -> None:
    """A status that is new to us, or that waits for a capture, is reviewed and never guessed."""
    for status in ("requires_capture", "status_of_tomorrow"):
        assert judge_status(operation, replace(intent, status=status)).state is State.REVIEW
