"""What audit.jsonl of a closing pack consists of: one kind of line after the other, each with its fields."""

from activities.export.columns import Table, columns_of

AUDIT_FILE = "audit.jsonl"
RECORD = "record"  # the field that says what a line is

_AT = "at time when, by the ledger's clock\n"
_OF_STRIPE = "at time when, as Stripe says\n"


def _audit(name: str, a_row: str, columns: str) -> Table:
    return Table(name, a_row, columns_of(columns))


AUDIT = (
    _audit(
        "run_events",
        "every decision about the run",
        f"""{_AT}action text what was decided
who text by whom
reason text why
detail object what belongs to it""",
    ),
    _audit(
        "calendar_decisions",
        "every decision about the period in the schedule's calendar",
        f"""{_AT}schedule text the schedule
decision text bill or waive
who text by whom
reason text why""",
    ),
    _audit(
        "takeovers",
        "every charge that came to the run from an earlier one, or left it for a later one",
        f"""{_AT}charge_id text the charge
from_run text who had it
to_run text who has taken it
reason text why
from_state text where it stood
currency text its currency then
amount_minor integer its amount then, in minor units""",
    ),
    _audit(
        "decisions",
        "every decision about a charge that no answer to a send explains",
        f"""{_AT}charge_id text the charge
decision text what was decided
reason text why
alarm flag whether somebody ought to know
evidence object what it rests on""",
    ),
    _audit(
        "follow_ups",
        "everything that the run has waited for over days",
        f"""{_AT}charge_id text the charge
kind text retry, customer or debit
rule text the rule of the retry policy
reason text why
payment_intent text which PaymentIntent a customer is to pay
due_at time when the run looks next
ends_at time until when it waits at most
closed_at time when it stopped waiting
outcome text what came of it""",
    ),
    _audit(
        "refund_requests",
        "every refund that somebody asked for here",
        f"""{_AT}charge_id text the charge
request_id text the request, which its key is made of
who text who asked for it
kind text what Stripe is told it is for
reason text why
payment_intent text the PaymentIntent
amount_minor integer how much, in minor units
currency text of what
state text where the request stands
refund_id text Stripe's refund
detail text what came of it
changed_at time when that was recorded""",
    ),
    _audit(
        "refunds",
        "every refund of a charge",
        f"""{_OF_STRIPE}charge_id text the charge
refund_id text Stripe's refund
payment_intent text the PaymentIntent
amount_minor integer how much, in minor units
currency text of what
status text where it stands
reason text why, as Stripe has it
failure_reason text why it failed
seen_at time when the ledger saw it like this""",
    ),
    _audit(
        "disputes",
        "every dispute of a charge",
        f"""{_OF_STRIPE}charge_id text the charge
dispute_id text Stripe's dispute
payment_intent text the PaymentIntent
amount_minor integer how much, in minor units
currency text of what
status text where it stands
reason text why
due_by time until when Stripe takes evidence
seen_at time when the ledger saw it like this""",
    ),
    _audit(
        "reconciliations",
        "every reconciliation of the run",
        f"""{_AT}reconciliation_id text which
who text who asked for it
reason text why
repair flag whether repairs that move no money were made
phase text open, closed or failed
closed_at time when it ended""",
    ),
    _audit(
        "drift",
        "every difference that was found between the ledger and Stripe",
        f"""{_AT}charge_id text the charge
kind text what differs
subject text what a repair would touch
ledger_says text one side
stripe_says text the other
amount_minor integer what a repair would move, in minor units
currency text of what
repair text the proposed repair
repair_state text proposed, repaired, failed or gone
repair_detail text what came of it
last_seen_at time when it was last found
ended_at time when it was gone""",
    ),
    _audit(
        "proxy_calls",
        "every call through the spend-cap proxy by one of the run's keys",
        f"""{_AT}call_id text the call
key_id text public id of the vault key
method text GET or POST
path text what was called
idempotency_key text the key on the wire
intent text what its money is counted for
asked_minor integer the amount that was decided about, in minor units
asked_currency text its currency
decision text forward, or why it was refused
answered_at time when the answer was recorded
outcome text what the answer proves
http_status integer status of the answer
code text Stripe's code, or the proxy's
request_id text Stripe's Request-Id
replayed flag whether Stripe repeated an earlier answer
payment_intent text the PaymentIntent in the answer
payment_intent_status text its status
reported_minor integer what Stripe says has moved, in minor units
reported_currency text its currency
latency_ms number milliseconds until the answer""",
    ),
    _audit(
        "proxy_alarms",
        "everything that the proxy says should never have happened",
        f"""{_AT}intent text what the money is counted for
kind text what happened
detail object what belongs to it""",
    ),
)
