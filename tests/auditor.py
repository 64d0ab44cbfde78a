"""The judge: the simulator's own book and journal against the ledger, by queries of its own.

It believes neither side. It uses nothing of the product, not even names, so that a mistake there can not hide
here. Every list of accusations begins with the worst: money moved twice.
"""

import asyncio
import itertools
import json
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import asyncpg

IDENTITY = "chargeonce_charge"
WINDOW = timedelta(hours=24)
RESEND_AGE_MAX = timedelta(hours=23, minutes=45)
IN_FLIGHT = {"creating", "confirming", "canceling"}
NOT_STARTED = {"planned", "prepared"}
ACCUSATIONS_SHOWN = 40
_PAGE = 10_000

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AuditSummary:
    """What was found in order. Money is in minor units by currency, as the book has it."""

    lines: int
    succeeded: int
    double_charges: int
    open_charges: int
    states: dict[str, int]
    money_moved: dict[str, int]
    requests: int
    repeated_requests: int
    """POSTs whose key had been on the wire before."""
    unanswered_attempts: int
    versions_above_1: int


@dataclass(slots=True)
class Evidence:
    """Everything both sides say."""

    movements: list[Json]
    journal: list[Json]
    charges: dict[str, Json]
    keys: dict[str, Json]
    attempts: list[Json]
    runs: list[Json]
    book_double_charges: list[Json] = field(default_factory=list)


async def audit(sim_url: str, database_url: str, *, while_running: bool = False) -> AuditSummary:
    """Judge everything that the simulator and the ledger have seen.

    Args:
        sim_url: The simulator's base URL.
        database_url: The ledger, as any role that may read it.
        while_running: Whether charges may still be in flight, paid or not.

    Raises:
        AssertionError: Something does not hold; the message lists what, worst first.
    """
    # Stripe first: what the ledger has recorded by the time it is read can then only be more.
    evidence = await asyncio.to_thread(read_simulator, sim_url)
    await read_ledger(database_url, evidence)
    accusations = [
        *judge_money(evidence, while_running=while_running),
        *judge_counts(evidence),
        *judge_journal(evidence),
        *judge_versions(evidence),
    ]
    if accusations:
        shown = "\n".join(
            f"  {number}. {text}" for number, text in enumerate(accusations[:ACCUSATIONS_SHOWN], 1)
        )
        more = len(accusations) - ACCUSATIONS_SHOWN
        raise AssertionError(
            f"{len(accusations)} accusations:\n{shown}" + (f"\n  ... and {more} more" if more > 0 else "")
        )
    return summarize(evidence)


def read_simulator(sim_url: str) -> Evidence:
    """Return the book and the journal, whole."""
    summary = _get(sim_url, "/_sim/book/summary", identity=IDENTITY)
    return Evidence(
        movements=_get_all(sim_url, "/_sim/book", "movements"),
        journal=_get_all(sim_url, "/_sim/journal", "requests"),
        charges={},
        keys={},
        attempts=[],
        runs=[],
        book_double_charges=summary["double_charges"],
    )


def _get_all(sim_url: str, path: str, name: str) -> list[Json]:
    items: list[Json] = []
    while True:
        page = _get(sim_url, path, since=len(items), limit=_PAGE)
        items += page[name]
        if len(items) >= page["total"] or not page[name]:
            return items


def _get(sim_url: str, path: str, **query: Any) -> Json:
    with urllib.request.urlopen(f"{sim_url}{path}?{urlencode(query)}", timeout=60) as answer:
        found: Json = json.load(answer)
    return found


