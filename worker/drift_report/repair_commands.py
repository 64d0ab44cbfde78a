"""The exact command that ends a difference, as somebody would type it; names are quoted for a shell."""

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from workflows.domain.drift import BY_ITSELF, Repair
from workflows.domain.errors import InvalidInput
from workflows.domain.money import format_money


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reconciliation was about: a run, or an account since a time."""

    account: str
    run_id: str | None
    since: datetime


class Repairable(Protocol):
    """What is known of a difference. Amounts in minor units."""

    @property
    def account(self) -> str:
        """Whose it is."""

    @property
    def subject(self) -> str:
        """The charge, PaymentIntent or event that a repair would touch."""

    @property
    def repair(self) -> str:
        """What would end it."""

    @property
    def charge_id(self) -> str | None:
        """The charge, where one is known."""

    @property
    def run_id(self) -> str | None:
        """The charge's run."""

    @property
    def amount_minor(self) -> int | None:
        """What a repair would move."""

    @property
    def currency(self) -> str | None:
        """Of that amount."""


def command_of(difference: Repairable, asked: Asked) -> str:
    """Return what to type, "" where no command would be right."""
    repair = Repair(difference.repair)
    if repair in BY_ITSELF:
        return shlex.join(["chargeonce", "reconcile", *_scope_of(difference, asked), "--repair"])
    if difference.charge_id is None:
        return ""
    if repair is Repair.REFUND:
        return _refund(difference, difference.charge_id)
    if repair is Repair.RESOLVE:
        typed = shlex.join(["chargeonce", "resolve", difference.charge_id])
        return f"{typed} --as DECISION --reason WHY"
    return ""


def _scope_of(difference: Repairable, asked: Asked) -> list[str]:
    if run_id := difference.run_id or asked.run_id:
        return ["--run", run_id]
    return ["--since", asked.since.isoformat(timespec="seconds"), "--account", difference.account]


def _refund(difference: Repairable, charge_id: str) -> str:
    words = ["chargeonce", "refund", charge_id, "--payment-intent", difference.subject]
    amount = _major(difference.amount_minor, difference.currency)
    if amount is None:
        return ""
    return shlex.join([*words, "--amount", amount, "--reason", "duplicate"])


def _major(amount_minor: int | None, currency: str | None) -> str | None:
    if amount_minor is None or currency is None:
        return None
    try:
        return format_money(amount_minor, currency).partition(" ")[0]
    except InvalidInput:  # a currency that this program does not charge in: people look at it
        return None
