"""One request to /v1, from the wire to the answer.

The order is the real one's: faults that stand in front of everything, API key, account, route, rate limit,
idempotency layer, validation, execution, storing of the answer, and faults that come behind it.
"""

import asyncio
import hashlib
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deploy.stripe_sim.access import check_key, read_account, refused_key
from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.encoding import encode_json
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.expand import expand
from deploy.stripe_sim.faults import Effect, Hit, Subject
from deploy.stripe_sim.forms import parse_form, refuse_unknown, take_text
from deploy.stripe_sim.idempotency import Answer, Slot, fingerprint_of
from deploy.stripe_sim.journal import Request
from deploy.stripe_sim.limits import too_many_requests
from deploy.stripe_sim.payments import settle_due
from deploy.stripe_sim.routes import Route, find_route
from deploy.stripe_sim.simulator import Call, Simulator

API_VERSION = "2026-10-28.endive"
_CONFLICT = 409


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came in; for a GET `form` is the query string."""

    method: str
    path: str
    headers: Mapping[str, str]
    form: bytes
    key: str | None
    account: str


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer as it goes out; a status of None closes the connection without one."""

    status: int | None
    body: bytes
    headers: dict[str, str]


def receive(
    simulator: Simulator, method: str, path: str, headers: Mapping[str, str], form: bytes
) -> Incoming:
    """Return the request; keys count on POST alone (docs.stripe.com/api/idempotent_requests)."""
    key = headers.get("Idempotency-Key") if method == "POST" else None
    return Incoming(method, path, headers, form, key or None, read_account(headers, simulator.settings))


async def answer_request(simulator: Simulator, incoming: Incoming) -> Outgoing:
    """Answer one request, and write both in the journal."""
    settle_due(simulator)
    clock, journal = simulator.clock, simulator.journal
    request = journal.open(
        at=clock.now(),
        account=incoming.account,
        method=incoming.method,
        path=incoming.path,
        key=incoming.key,
        body_sha256=hashlib.sha256(incoming.form).hexdigest(),
    )
    request.request_id = make_id("req", request.ordinal, seed=simulator.seed)
    hit = _meet_faults(simulator, incoming, request)
    answer: Answer | None = None
    try:
        answer = await _Exchange(simulator, incoming, request, hit).run()
    finally:
        journal.close(request, at=clock.now(), status=None if answer is None else answer.status)
    if answer is None:
        return Outgoing(None, b"", {})
    return Outgoing(answer.status, answer.body, _finish_headers(simulator, incoming, request, answer))


def _meet_faults(simulator: Simulator, incoming: Incoming, request: Request) -> Hit:
    if not simulator.faults.is_armed:
        return Hit()
    seen = 0 if incoming.key is None else simulator.journal.times_seen(incoming.account, incoming.key)
    hit = simulator.faults.hit(
        Subject(
            incoming.method,
            incoming.path,
            incoming.account,
            incoming.key,
            seen,
            lambda: _find_customer(simulator, incoming),
        )
    )
    simulator.log.append("fault counts", simulator.faults.counts())
    request.faults = hit.names
    return hit


