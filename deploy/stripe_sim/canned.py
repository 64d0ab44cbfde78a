"""Answers that faults put in the place of the real ones."""

from deploy.stripe_sim.access import refused_key
from deploy.stripe_sim.endpoint import answer_error
from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.faults import Canned
from deploy.stripe_sim.idempotency import Answer
from deploy.stripe_sim.incoming import Incoming
from deploy.stripe_sim.limits import too_many_requests


def answer_canned(canned: Canned, incoming: Incoming) -> Answer:
    """Return the answer, in Stripe's shape unless the fault brings a body of its own."""
    if canned.body is not None:
        return Answer(canned.status, canned.body, canned.headers, executed=True)
    answer = answer_error(_make_error(canned, incoming))
    return Answer(answer.status, answer.body, {**answer.headers, **canned.headers}, executed=True)


def _make_error(canned: Canned, incoming: Incoming) -> ApiError:
    status = canned.status
    if status == 429:
        return too_many_requests({}, canned.code or "rate_limit")
    if status == 401:
        return refused_key(incoming.headers.get("authorization", "").removeprefix("Bearer "))
    if status == 409:
        message = "There is currently another in-progress request using this Idempotent Key."
        return ApiError(409, canned.message or message, code=canned.code or "idempotency_key_in_use")
    kind = "api_error" if status >= 500 else "invalid_request_error"
    return ApiError(status, canned.message or "An unknown error occurred.", kind=kind, code=canned.code)
