"""The decisions about one request, in the order of the real API.

Faults that stand in front of everything, API key, account, route, limits, idempotency layer, validation,
execution, storing of the answer, and faults that come behind it.

An exchange is a generator: it yields what it has to wait for. In most cases that is nothing, and no task and
no turn of the event loop is spent. Between two waits nothing else runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial

from deploy.stripe_sim.access import check_key
from deploy.stripe_sim.canned import answer_canned
from deploy.stripe_sim.deferred import postpone
from deploy.stripe_sim.endpoint import answer_error, parse_parameters, run_endpoint
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.faults import Hit
from deploy.stripe_sim.idempotency import Answer, Slot, fingerprint_of
from deploy.stripe_sim.incoming import Incoming
from deploy.stripe_sim.journal import Request
from deploy.stripe_sim.routes import Route, find_route
from deploy.stripe_sim.simulator import Call, Simulator

Pause = Callable[[], Awaitable[None]]
Steps = Generator[Pause, None, Answer | None]
_CONFLICT = 409


class Exchange:
    """One request and what becomes of it."""

    def __init__(self, simulator: Simulator, incoming: Incoming, request: Request, hit: Hit) -> None:
        self._simulator = simulator
        self._incoming = incoming
        self._request = request
        self._hit = hit

    def run(self) -> Steps:
        """Return the answer, or None if the client gets none."""
        hit, request = self._hit, self._request
        if hit.is_early:
            yield from self._wait(hit.delay_before_seconds)
            if hit.ending is not None:
                request.fate = f"{_NAMES[hit.ending.how]} before execution"
                return None
            request.fate = "refused by a fault"
            return None if hit.canned is None else answer_canned(hit.canned, self._incoming)
        answer = yield from self._answer()
        if answer is None:
            return None
        if hit.canned is not None and not hit.canned.stored and (answer.executed or request.replayed):
            request.replayed = False
            answer = answer_canned(hit.canned, self._incoming)
        yield from self._wait(hit.delay_after_seconds)
        if hit.ending is not None:
            if hit.ending.place == "body":
                request.fate += ", answer cut"
            else:
                request.fate += f", answer {_NAMES[hit.ending.how]}"
                return None
        return answer

    def _answer(self) -> Steps:
        try:
            return (yield from self._decide())
        except ApiError as error:
            if self._request.fate == "running":
                self._request.fate = "conflict" if error.status == _CONFLICT else "refused"
            if error.code == "lock_timeout":
                self._request.request_id = None
            return answer_error(error)

    def _decide(self) -> Steps:
        simulator, incoming = self._simulator, self._incoming
        check_key(incoming.headers, simulator.settings)
        if not incoming.account.startswith("acct_"):
            message = f"The provided key does not have access to account '{incoming.account}'."
            raise ApiError(403, message, code="account_invalid")
        found = find_route(incoming.method, incoming.path)
        if found is None:
            message = f"Unrecognized request URL ({incoming.method}: {incoming.path})."
            raise ApiError(404, message)
        route, ids = found
        held = simulator.limits.enter(incoming.account, route.name, ids)
        try:
            return (yield from self._run(route, ids))
        finally:
            if held is not None:
                simulator.limits.leave(held)

    def _run(self, route: Route, ids: tuple[str, ...]) -> Steps:
        simulator, incoming, request = self._simulator, self._incoming, self._request
        params, pairs = parse_parameters(incoming.form)
        key, name = incoming.key, incoming.key_name
        account = simulator.account(incoming.account)
        request_id = request.request_id or ""
        call = Call(simulator, account, params, ids, request.ordinal, request_id, key)
        if key is None or name is None:
            return (yield from self._wait_and_execute(route, call, None))
        fingerprint = fingerprint_of(pairs)
        is_first, slot = simulator.keys.open(
            name, key, path=incoming.path, fingerprint=fingerprint, request_id=request_id
        )
        if is_first:
            return (yield from self._run_first(route, call, name, slot))
        return (yield from self._replay(slot))

    def _run_first(self, route: Route, call: Call, name: str, slot: Slot) -> Steps:
        keys = self._simulator.keys
        is_held = False
        try:
            answer = yield from self._wait_and_execute(route, call, slot)
            if answer is None:
                is_held = True
            elif answer.executed:
                keys.store(name, slot, answer)
        finally:
            if not is_held:
                keys.abandon(name, slot)
        return answer

    def _replay(self, slot: Slot) -> Steps:
        yield from self._wait(self._hit.delay_before_seconds, latency=True)
        self._request.replayed = True
        self._request.fate = "replayed"
        stored = slot.answer or Answer(500, b"", {}, executed=False)
        headers = {**stored.headers, "Idempotent-Replayed": "true", "Original-Request": slot.request_id}
        return Answer(stored.status, stored.body, headers, executed=False)

    def _wait_and_execute(self, route: Route, call: Call, slot: Slot | None) -> Steps:
        hit, request = self._hit, self._request
        yield from self._wait(hit.delay_before_seconds, latency=True)
        if hit.hold_seconds is not None:
            postpone(call, self._incoming, seconds=hit.hold_seconds, slot=slot)
            request.fate = "held"
            return None
        if hit.skips_booking and hit.canned is not None:
            request.fate = "not executed, error stored"
            if hit.late_seconds is not None:
                postpone(call, self._incoming, seconds=hit.late_seconds, slot=None)
            return answer_canned(hit.canned, self._incoming)
        answer = run_endpoint(route, call)
        request.fate = "executed" if answer.executed else "refused"
        if self._simulator.courier.has_urgent:
            yield self._simulator.courier.send_urgent
        if hit.canned is not None and hit.canned.stored and answer.executed:
            request.fate = "executed, error stored"
            return answer_canned(hit.canned, self._incoming)
        return answer

    def _wait(self, seconds: float, *, latency: bool = False) -> Generator[Pause, None, None]:
        if latency:
            seconds += self._simulator.settings.latency_ms / 1000
        if seconds > 0:
            yield partial(asyncio.sleep, seconds)


_NAMES = {"closed": "dropped", "reset": "reset"}