async def read_ledger(database_url: str, evidence: Evidence) -> None:
    """Read the ledger as of one moment."""
    connection = await asyncpg.connect(database_url)
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            for row in await connection.fetch("SELECT * FROM charges"):
                evidence.charges[row["charge_id"]] = dict(row)
            for row in await connection.fetch("SELECT * FROM keys"):
                evidence.keys[row["key"]] = dict(row)
            evidence.attempts = [dict(row) for row in await connection.fetch("SELECT * FROM attempts")]
            evidence.runs = [
                dict(row)
                for row in await connection.fetch(
                    """
                    SELECT r.run_id, r.phase, r.selected,
                           (SELECT count(*) FROM charges c WHERE c.run_id = r.run_id) AS charges,
                           (SELECT count(*) FROM skipped_rows s WHERE s.run_id = r.run_id) AS skipped,
                           (SELECT count(*) FROM takeovers t WHERE t.from_run = r.run_id) AS taken_over
                      FROM billing_runs r ORDER BY r.locked_at
                    """
                )
            ]
    finally:
        await connection.close()


def judge_money(evidence: Evidence, *, while_running: bool) -> list[str]:
    """I2: at most one success per identity, and the ledger says succeeded exactly where the book does."""
    found: list[str] = []
    paid: dict[str, list[Json]] = defaultdict(list)
    for movement in evidence.movements:
        identity = movement["metadata"].get(IDENTITY)
        if identity is None:
            found.append(f"money moved outside of any charge: {_money(movement)}")
        else:
            paid[identity].append(movement)
    doubles = [
        f"DOUBLE CHARGE of {identity}: {', '.join(map(_money, movements))}"
        for identity, movements in paid.items()
        if len(movements) > 1
    ]
    if len(doubles) != len(evidence.book_double_charges):
        found.append(f"the book itself counts {len(evidence.book_double_charges)} double charges")
    for identity, movements in paid.items():
        found += _judge_paid(
            evidence.charges.get(identity), identity, movements[0], while_running=while_running
        )
    found += [
        f"{_name(charge)} succeeded, says the ledger, but the book has no money of it"
        for identity, charge in evidence.charges.items()
        if charge["state"] == "succeeded" and identity not in paid
    ]
    return doubles + found


def _judge_paid(charge: Json | None, identity: str, movement: Json, *, while_running: bool) -> list[str]:
    if charge is None:
        return [f"{_money(movement)} was paid for {identity}, which is in no run"]
    found = []
    # A debit settles at Stripe first; the ledger hears of it later.
    allowed = {"succeeded", "processing"} | (IN_FLIGHT if while_running else set())
    if charge["state"] not in allowed:
        found.append(
            f"{_name(charge)} is {charge['state']}, says the ledger, but was paid: {_money(movement)}"
        )
    if (charge["amount_minor"], charge["currency"]) != (movement["amount"], movement["currency"]):
        owed = f"{charge['amount_minor']} {charge['currency']}"
        found.append(f"{_name(charge)} owed {owed}, but paid {_money(movement)}")
    if charge["customer"] != movement["customer"]:
        found.append(f"{_name(charge)} was paid by somebody else: {_money(movement)}")
    if charge["account"] != movement["account"]:
        found.append(f"{_name(charge)} was paid into another account: {_money(movement)}")
    if charge["state"] == "succeeded" and charge["payment_intent"] != movement["payment_intent"]:
        found.append(f"{_name(charge)} names {charge['payment_intent']}, but paid by {_money(movement)}")
    return found


def judge_counts(evidence: Evidence) -> list[str]:
    """I9: every selected line is somewhere; a closed run has no line that nobody decided about."""
    found = []
    for run in evidence.runs:
        accounted = run["charges"] + run["skipped"] + run["taken_over"]
        if run["selected"] is not None and run["selected"] != accounted:
            found.append(
                f"{run['run_id']} selected {run['selected']} lines, but {accounted} are accounted for"
            )
    closed = {run["run_id"] for run in evidence.runs if run["phase"] == "closed"}
    found += [
        f"{_name(charge)} is forgotten: {charge['state']} in a closed run"
        for charge in evidence.charges.values()
        if charge["run_id"] in closed and charge["state"] in IN_FLIGHT | NOT_STARTED
    ]
    return found


