"""One request to /v1, from the wire to the answer, with both in the journal."""

import hashlib
from collections.abc import Generator, Mapping

from deploy.stripe_sim.access import read_account
from deploy.stripe_sim.draws import make_id
from deploy.stripe_sim.due import settle_due
from deploy.stripe_sim.endpoint import parse_parameters
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.exchange import Exchange, Pause
from deploy.stripe_sim.faults import NO_HIT, Hit, Subject
from deploy.stripe_sim.forms import take_text
from deploy.stripe_sim.idempotency import Answer, name_key
from deploy.stripe_sim.incoming import DROPPED, RESET, Incoming, Outgoing, Pacing
from deploy.stripe_sim.journal import Request
from deploy.stripe_sim.rendering import API_VERSION
from deploy.stripe_sim.simulator import Simulator


def receive(
    simulator: Simulator, method: str, path: str, headers: Mapping[str, str], form: bytes
) -> Incoming:
    """Return the request; keys count on POST alone (docs.stripe.com/api/idempotent_requests)."""
    account = read_account(headers, simulator.settings)
    key = (headers.get("idempotency-key") or None) if method == "POST" else None
    key_name = None if key is None else name_key(account, key)
    return Incoming(method, path, headers, form, key, key_name, account)


def answer_request(simulator: Simulator, incoming: Incoming) -> Generator[Pause, None, Outgoing]:
    """Answer one request, and write both in the journal; yields what has to be waited for."""
    settle_due(simulator)
    clock, journal = simulator.clock, simulator.journal
    request = journal.open(
        at=clock.now(),
        account=incoming.account,
        method=incoming.method,
        path=incoming.path,
        key=incoming.key,
        key_name=incoming.key_name,
        body_sha256=hashlib.sha256(incoming.form).hexdigest(),
    )
    request.request_id = make_id("req", request.ordinal, seed=simulator.seed)
    hit = _meet_faults(simulator, incoming, request)
    answer: Answer | None = None
    try:
        answer = yield from Exchange(simulator, incoming, request, hit).run()
    finally:
        journal.close(request, at=clock.now(), status=None if answer is None else answer.status)
        simulator.log.commit()
    if answer is None:
        return RESET if hit.ending is not None and hit.ending.how == "reset" else DROPPED
    headers = _finish_headers(simulator, incoming, request, answer)
    if hit is NO_HIT:
        return Outgoing(answer.status, answer.body, headers)
    body = answer.body if hit.garbage is None else answer.body[: len(answer.body) // 2] + hit.garbage
    return Outgoing(answer.status, body, headers, _pace(hit))


def _meet_faults(simulator: Simulator, incoming: Incoming, request: Request) -> Hit:
    if not simulator.faults.is_armed:
        return NO_HIT
    seen = 0 if incoming.key_name is None else simulator.journal.times_seen(incoming.key_name)
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


def _pace(hit: Hit) -> Pacing | None:
    cut = None if hit.ending is None else hit.ending.how
    if cut is None and not hit.stall_seconds and not hit.drip_seconds:
        return None
    return Pacing(hit.stall_seconds, hit.drip_seconds, cut)


def _finish_headers(
    simulator: Simulator, incoming: Incoming, request: Request, answer: Answer
) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "Date": simulator.clock.http_date(),
        "Stripe-Version": incoming.headers.get("stripe-version", API_VERSION),
    }
    if request.request_id is not None:
        headers["Request-Id"] = request.request_id
    if incoming.key is not None:
        headers["Idempotency-Key"] = incoming.key
        if answer.executed:
            headers["Original-Request"] = request.request_id or ""
    if "stripe-account" in incoming.headers:
        headers["Stripe-Account"] = incoming.account
    headers.update(answer.headers)
    return headers


def _find_customer(simulator: Simulator, incoming: Incoming) -> str | None:
    try:
        params, _ = parse_parameters(incoming.form)
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
