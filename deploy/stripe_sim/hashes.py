"""Nested parameters that come back as they were given, each field known by name."""

from typing import Any, Final

from deploy.stripe_sim.errors import bad_request
from deploy.stripe_sim.forms import Params, refuse_unknown, take_hash, take_text

# A layout maps each field to None for a string, or to the layout of a nested hash.
Layout = dict[str, Any]

ADDRESS: Final[Layout] = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
BILLING: Final[Layout] = {"address": ADDRESS, "email": None, "name": None, "phone": None, "tax_id": None}
SHIPPING: Final[Layout] = {
    "address": ADDRESS,
    "carrier": None,
    "name": None,
    "phone": None,
    "tracking_number": None,
}
# The options of a payment method that Stripe would act on and a simulator cannot.
METHOD_OPTIONS: Final[Layout] = {
    "card": dict.fromkeys(("network", "request_three_d_secure", "setup_future_usage")),
    "us_bank_account": dict.fromkeys(("setup_future_usage", "verification_method")),
    "sepa_debit": {"setup_future_usage": None},
}


def take_hashes(
    params: Params, layouts: dict[str, Layout], before: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return the named hashes after this request: given, emptied by an empty string, or as before."""
    given = [name for name in layouts if name in params]
    if not given:
        return before
    hashes = dict(before or {})
    for name in given:
        if params[name] == "":
            hashes.pop(name, None)
        else:
            hashes[name] = read_hash(take_hash(params, name), layouts[name], inside=name)
    return hashes or None


def read_hash(given: Params, layout: Layout, *, inside: str) -> dict[str, Any]:
    """Return a hash in which every field of the layout is there, null if it was not given."""
    refuse_unknown(given, frozenset(layout), inside=inside)
    read: dict[str, Any] = {}
    for name, inner in layout.items():
        if inner is None:
            read[name] = take_text(given, name)
        elif isinstance(given.get(name), str) and given[name]:
            raise bad_request(f"Invalid object: {inside}[{name}]", param=f"{inside}[{name}]")
        else:
            read[name] = read_hash(take_hash(given, name), inner, inside=f"{inside}[{name}]")
    return read
