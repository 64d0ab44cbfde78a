"""The ways to charge twice, or not at all, that are known: each with an unsafe client and our side of it.

The table is what the tests check and what the README shows. Outcomes are counted from the simulator's book.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tests.activities.scene import Scene
from tests.failure_modes import answer_misread as misread
from tests.failure_modes import inbound, ours, ours_inbound
from tests.failure_modes import key_of_the_wrong_thing as wrong
from tests.failure_modes import key_per_retry as retrying
from tests.failure_modes import key_per_send as sending
from tests.failure_modes.outcome import Outcome
from tests.failure_modes.shop import Shop

AWS: Final = "A"
REACTOR: Final = "R"
KEYS: Final = "K"
ARTICLES: Final = {
    AWS: "AWS SDK v2 HTTP Clients and Stripe Integration",
    REACTOR: "Reactor Netty and Stripe Integration",
    KEYS: "Stripe Idempotency Keys in Payment Retry Logic",
}

CHARGED_TWICE: Final = Outcome(due=1, charged=2, recorded=1)
NOT_RECORDED: Final = Outcome(due=1, charged=1, recorded=0)
ONCE: Final = Outcome(due=1, charged=1, recorded=1)
BOTH_ONCE: Final = Outcome(due=2, charged=2, recorded=2)
READS_ITSELF: Final = ", no webhook is trusted: the run reads Stripe itself"


@dataclass(frozen=True, slots=True)
class Mode:
    """One failure mode: where it was told, what goes wrong, who does it wrong, and both outcomes."""

    name: str
    article: str
    goes_wrong: str
    client: Callable[[Shop], Awaitable[None]]
    library: str
    unsafe: Outcome
    way: Callable[[Scene], Awaitable[None]]
    ours: Outcome = ONCE
    note: str = ""


CATALOGUE: Final = (
    Mode(
        "key made in a request hook",
        REACTOR,
        "the hook runs for the retry as well, and makes another key",
        sending.stamp_in_a_request_hook,
        "httpx, tenacity",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "key made in the transport",
        AWS,
        "what the SDK calls per attempt replaces the key that the SDK keeps over its own retries",
        sending.stamp_in_the_transport,
        "stripe",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "key made in a header callback",
        REACTOR,
        "set up once, called once per request",
        sending.stamp_in_a_header_callback,
        "requests",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "a hook overwrites a good key",
        REACTOR,
        "a tracing hook from another service takes the key's place, and the call site looks right",
        sending.overwrite_in_a_trace,
        "aiohttp, tenacity",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "request built per retry",
        AWS,
        "the factory inside the loop makes the key, out of sight",
        retrying.build_a_request_per_retry,
        "aiohttp",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "retry enters the function that makes the key",
        AWS,
        "the error handler starts over, key included",
        retrying.enter_again_on_error,
        "aiohttp",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "key left to the SDK",
        KEYS,
        "the SDK makes a key per call, and the decorator around it calls again",
        retrying.leave_the_key_to_the_sdk,
        "stripe, tenacity",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "deferred construction",
        REACTOR,
        "a lambda for later is evaluated once per attempt",
        retrying.defer_the_construction,
        "stripe, tenacity",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "fallback after a timeout",
        REACTOR,
        "the client stops waiting, Stripe does not stop charging",
        retrying.fall_back_after_a_timeout,
        "stripe",
        CHARGED_TWICE,
        ours.lose_patience,
    ),
    Mode(
        "key kept in memory",
        KEYS,
        "it dies with the process that sent it",
        retrying.keep_the_key_in_memory,
        "stripe",
        CHARGED_TWICE,
        ours.die_in_between,
    ),
    Mode(
        "key from an e-mail address",
        KEYS,
        "it names the customer and not the amount: the second one gets the first one's answer",
        wrong.key_from_an_email_address,
        "stripe",
        Outcome(due=2, charged=1, recorded=2),
        ours.two_amounts_of_one_customer,
        BOTH_ONCE,
    ),
    Mode(
        "key from the time of the attempt",
        KEYS,
        "unique, for each attempt",
        wrong.key_from_the_time,
        "stripe, tenacity",
        CHARGED_TWICE,
        ours.lose_both_answers,
    ),
    Mode(
        "key from the hour of the batch",
        KEYS,
        "whoever comes second has the key of the first, and is refused",
        wrong.key_from_the_hour_of_the_batch,
        "stripe",
        Outcome(due=2, charged=1, recorded=1),
        ours.two_customers_at_once,
        BOTH_ONCE,
    ),
    Mode(
        "same key after 24 hours",
        KEYS,
        "Stripe has forgotten it, so it is new",
        wrong.same_key_after_a_day,
        "stripe",
        CHARGED_TWICE,
        ours.wait_a_day,
    ),
    Mode(
        "new key after a 409",
        KEYS,
        "the first request is still running, and another one is started",
        misread.new_key_after_409,
        "stripe",
        CHARGED_TWICE,
        ours.meet_a_409,
    ),
    Mode(
        "new key after a 429",
        KEYS,
        "the 429 says nothing about the request before it",
        misread.new_key_after_429,
        "stripe",
        CHARGED_TWICE,
        ours.meet_a_429_after_a_lost_answer,
    ),
    Mode(
        "new key after a stored 500",
        KEYS,
        "the same key brings the same 500; the request behind it had paid",
        misread.new_key_after_a_stored_500,
        "stripe",
        CHARGED_TWICE,
        ours.meet_a_stored_500,
    ),
    Mode(
        "409 taken for a failure",
        KEYS,
        "in flight is neither absent nor failed",
        misread.conflict_as_failure,
        "stripe",
        NOT_RECORDED,
        ours.meet_a_409,
    ),
    Mode(
        "stored 500 taken for a failure",
        KEYS,
        "the retries bring the first answer again, not the truth",
        misread.give_up_on_a_stored_500,
        "stripe",
        NOT_RECORDED,
        ours.meet_a_stored_500,
    ),
    Mode(
        "amount changed under the same key",
        KEYS,
        "400, although the old amount was taken",
        misread.change_the_amount_under_the_key,
        "stripe",
        NOT_RECORDED,
        ours.change_the_source,
    ),
    Mode(
        "in flight taken for absent",
        KEYS,
        "two workers look, see nothing, and charge",
        misread.in_flight_as_absent,
        "stripe",
        Outcome(due=1, charged=2, recorded=2),
        ours.two_workers_at_once,
    ),
    Mode(
        "webhook processed twice",
        KEYS,
        "delivery is at least once, and so is the credit",
        inbound.credit_per_delivery,
        "stripe, aiohttp",
        Outcome(due=1, charged=1, recorded=2),
        ours_inbound.take_in_one_event_twice,
        note=READS_ITSELF,
    ),
    Mode(
        "stale webhook overwrites",
        KEYS,
        "the failure of the first try arrives after the success of the second",
        inbound.last_arrival_wins,
        "stripe, aiohttp",
        NOT_RECORDED,
        ours_inbound.take_in_a_late_failure,
        note=READS_ITSELF,
    ),
    Mode(
        "PaymentIntent id never stored",
        KEYS,
        "the webhook names a payment that nobody knows",
        inbound.forget_the_payment_intent,
        "stripe, aiohttp",
        NOT_RECORDED,
        ours_inbound.go_by_the_identity_at_stripe,
        note=READS_ITSELF,
    ),
)


def draw_table() -> str:
    """Return the catalogue as the README shows it."""
    rows = ["| failure mode | what goes wrong | with | unsafe client | chargeonce |", "| --- " * 5 + "|"]
    for mode in CATALOGUE:
        path = mode.client.__module__.replace(".", "/")
        name = f"[{mode.name}]({path}.py) ({mode.article})"
        cells = (name, mode.goes_wrong, mode.library, mode.unsafe.show(), f"{mode.ours.show()}{mode.note}")
        rows.append(f"| {' | '.join(cells)} |")
    articles = "; ".join(f"{letter}: *{title}*" for letter, title in ARTICLES.items())
    return "\n".join([*rows, "", f"Told in {articles}."])
