"""What a closing pack consists of: the one source of columns for writers, checks and documentation.

A change of a name, an order or a meaning here is a new SCHEMA_VERSION.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

SCHEMA_VERSION = 1
SCHEMA = "chargeonce closing pack"


class Kind(StrEnum):
    """What the cells of a column are."""

    TEXT = "text"
    INTEGER = "integer"
    DECIMAL = "decimal"  # exact, in major units: as many digits after the point as the currency has
    NUMBER = "number"  # measured, not exact
    TIME = "time"  # ISO 8601, UTC
    FLAG = "flag"  # true or false
    OBJECT = "object"  # only in audit.jsonl


@dataclass(frozen=True, slots=True)
class Column:
    """One column, and what its cells mean."""

    name: str
    kind: Kind
    about: str


@dataclass(frozen=True, slots=True)
class Table:
    """One file of the pack, or one kind of line in audit.jsonl. `a_row` says what there is a row for."""

    name: str
    a_row: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)


def columns_of(lines: str) -> tuple[Column, ...]:
    """Return columns from lines of `name kind what it means`; a line that begins with a blank goes on."""
    columns: list[Column] = []
    for line in lines.strip("\n").splitlines():
        if line.startswith(" "):
            last = columns.pop()
            columns.append(Column(last.name, last.kind, f"{last.about} {line.strip()}"))
        else:
            name, kind, about = line.split(" ", 2)
            columns.append(Column(name, Kind(kind), about))
    return tuple(columns)


RUNS = Table(
    "runs",
    "the run, and for each run that it has taken a charge from or lost one to",
    columns_of("""
relation text exported: the run of this pack; taken_over_from, taken_over_by: another that had one of its
 charges
run_id text the run, which is also its workflow's id
account text the Stripe account
period text what was billed, in the account's time zone
phase text where the run stands: closed, or what it is still doing
selected integer lines of the source, frozen when the plan was made
accounted integer lines that are accounted for now; the same number, or something is wrong
source text where the lines came from
source_sha256 text SHA-256 of what was read there
slices integer into how many slices the charges were cut
plan_hash text hash of the frozen plan
approved_hash text hash of the plan that was approved
approved_by text who approved it
approved_at time when
started_by text who started the run
owner text run id of the workflow's first execution
hold text what holds the run, if anything: paused, canary, breaker, cap
hold_reason text why
canceling flag whether somebody asked for everything open to be canceled
reason text why it failed, where it did
locked_at time when it took its period
planned_at time when its plan was made
charging_closed_at time when nothing was left but retries and debits
closed_at time when it closed
"""),
)

CHARGES = Table(
    "charges",
    "every charge that the run has when the pack is made",
    columns_of("""
charge_id text identity of the line: a hash of account, customer, period and line
run_id text the run that has the charge
account text the Stripe account
customer text the Stripe customer
period text what was billed
line text which line of the customer's, base where the source names none
source_row integer the row of the source
currency text three letters, lowercase
amount_minor integer what is owed, in the unit that Stripe counts in
amount decimal the same in major units
state text where the charge stands; succeeded is paid, processing is on its way
reason text why it stands there
payment_intent text the charge's own PaymentIntent at Stripe
latest_charge text Stripe's charge of the newest confirmation
payment_method text by what it was to be paid
description text what the source says about it
create_version integer keys that its create has had; above 1 it was re-keyed, or canceled and created anew
confirm_version integer keys that its confirmation has had; above 1 it was re-keyed or tried again
cancel_version integer keys that its cancellation has had
attempts integer requests that were sent for it
unanswered integer how many of them have no answer
first_sent_at time when the first left
last_answered_at time when the newest answer came
returned_minor integer what went back of it or is on its way back, in minor units
disputes text where its disputes stand, oldest first
changed_at time when its row last changed
"""),
)

ATTEMPTS = Table(
    "attempts",
    "every request that was sent for a charge of the run, oldest first within a charge",
    columns_of("""
