"""Requests that are executed later than their clients think: with their key in use, or behind a stored 500.

They stand on the account's agenda, so the simulator's clock decides, and they outlive a restart.
"""

from deploy.stripe_sim.endpoint import parse_parameters, run_endpoint
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.idempotency import Slot, name_key
from deploy.stripe_sim.incoming import Incoming
from deploy.stripe_sim.objects import Deferred
from deploy.stripe_sim.routes import find_route
from deploy.stripe_sim.simulator import Call, Cause


def postpone(call: Call, incoming: Incoming, *, seconds: float, slot: Slot | None) -> None:
    """Let a request be executed in so many seconds of the simulator's clock, for its key if it has a slot."""
    shelf = call.account.deferred
    seq = shelf.next_seq()
    item = Deferred(
        id=call.new_id("later", seq),
        seq=seq,
        created=int(call.now),
        method=incoming.method,
        path=incoming.path,
        form=incoming.form.decode(),
        key=call.key,
        request=call.request,
        request_id=call.request_id,
        holds=None if slot is None else [slot.path, slot.fingerprint, slot.opened_at, slot.request_id],
        settle_at=call.now + seconds,
    )
    shelf.add(item)
    call.cause().schedule(item)


def execute_deferred(cause: Cause, item: Deferred) -> None:
    """Execute a request whose time has come; if it held its key, the key gets the answer."""
    simulator, account = cause.simulator, cause.account
    account.deferred.save(item)
    found = find_route(item.method, item.path)
    if found is None:
        return
    route, ids = found
    request = simulator.journal.find(item.request)
    try:
        params, _ = parse_parameters(item.form.encode())
    except ApiError:
        return
    call = Call(simulator, account, params, ids, item.request, item.request_id, item.key)
    answer = run_endpoint(route, call)
    if item.key is not None and item.holds is not None:
        name = name_key(account.id, item.key)
        slot = simulator.keys.running(name) or Slot(*item.holds)
        if answer.executed:
            simulator.keys.store(name, slot, answer)
        simulator.keys.abandon(name, slot)
    request.fate += ", executed later" if answer.executed else ", refused later"
    simulator.journal.rewrite(request)
