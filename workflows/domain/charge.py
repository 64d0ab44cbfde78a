"""A charge as the ledger states it at one moment: the value that decisions are made from."""

import json
from dataclasses import dataclass, replace

from workflows.domain.answer import Answer
from workflows.domain.errors import InvariantViolation
from workflows.domain.keys import Fingerprint, IdempotencyKey, Operation, key_for
from workflows.domain.states import IN_FLIGHT, SETTLED, State
from workflows.domain.verdict import Proof, Verdict


@dataclass(frozen=True, slots=True)
class Charge:
    """One row of `charges`. `fence` is the token of whoever claimed it last."""

    charge_id: str
    run_id: str
    account: str
    customer: str
    period: str
    line: str
    currency: str
    amount_minor: int
    payment_method: str | None
    description: str | None
    state: State
    reason: str | None
    fence: int
    create_version: int
    confirm_version: int
    cancel_version: int
    payment_intent: str | None
    latest_charge: str | None

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be sent for it by a run."""
        return self.state in SETTLED

    @property
    def is_in_flight(self) -> bool:
        """Whether a request for it has left, or may have left, without a recorded outcome."""
        return self.state in IN_FLIGHT

    def version_of(self, operation: Operation) -> int:
        """Return the newest version of `operation` whose key was committed; 0 where none was."""
        versions = {
            Operation.CREATE: self.create_version,
            Operation.CONFIRM: self.confirm_version,
            Operation.CANCEL: self.cancel_version,
        }
        return versions[operation]

    def intending(self, operation: Operation, version: int, state: State) -> "Charge":
        """Return the charge as it stands once the first send of `operation` at `version` is committed."""
        match operation:
            case Operation.CREATE:
                return replace(self, state=state, create_version=version, payment_intent=None)
            case Operation.CONFIRM:
                return replace(self, state=state, confirm_version=version)
            case Operation.CANCEL:
                return replace(self, state=state, cancel_version=version)
            case Operation.REFUND:
                raise InvariantViolation("a refund does not change a charge's state")

    def key_of(self, operation: Operation, version: int) -> IdempotencyKey:
        """Return the key of `operation` at `version` for this charge."""
        subject = (self.payment_intent or "") if operation is Operation.CANCEL else self.charge_id
        return key_for(operation, subject, version)


@dataclass(frozen=True, slots=True)
class FrozenKey:
    """A key with the body and path that were frozen when it was first intended, and its history so far."""

    key: IdempotencyKey
    operation: Operation
    version: int
    path: str
    parameters: str
    fingerprint: Fingerprint
    first_intended_epoch_seconds: float
    latest_charge_before: str | None
    stored_failure: bool
    sends: int
    """How many sends of this key were committed."""
    charge_first_intended_epoch_seconds: float
    """When the first key of this operation was frozen for the charge, at whatever version."""
    answered: bool
    """Stripe has replayed an answer under this key: it has run, and not to a success."""
    open_sends: int
    """How many of them have no answer that says what they did: none, an unknown one, or an outdated one."""
    earlier_open_sends: int
    """The same of the operation's earlier versions."""

    @property
    def payment_method(self) -> str:
        """What this key of a confirm pays with."""
        return str(json.loads(self.parameters)["payment_method"])


@dataclass(frozen=True, slots=True)
class Intent:
    """A committed intent: what may now be put on the wire, once."""

    charge: Charge
    operation: Operation
    key: IdempotencyKey
    send_no: int
    version: int
    path: str
    parameters: str
    fingerprint: Fingerprint
    intended_epoch_seconds: float
    first_send: bool
    """No other attempt of this operation, at any version, can still do anything: there is none, or an answer
    of Stripe's (or the failed connection) said of each what it did."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An intent with the answer to it and what that answer proves: one row of the journal, completed."""

    intent: Intent
    answer: Answer
    verdict: Verdict

    @property
    def next_state(self) -> State | None:
        """The state that the answer proves, or None where it proves none."""
        return self.verdict.state if self.verdict.proof is Proof.PROVED else None
