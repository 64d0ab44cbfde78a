"""Refund a charge from Python: looked at, kept, its key approved, carried by a workflow of its own.

Whoever asks approves. What is asked for is frozen with who and why before anything is sent; a second
workflow for the same request is refused, and the same request can be started again after whatever came in
between.
"""

import secrets
from dataclasses import dataclass

from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.accounts import Accounts
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.refunds import NewRequest, RefundLedger, RefundRequest
from activities.ledger.vault import VaultLedger
from activities.vault import READING, RunVault, refunding
from worker.settings import Settings
from workflows.contracts import RunKey
from workflows.domain.answer import PaymentIntent
from workflows.domain.charge import Charge
from workflows.domain.errors import InvalidInput, RefusedToStart
from workflows.domain.money import format_money
from workflows.domain.refund import RequestState
from workflows.refund import RefundCharge
from workflows.refund_contracts import RefundOrder, RefundStep

DUPLICATE, REQUESTED = "duplicate", "requested_by_customer"  # Stripe's words

RefundHandle = WorkflowHandle[RefundCharge, RefundStep]


@dataclass(frozen=True, slots=True)
class Refundable:
    """What could be refunded of one PaymentIntent, as Stripe showed it. Minor units."""

    charge: Charge
    intent: PaymentIntent
    returned_minor: int

    @property
    def left_minor(self) -> int:
        """What has not gone back yet."""
        return self.intent.amount_minor - self.returned_minor

    @property
    def is_own(self) -> bool:
        """Whether it is the charge's own PaymentIntent; any other one is a duplicate."""
        return self.intent.id == self.charge.payment_intent


async def look_at_refundable(
    pool: Pool, accounts: Accounts, charge_id: str, payment_intent: str | None
) -> Refundable:
    """Ask Stripe what could be refunded of a charge, by its own PaymentIntent unless another one is named.

    Raises:
        RefusedToStart: There is no such PaymentIntent, it is not of this charge, nobody has paid by it, or
            Stripe did not answer.
    """
    charge = await ChargeLedger(pool).read(charge_id)
    wanted = payment_intent or charge.payment_intent
    if wanted is None:
        raise RefusedToStart(
            f"charge {charge_id} is {charge.state} and has no PaymentIntent: nothing to refund"
        )
    parts = await accounts.of(RunKey(run_id="", account=charge.account), READING)
    lookup = await parts.gateway.retrieve_payment_intent(parts.account, wanted, started_epoch_seconds=0.0)
    if not lookup.complete:
        raise RefusedToStart(f"Stripe does not show {wanted}: {lookup.failure}")
    [intent] = lookup.payment_intents
    if intent.charge_id != charge_id:
        raise RefusedToStart(f"{wanted} does not carry the identity of charge {charge_id}")
    if intent.status != "succeeded":
        raise RefusedToStart(f"{wanted} is {intent.status} at Stripe: nothing was paid that could go back")
    found = await parts.gateway.list_refunds(parts.account, wanted)
    if found.failure is not None:
        raise RefusedToStart(f"Stripe was asked for the refunds of {wanted}: {found.failure}")
    return Refundable(charge, intent, sum(refund.returns_minor for refund in found.items))


async def request_refund(
    pool: Pool,
    settings: Settings,
    refundable: Refundable,
    *,
    amount_minor: int | None,
    who: str,
    reason: str,
) -> RefundRequest:
    """Keep a request for an amount (None: all that is left), and approve a vault key for exactly that.

    Raises:
        InvalidInput: It is more than is left, or nothing is.
        RefusedToStart: With other open requests it is more than was paid, or its run may have no such key.
    """
    intent, charge = refundable.intent, refundable.charge
    amount = refundable.left_minor if amount_minor is None else amount_minor
    if not 0 < amount <= refundable.left_minor:
        raise InvalidInput(
            f"{format_money(amount, intent.currency)} of {intent.id} can't be refunded: "
            f"{format_money(refundable.left_minor, intent.currency)} of it has not gone back yet"
        )
    request = await RefundLedger(pool).request(
        NewRequest(
            request_id=secrets.token_hex(12),
            charge_id=charge.charge_id,
            payment_intent=intent.id,
            amount_minor=amount,
            currency=intent.currency,
            kind=REQUESTED if refundable.is_own else DUPLICATE,
            who=who,
            reason=reason,
            paid_minor=intent.amount_minor,
            returned_minor=refundable.returned_minor,
        )
    )
    try:
        await approve_key(pool, settings, request)
    except RefusedToStart as refusal:
        # It can't be sent, and must not stand in the way of one that can.
        await RefundLedger(pool).end(request, RequestState.REFUSED, str(refusal))
        raise
    return request


async def approve_key(pool: Pool, settings: Settings, request: RefundRequest) -> None:
    """Issue the request's own vault key, capped at its amount. Without a proxy there is none to issue.

    Raises:
        RefusedToStart: Its run does not stand where it may have one.
    """
    if settings.proxy_url is None:
        return
    vault = RunVault(VaultLedger(pool), secret=settings.need_vault_secret(), mode=settings.mode)
    await vault.approve(
        RunKey(run_id=request.run_id, account=request.account),
        refunding(request.request_id),
        who=request.who,
        reason=request.reason,
        caps_minor={request.currency: request.amount_minor},
    )


async def start_refund(client: Client, settings: Settings, request: RefundRequest) -> RefundHandle:
    """Start the request's workflow, or return the one that carries it already."""
    order = RefundOrder(
        request_id=request.request_id,
        run_id=request.run_id,
        account=request.account,
        timing=settings.timing,
    )
    workflow_id = f"refund/{request.request_id}"
    try:
        return await client.start_workflow(
            RefundCharge.run,
            order,
            id=workflow_id,
            task_queue=settings.task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        )
    except WorkflowAlreadyStartedError:
        return client.get_workflow_handle_for(RefundCharge.run, workflow_id)