def judge_journal(evidence: Evidence) -> list[str]:
    """I1, I3, I7: each send on the wire was intended first, and is always the same under one key."""
    found: list[str] = []
    sends: dict[str, int] = defaultdict(int)
    for attempt in evidence.attempts:
        sends[attempt["key"]] += 1
    on_wire: dict[str, list[Json]] = defaultdict(list)
    for request in evidence.journal:
        if request["method"] != "POST":
            continue
        if not request["key"]:
            found.append(f"a POST without a key: {request['path']} (request {request['ordinal']})")
        else:
            on_wire[request["key"]].append(request)
    for name, requests in on_wire.items():
        if len({request["path"] for request in requests}) > 1:
            found.append(f"key {name} was sent to several paths (I3)")
        if len({request["body_sha256"] for request in requests}) > 1:
            found.append(f"key {name} was sent with several bodies (I3)")
        key = evidence.keys.get(name)
        if key is None:
            found.append(f"key {name} was on the wire, but is not in the ledger (I1)")
            continue
        if key["path"] != requests[0]["path"]:
            found.append(f"key {name} was frozen for {key['path']}, but sent to {requests[0]['path']} (I3)")
        if len(requests) > sends[name]:
            found.append(
                f"key {name} was on the wire {len(requests)} times, but in the ledger {sends[name]} (I7)"
            )
    return found


def judge_versions(evidence: Evidence) -> list[str]:
    """I4, I5: versions go up by one, only past the window; no key is resent close to the window's end."""
    found: list[str] = []
    chains: dict[tuple[str, str], list[Json]] = defaultdict(list)
    for key in evidence.keys.values():
        chains[key["charge_id"], key["operation"]].append(key)
    for (charge_id, operation), chain in chains.items():
        chain.sort(key=lambda key: key["version"])
        versions = [key["version"] for key in chain]
        if operation != "refund" and versions != list(range(1, len(chain) + 1)):
            found.append(f"{operation} of {charge_id} has the versions {versions} (I4)")
        for older, newer in itertools.pairwise(chain):
            # A cancel speaks about one PaymentIntent: of another one it is no repetition.
            repeated = operation != "cancel" or older["payment_intent"] == newer["payment_intent"]
            age = newer["first_intended_at"] - older["first_intended_at"]
            if repeated and age < WINDOW:
                found.append(f"{newer['key']} was made when {older['key']} was only {age} old (I4)")
    for attempt in evidence.attempts:
        age = attempt["intended_at"] - evidence.keys[attempt["key"]]["first_intended_at"]
        if attempt["send_no"] > 1 and age > RESEND_AGE_MAX:
            found.append(f"{attempt['key']} was sent again when it was {age} old (I5)")
    return found


def summarize(evidence: Evidence) -> AuditSummary:
    """Return the numbers of a case without accusations."""
    states: dict[str, int] = defaultdict(int)
    for charge in evidence.charges.values():
        states[charge["state"]] += 1
    money: dict[str, int] = defaultdict(int)
    for movement in evidence.movements:
        money[movement["currency"]] += movement["amount"]
    posts = [request["key"] for request in evidence.journal if request["method"] == "POST"]
    return AuditSummary(
        lines=len(evidence.charges),
        succeeded=states["succeeded"],
        double_charges=len(evidence.book_double_charges),
        open_charges=sum(states[state] for state in IN_FLIGHT | NOT_STARTED),
        states={state: count for state, count in states.items() if count},
        money_moved=dict(money),
        requests=len(evidence.journal),
        repeated_requests=len(posts) - len(set(posts)),
        unanswered_attempts=sum(attempt["answered_at"] is None for attempt in evidence.attempts),
        versions_above_1=sum(key["version"] > 1 for key in evidence.keys.values()),
    )


def _money(movement: Json) -> str:
    return "{amount} {currency} from {customer} by {payment_intent}".format_map(movement)


def _name(charge: Json) -> str:
    return "{charge_id} ({customer}/{line})".format_map(charge)
