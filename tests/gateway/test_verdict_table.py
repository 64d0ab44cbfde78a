"""Every row of the verdict table, from a real answer over a real socket to the verdict."""

# ruff: noqa: D103 - the moves below are named by what they do; the table says what each shows

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from activities.gateway.calls import CallStyle
from activities.gateway.requests import Request, confirm_request
from tests.gateway.conftest import DIRECT
from tests.gateway.till import (
    CANCEL,
    CONFIRM,
    CREATE,
    GOOD_CARD,
    Till,
    confirm_key,
    create,
    create_key,
    gateway_at,
    open_till,
    post_create,
)
from workflows.domain.answer import Answer
from workflows.domain.keys import Operation
from workflows.domain.states import State
from workflows.domain.verdict import Cause, Proof, judge

Move = Callable[[Till], Awaitable[tuple[Operation, Answer]]]

DECLINED_CARD = "pm_card_chargeCustomerFail_1"
BANK_DEBIT = "pm_usBankAccount_1"
AUTHENTICATED_CARD = "pm_card_authenticationRequired_1"


async def confirm_after_it_was_paid(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    await till.confirm(intent.id)
    return CONFIRM, await till.confirm(intent.id, version=2)


async def confirm_while_it_is_processing(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(BANK_DEBIT, extra={"currency": "usd"})
    await till.confirm(intent.id, BANK_DEBIT)
    return CONFIRM, await till.confirm(intent.id, BANK_DEBIT, version=2)


async def confirm_after_it_was_canceled(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    await till.cancel(intent.id)
    return CONFIRM, await till.confirm(intent.id)


async def cancel_after_it_was_paid(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    await till.confirm(intent.id)
    return CANCEL, await till.cancel(intent.id)


async def replay_a_create(till: Till) -> tuple[Operation, Answer]:
    await till.prepare()
    return CREATE, await till.create()


async def replay_a_payment(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    await till.confirm(intent.id)
    return CONFIRM, await till.confirm(intent.id)


async def replay_a_decline(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(DECLINED_CARD)
    await till.confirm(intent.id, DECLINED_CARD)
    return CONFIRM, await till.confirm(intent.id, DECLINED_CARD)


async def replay_a_debit_under_way(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(BANK_DEBIT, extra={"currency": "usd"})
    await till.confirm(intent.id, BANK_DEBIT)
    return CONFIRM, await till.confirm(intent.id, BANK_DEBIT)


async def replay_a_stored_failure(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    till.fault(kind="error", status=500, stored=True)
    await till.confirm(intent.id)
    till.sim.set_faults()
    return CONFIRM, await till.confirm(intent.id)


async def create_it(till: Till) -> tuple[Operation, Answer]:
    till.seed()
    return CREATE, await till.create()


async def pay(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    return CONFIRM, await till.confirm(intent.id)


async def debit(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(BANK_DEBIT, extra={"currency": "usd"})
    return CONFIRM, await till.confirm(intent.id, BANK_DEBIT)


async def cancel(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    return CANCEL, await till.cancel(intent.id)


async def confirm_on_session(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(AUTHENTICATED_CARD)
    off_session = confirm_request(intent.id, AUTHENTICATED_CARD)
    request = Request(off_session.path, {"payment_method": AUTHENTICATED_CARD})
    return CONFIRM, await till.send(CONFIRM, request, confirm_key())


async def pay_without_capture(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(extra={"capture_method": "manual"})
    return CONFIRM, await till.confirm(intent.id)


async def decline(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(DECLINED_CARD)
    return CONFIRM, await till.confirm(intent.id, DECLINED_CARD)


async def need_the_customer(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare(AUTHENTICATED_CARD)
    return CONFIRM, await till.confirm(intent.id, AUTHENTICATED_CARD)


async def reuse_a_key_with_another_amount(till: Till) -> tuple[Operation, Answer]:
    await till.prepare()
    return CREATE, await till.create(amount_minor=99)


async def reuse_a_key_with_another_path(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    other = await till.prepare(version=2)
    await till.confirm(intent.id)
    return CONFIRM, await till.confirm(other.id)


async def create_for_a_stranger(till: Till) -> tuple[Operation, Answer]:
    return CREATE, await till.create()


async def create_nowhere(till: Till) -> tuple[Operation, Answer]:
    request = Request("/v1/payment_intentions", create().parameters)
    return CREATE, await till.send(CREATE, request, create_key())


async def confirm_with_a_stranger_s_card(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    till.seed("pm_card_visa_2", customer="cus_2")
    return CONFIRM, await till.confirm(intent.id, "pm_card_visa_2")


async def confirm_what_is_not_there(till: Till) -> tuple[Operation, Answer]:
    return CONFIRM, await till.confirm("pi_none")


async def revoke_the_key(till: Till) -> tuple[Operation, Answer]:
    till.sim.change(revoked=True)
    return CREATE, await till.create()


async def collide_with_itself(till: Till) -> tuple[Operation, Answer]:
    intent = await till.prepare()
    till.fault(kind="delay", seconds=0.5)
    first = asyncio.create_task(till.confirm(intent.id))
    await till.wait_for_requests(2)
    second = await till.confirm(intent.id)
    await first
    return CONFIRM, second


async def refuse_to_connect(till: Till) -> tuple[Operation, Answer]:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with gateway_at(f"http://127.0.0.1:{port}") as gateway:
        return CREATE, await post_create(gateway)


def fail(**effect: object) -> Move:
    """Return a move that confirms into a fault."""

    async def move(till: Till) -> tuple[Operation, Answer]:
        intent = await till.prepare()
        till.fault(**effect)
        return CONFIRM, await till.confirm(intent.id)

    return move


LIMIT = {"Stripe-Rate-Limited-Reason": "endpoint-rate", "Retry-After": "2"}
PROVED, OUTDATED = Proof.PROVED, Proof.OUTDATED
NOT_EXECUTED, UNKNOWN = Proof.NOT_EXECUTED, Proof.UNKNOWN

# Row of the table, move, whether it is the operation's first send, and what it proves.
ROWS: list[tuple[str, Move, bool, Proof, State | Cause | None]] = [
    ("error, already paid", confirm_after_it_was_paid, False, PROVED, State.SUCCEEDED),
    ("error, already processing", confirm_while_it_is_processing, False, PROVED, State.PROCESSING),
    ("error, already canceled", confirm_after_it_was_canceled, True, PROVED, State.CANCELED),
    ("error, paid before the cancel (T1)", cancel_after_it_was_paid, True, PROVED, State.SUCCEEDED),
    ("replayed create", replay_a_create, False, PROVED, State.PREPARED),
    ("replayed payment", replay_a_payment, False, PROVED, State.SUCCEEDED),
    ("replayed decline", replay_a_decline, False, OUTDATED, None),
    ("replayed processing", replay_a_debit_under_way, False, OUTDATED, None),
    ("replayed 500", replay_a_stored_failure, False, UNKNOWN, Cause.STORED_FAILURE),
    ("200 create", create_it, True, PROVED, State.PREPARED),
    ("200 succeeded", pay, True, PROVED, State.SUCCEEDED),
    ("200 processing", debit, True, PROVED, State.PROCESSING),
    ("200 canceled", cancel, True, PROVED, State.CANCELED),
    ("200 requires_action", confirm_on_session, True, PROVED, State.NEEDS_CUSTOMER),
    ("200 requires_capture", pay_without_capture, True, PROVED, State.REVIEW),
    ("402 decline", decline, True, PROVED, State.DECLINED),
    ("402 authentication_required", need_the_customer, True, PROVED, State.NEEDS_CUSTOMER),
    ("400 other parameters", reuse_a_key_with_another_amount, False, PROVED, State.REVIEW),
    ("400 other path", reuse_a_key_with_another_path, False, PROVED, State.REVIEW),
    ("400 first create", create_for_a_stranger, True, PROVED, State.REFUSED),
    ("400 later create (T6)", create_for_a_stranger, False, UNKNOWN, Cause.EARLIER_SEND_OPEN),
    ("404 first create", create_nowhere, True, PROVED, State.REFUSED),
    ("404 later create", create_nowhere, False, UNKNOWN, Cause.EARLIER_SEND_OPEN),
    ("400 first confirm", confirm_with_a_stranger_s_card, True, PROVED, State.REFUSED),
    ("400 later confirm (T6)", confirm_with_a_stranger_s_card, False, UNKNOWN, Cause.EARLIER_SEND_OPEN),
    ("404 confirm", confirm_what_is_not_there, True, UNKNOWN, Cause.SERVER_ERROR),
    ("401", revoke_the_key, True, NOT_EXECUTED, Cause.CREDENTIALS),
    ("403", fail(kind="error", status=403), True, NOT_EXECUTED, Cause.CREDENTIALS),
    ("409 key in use", collide_with_itself, False, UNKNOWN, Cause.KEY_IN_USE),
    (
        "409 something else",
        fail(kind="error", status=409, code="conflict"),
        True,
        UNKNOWN,
        Cause.SERVER_ERROR,
    ),
    ("429 rate", fail(kind="error", status=429, headers=LIMIT), True, NOT_EXECUTED, Cause.RATE_LIMITED),
    ("429 lock", fail(kind="error", status=429, code="lock_timeout"), True, NOT_EXECUTED, Cause.RATE_LIMITED),
    ("429 cap", fail(kind="error", status=429, code="spend_cap_exceeded"), True, NOT_EXECUTED, Cause.CAP),
    ("connect refused", refuse_to_connect, True, NOT_EXECUTED, Cause.UNREACHABLE),
    (
        "503 of the proxy",
        fail(kind="error", status=503, code="upstream_not_reached"),
        True,
        NOT_EXECUTED,
        Cause.UNREACHABLE,
    ),
    ("500 stored", fail(kind="error", status=500, stored=True), True, UNKNOWN, Cause.SERVER_ERROR),
    ("500 booked", fail(kind="error", status=500, place="after"), True, UNKNOWN, Cause.SERVER_ERROR),
    ("503", fail(kind="error", status=503), True, UNKNOWN, Cause.SERVER_ERROR),
    ("424", fail(kind="error", status=424), True, UNKNOWN, Cause.SERVER_ERROR),
    ("402 without PaymentIntent", fail(kind="error", status=402), True, UNKNOWN, Cause.SERVER_ERROR),
    ("dropped before booking", fail(kind="drop"), True, UNKNOWN, Cause.NO_ANSWER),
    ("dropped after booking", fail(kind="drop", place="after"), True, UNKNOWN, Cause.NO_ANSWER),
]


# What the proxy says otherwise, by row. It lets nobody ask for what it can't count, and where Stripe fell
# silent it answers that it does not know: an answer, and as unknown as the silence.
PROXY_SAYS: dict[str, tuple[Proof, Cause]] = {
    "404 first create": (NOT_EXECUTED, Cause.CREDENTIALS),
    "404 later create": (NOT_EXECUTED, Cause.CREDENTIALS),
    "dropped before booking": (UNKNOWN, Cause.SERVER_ERROR),
    "dropped after booking": (UNKNOWN, Cause.SERVER_ERROR),
}


@pytest.mark.parametrize("call_style", ["raw", "typed"])
@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
async def test_each_row_of_the_verdict_table(
    row: tuple[str, Move, bool, Proof, State | Cause | None], call_style: CallStyle, way: str
) -> None:
    """A real answer is judged as the table says: in both call styles, straight and through the proxy."""
    name, move, first_send, *expected = row
    async with open_till(call_style) as till:
        operation, answer = await move(till)
    verdict = judge(operation, answer, first_send=first_send)
    if way != DIRECT:
        expected = list(PROXY_SAYS.get(name, expected))
    assert [verdict.proof, verdict.state or verdict.cause] == expected, (verdict, answer)


async def test_a_timeout_is_unknown_and_what_it_booked_is_found_by_replay() -> None:
    """No answer in time is unknown; the same key then tells what happened."""
    async with open_till(timeout_seconds=0.3) as till:
        intent = await till.prepare()
        till.fault(kind="delay", seconds=1.0, place="after")
        answer = await till.confirm(intent.id)
        verdict = judge(CONFIRM, answer, first_send=True)
        assert (verdict.proof, verdict.cause) == (Proof.UNKNOWN, Cause.NO_ANSWER)
        till.sim.set_faults()
        async with asyncio.timeout(10):
            while (answer := await till.confirm(intent.id)).http_status == 409:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert answer.replayed
        assert judge(CONFIRM, answer, first_send=False).state is State.SUCCEEDED
        assert len(till.sim.movements) == 1


@pytest.mark.parametrize("move", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
async def test_both_call_styles_give_the_same_answer(move: Move) -> None:
    """Raw and typed calls differ in cost, not in what they answer or put on the wire."""
    answers, bodies = [], []
    for call_style in ("raw", "typed"):
        async with open_till(call_style) as till:
            till.sim.clock.freeze(1_900_000_000)
            _, answer = await move(till)
            answers.append(answer)
            bodies.append([(seen.path, seen.key, seen.body_sha256) for seen in till.sim.requests])
    first, second = (replace(answer, stripe_epoch_seconds=None, request_id=None) for answer in answers)
    if first.transport != "not_sent":  # names a port, which differs
        assert first == second
    assert bodies[0] == bodies[1]


async def test_one_answer_in_full() -> None:
    """A decline carries everything that policy, journal and support need."""
    async with open_till() as till:
        intent = await till.prepare(DECLINED_CARD)
        answer = await till.confirm(intent.id, DECLINED_CARD)
        request_id = till.sim.requests[-1].request_id
    assert (answer.http_status, answer.error_type, answer.code) == (402, "card_error", "card_declined")
    assert answer.decline_code == "generic_decline"
    assert answer.message == "Your card was declined."
    assert answer.request_id == request_id
    assert answer.stripe_epoch_seconds is not None
    assert not answer.replayed
    paid = answer.payment_intent
    assert paid is not None
    assert (paid.id, paid.status, paid.amount_minor, paid.currency, paid.customer) == (
        intent.id,
        "requires_payment_method",
        1_250,
        "eur",
        "cus_1",
    )
    assert paid.charge_id == intent.charge_id
    assert paid.create_key == create_key()
    assert paid.latest_charge is not None
    assert paid.last_error_code == "card_declined"


async def test_a_limit_tells_its_reason_and_how_long_to_wait() -> None:
    """The headers of a 429 arrive."""
    async with open_till() as till:
        _, answer = await fail(kind="error", status=429, headers=LIMIT)(till)
    assert (answer.rate_limited_reason, answer.retry_after_seconds) == ("endpoint-rate", 2.0)


async def test_cards_and_bank_debits_both_take_the_frozen_parameters() -> None:
    """The same create parameters fit a saved card and a bank debit."""
    async with open_till() as till:
        for card in (GOOD_CARD, "pm_sepaDebit_1"):
            till.seed(card)
        first = await till.create(GOOD_CARD)
        second = await till.create("pm_sepaDebit_1", version=2)
        assert first.succeeded
        assert second.succeeded
