"""Faults as data: which requests they meet, where, and what they do.

A fault counts the requests that match its method, path, key, customer and account; `nth`, `only`,
`from_request` and `to_request` speak of that count. Its dice depend on the seed, its own name and the
request's key (or its count, without a key), so another fault in the plan changes nothing, and a key meets the
same dice however clients interleave.

Every 20th connection dropped after booking, and every 30th request answered by a stored 500, half of them
booked:

    [{"name": "drop", "match": {"nth": 20}, "place": "after", "effect": {"kind": "drop"}},
     {"name": "500", "match": {"nth": 30},
      "effect": {"kind": "error", "status": 500, "stored": true, "book": 0.5}}]

The API key is revoked from the 100th request on, and one confirm in 50 is rolled forward an hour late:

    [{"name": "revoked", "match": {"method": "*", "from_request": 100},
      "effect": {"kind": "error", "status": 401}},
     {"name": "late", "match": {"path": "/confirm$", "probability": 0.02},
      "effect": {"kind": "late", "seconds": 3600}}]
"""

from deploy.stripe_sim.faults.hit import NO_HIT, Canned, Ending, Hit
from deploy.stripe_sim.faults.match import Match, Subject
from deploy.stripe_sim.faults.parse import EFFECT_KINDS, FaultPlanError, parse_plan, read_plan
from deploy.stripe_sim.faults.plan import Fault, FaultPlan

__all__ = [
    "EFFECT_KINDS",
    "NO_HIT",
    "Canned",
    "Ending",
    "Fault",
    "FaultPlan",
    "FaultPlanError",
    "Hit",
    "Match",
    "Subject",
    "parse_plan",
    "read_plan",
]
