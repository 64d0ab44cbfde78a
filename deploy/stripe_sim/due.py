"""What happens by itself when its time has come: each at its own time, in order."""

from collections.abc import Callable
from typing import Any, Final

from deploy.stripe_sim.captures import expire_authorization
from deploy.stripe_sim.deferred import execute_deferred
from deploy.stripe_sim.disputes import close_unanswered, open_dispute
from deploy.stripe_sim.payments import settle_debit
from deploy.stripe_sim.refunds import settle_refund
from deploy.stripe_sim.simulator import Cause, Simulator


def settle_due(simulator: Simulator) -> None:
    """Do everything that is due by the simulator's clock."""
    while (due := simulator.agenda.pop_due(simulator.clock.now())) is not None:
        account = simulator.account(due.account_id)
        item = account.shelf(due.kind).by_id[due.object_id]
        if item.settle_at != due.at:
            continue
        item.settle_at = None
        _HANDLERS[due.kind](Cause(simulator, account, due.at), item)


def _settle_intent(cause: Cause, intent: Any) -> None:
    if intent.status == "processing":
        settle_debit(cause, intent)
    elif intent.status == "requires_capture":
        expire_authorization(cause, intent)


_HANDLERS: Final[dict[str, Callable[[Cause, Any], None]]] = {
    "payment_intent": _settle_intent,
    "charge": open_dispute,
    "refund": settle_refund,
    "dispute": close_unanswered,
    "deferred": execute_deferred,
}
