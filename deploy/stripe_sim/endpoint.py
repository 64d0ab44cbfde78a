"""One endpoint's work, from its parameters to the bytes of its answer."""

import sys
import traceback
from typing import Any

from deploy.stripe_sim.encoding import encode_json
from deploy.stripe_sim.errors import ApiError, bad_request
from deploy.stripe_sim.expand import check_expand, expand
from deploy.stripe_sim.forms import parse_form, refuse_unknown
from deploy.stripe_sim.idempotency import Answer
from deploy.stripe_sim.routes import Route
from deploy.stripe_sim.simulator import Call


def run_endpoint(route: Route, call: Call) -> Answer:
    """Do what the request asks for, or say why not."""
    try:
        refuse_unknown(call.params, route.params, unmodelled=route.unmodelled)
        if "expand" in call.params:
            check_expand(call, route.shows, is_list=route.is_list)
        shown = route.answer(call)
        if "expand" in call.params:
            expand(call, shown, route.shows)
    except ApiError as error:
        return answer_error(error)
    except Exception:  # noqa: BLE001 - a mistake of the simulator must not look like a lost connection
        traceback.print_exc(file=sys.stderr)
        return answer_error(ApiError(500, "The simulator itself failed.", kind="api_error"))
    return Answer(200, encode_json(shown).encode(), {}, executed=True)


def parse_parameters(form: bytes) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the parameters, nested and flat; raises ApiError 400."""
    try:
        return parse_form(form.decode())
    except ValueError as error:
        raise bad_request(f"The request body cannot be read: {error}") from error


def answer_error(error: ApiError) -> Answer:
    """Return an error as it goes out."""
    body = encode_json(error.to_body()).encode()
    return Answer(error.status, body, error.headers, executed=error.executed)