charge_id text the charge
operation text create, confirm, cancel or refund
version integer which key of the operation
send_no integer which send of the key, from 1
key text the Idempotency-Key on the wire
key_reason text why there is this key: the first, or why the one before it was not used again
fingerprint text hash of the frozen request
path text where it was sent
key_first_intended_at time when the key was committed for its first send
key_age_seconds number how old the key was at this send, in seconds; Stripe replays a key for 24 hours
reason text why it was sent, or sent again
intended_at time when the send was committed, just before it left
answered_at time when its answer was recorded; empty where none came
verdict text what the answer proves about the charge
proof text what the answer is evidence of
cause text what the verdict rests on
proved_state text the state that it proves
transport text how the exchange ended on the wire
http_status integer status of the answer
request_id text Stripe's Request-Id, for Stripe's logs and support
replayed flag whether Stripe repeated an earlier answer
error_type text Stripe's error type
code text Stripe's error code
decline_code text the issuer's decline code
advice_code text what Stripe advises about trying again
network_decline_code text the network's decline code
network_advice_code text the network's advice
message text Stripe's message
payment_intent text the PaymentIntent in the answer
payment_intent_status text its status
stripe_date time the answer's Date
fence integer which claim of the charge sent it
"""),
)

EXCEPTIONS = Table(
    "exceptions",
    "every line that is not paid, and every charge that was paid in an unusual way",
    columns_of("""
subject text charge; source_row: a row of the source that became no charge; taken_over: a charge that a later
 run has
unusual text what is unusual: not_paid, alarm, refund, dispute, drift, re_keyed, no_answer
charge_id text the charge; empty for a row of the source
customer text the Stripe customer
period text what was billed
line text which line of the customer's
source_row integer the row of the source
currency text three letters, lowercase
amount_minor integer what is owed, in minor units
amount decimal the same in major units
state text where it stands; of a charge that was taken over, where it stood
reason text why
other_run text the run that has taken it over
payment_intent text its PaymentIntent
http_status integer of the newest answer that says what is wrong
code text Stripe's error code in it
decline_code text the issuer's decline code
advice_code text what Stripe advises about trying again
network_decline_code text the network's decline code
network_advice_code text the network's advice
message text Stripe's message
request_id text Stripe's Request-Id
alarms integer how many alarms were raised about it
newest_alarm text what the newest says
returned_minor integer what went back of it, in minor units
disputes text where its disputes stand, oldest first
dispute_due_by time until when the first of them takes evidence
drift text open differences between the ledger and Stripe, by kind
follow_up text what the run still waits for: retry, customer, debit
follow_up_due_at time when it looks next
follow_up_ends_at time until when it waits at most
what_to_do text what happens next, and what somebody can do about it
"""),
)

SETTLEMENT = Table(
    "settlement",
    "every balance transaction of a charge of the run, and for each paid charge that Stripe shows none for",
    columns_of("""
charge_id text the charge
customer text the Stripe customer
line text which line of the customer's
state text where the charge stands in the ledger
currency text currency of the charge
amount_minor integer what the ledger says was charged, in minor units
payment_intent text the charge's own PaymentIntent
standing text settled: this transaction pays the charge; returned: a refund, a dispute or its reversal;
 other_amount: Stripe shows another gross in the same currency; other_payment_intent: it belongs to another
 PaymentIntent of the charge; not_shown: Stripe shows no transaction yet; not_read: Stripe could not be asked
balance_transaction text Stripe's balance transaction
type text its type: charge, payment, refund, adjustment, ...
reporting_category text Stripe's category for accounting
source text the charge, refund or dispute behind it
source_payment_intent text the PaymentIntent behind that
created_at time when the transaction was made
available_at time when the money is or was available
status text pending or available
settlement_currency text currency of the balance, which gross, fee and net are in
gross_minor integer gross, in minor units; below 0 where money went back
fee_minor integer what Stripe keeps, in minor units
net_minor integer gross less fee, in minor units
gross decimal gross in major units
fee decimal fee in major units
net decimal net in major units
exchange_rate number from the charge's currency, where that is another
payout text the automatic payout that has it; empty where none has yet, or the payout was made by hand
payout_arrival_at time when the payout arrives or has arrived
"""),
)

TABLES: Sequence[Table] = (RUNS, CHARGES, ATTEMPTS, EXCEPTIONS, SETTLEMENT)
BY_NAME: Mapping[str, Table] = MappingProxyType({table.name: table for table in TABLES})
DOCUMENTATION_FILE = "columns.md"
MANIFEST_FILE = "manifest.json"