class _Exchange:
    """The decisions about one request."""

    def __init__(self, simulator: Simulator, incoming: Incoming, request: Request, hit: Hit) -> None:
        self._simulator = simulator
        self._incoming = incoming
        self._request = request
        self._hit = hit

    async def run(self) -> Answer | None:
        """Return the answer, or None if the client gets none."""
        hit = self._hit
        if hit.is_early_drop or hit.is_early_error:
            await self._wait(hit.delay_before_seconds)
            self._request.fate = "dropped before execution" if hit.is_early_drop else "refused by a fault"
            return (
                None if hit.is_early_drop or hit.error is None else _answer_fault(hit.error, self._incoming)
            )
        try:
            answer = await self._decide()
        except ApiError as error:
            if self._request.fate == "running":
                self._request.fate = "conflict" if error.status == _CONFLICT else "refused"
            answer = _answer_error(error)
        if hit.error is not None and not hit.error.stored and (answer.executed or self._request.replayed):
            self._request.replayed = False
            answer = _answer_fault(hit.error, self._incoming)
        await self._wait(hit.delay_after_seconds)
        if hit.drop is not None:
            self._request.fate += ", answer dropped"
            return None
        return answer

    async def _decide(self) -> Answer:
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
        simulator.limits.check(incoming.account, route.name)
        params, pairs = _parse(incoming.form)
        call = Call(
            simulator,
            simulator.account(incoming.account),
            params,
            ids,
            self._request.ordinal,
            self._request.request_id or "",
        )
        key = incoming.key
        if key is None:
            await self._wait(self._hit.delay_before_seconds, latency=True)
            return self._execute(route, call)
        is_first, slot = simulator.keys.open(
            incoming.account,
            key,
            path=incoming.path,
            fingerprint=fingerprint_of(pairs),
            request_id=self._request.request_id or "",
        )
        return await (self._run_first(route, call, key, slot) if is_first else self._replay(slot))

    async def _run_first(self, route: Route, call: Call, key: str, slot: Slot) -> Answer:
        keys, account = self._simulator.keys, self._incoming.account
        try:
            await self._wait(self._hit.delay_before_seconds, latency=True)
            answer = self._execute(route, call)
            if answer.executed:
                keys.store(account, key, slot, answer)
        finally:
            keys.abandon(account, key, slot)
        return answer

    async def _replay(self, slot: Slot) -> Answer:
        await self._wait(self._hit.delay_before_seconds, latency=True)
        self._request.replayed = True
        self._request.fate = "replayed"
        stored = slot.answer or Answer(500, b"", {}, executed=False)
        headers = {**stored.headers, "Idempotent-Replayed": "true", "Original-Request": slot.request_id}
        return Answer(stored.status, stored.body, headers, executed=False)

    def _execute(self, route: Route, call: Call) -> Answer:
        hit = self._hit
        if hit.skips_booking and hit.error is not None:
            self._request.fate = "not executed, error stored"
            return _answer_fault(hit.error, self._incoming)
        answer = _run_endpoint(route, call)
        self._request.fate = "executed" if answer.executed else "refused"
        if hit.error is not None and hit.error.stored and answer.executed:
            self._request.fate = "executed, error stored"
            return _answer_fault(hit.error, self._incoming)
        return answer

    async def _wait(self, seconds: float, *, latency: bool = False) -> None:
        if latency:
            seconds += self._simulator.settings.latency_ms / 1000
        if seconds > 0:
            await asyncio.sleep(seconds)


def _run_endpoint(route: Route, call: Call) -> Answer:
    try:
        refuse_unknown(call.params, route.params)
        shown = route.answer(call)
        if "expand" in call.params:
            expand(call, shown)
    except ApiError as error:
        return _answer_error(error)
    except Exception:  # noqa: BLE001 - a mistake of the simulator must not look like a lost connection
        traceback.print_exc(file=sys.stderr)
        return _answer_error(ApiError(500, "The simulator itself failed.", kind="api_error"))
    return Answer(200, encode_json(shown).encode(), {}, executed=True)


def _parse(form: bytes) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    try:
        return parse_form(form.decode())
    except ValueError as error:
        raise bad_request(f"The request body cannot be read: {error}") from error


def _answer_error(error: ApiError) -> Answer:
    body = encode_json(error.to_body()).encode()
    return Answer(error.status, body, error.headers, executed=error.executed)


def _answer_fault(effect: Effect, incoming: Incoming) -> Answer:
    if effect.status == 429:
        error = too_many_requests({}, effect.code or "rate_limit")
    elif effect.status == 401:
        error = refused_key(incoming.headers.get("Authorization", "").removeprefix("Bearer "))
    elif effect.status == _CONFLICT:
        message = "There is currently another in-progress request using this Idempotent Key."
        error = ApiError(409, effect.message or message, code=effect.code or "idempotency_key_in_use")
    else:
        kind = "api_error" if effect.status >= 500 else "invalid_request_error"
        message = effect.message or "An unknown error occurred."
        error = ApiError(effect.status, message, kind=kind, code=effect.code)
    answer = _answer_error(error)
    return Answer(answer.status, answer.body, {**answer.headers, **effect.headers}, executed=True)


def _finish_headers(
    simulator: Simulator, incoming: Incoming, request: Request, answer: Answer
) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Date": simulator.clock.http_date(),
        "Request-Id": request.request_id or "",
        "Stripe-Version": incoming.headers.get("Stripe-Version", API_VERSION),
    }
    if incoming.key is not None:
        headers["Idempotency-Key"] = incoming.key
        if answer.executed:
            headers["Original-Request"] = request.request_id or ""
    if "Stripe-Account" in incoming.headers:
        headers["Stripe-Account"] = incoming.account
    headers.update(answer.headers)
    return headers


def _find_customer(simulator: Simulator, incoming: Incoming) -> str | None:
    try:
        params, _ = _parse(incoming.form)
        named = take_text(params, "customer")
    except ApiError:
        return None
    if named is not None:
        return named
    parts = incoming.path.split("/")
    if len(parts) <= 3:
        return None
    if parts[2] == "customers":
        return parts[3]
    intent = simulator.account(incoming.account).intents.by_id.get(parts[3])
    return None if intent is None else intent.customer
