"""What the proxy asks Stripe for itself: what a decision needs to know, and what became of unknowns.

Each question is a call in the audit like any other, marked as the proxy's own by its effect.
"""

import time
import uuid
from dataclasses import replace
from typing import Any

from activities.ledger.cap import Ask
from worker.proxy.evidence import ASK, Answered, read_json, tell, tell_silence
from worker.proxy.forms import parse_form
from worker.proxy.parts import Parts
from worker.proxy.reading import Incoming
from worker.proxy.upstream import NoAnswer, NotReached
from workflows.domain.vault import Effect


class AskedInVain(Exception):
    """Stripe did not say what the proxy needs to know, so nothing was sent. `answered`: what it said."""

    def __init__(self, why: str, answered: Answered | None = None) -> None:
        super().__init__(why)
        self.answered = answered


async def complete(parts: Parts, ask: Ask, incoming: Incoming, account: str) -> Ask:
    """Find out at Stripe what a request would move, and return it ready to be admitted again.

    Raises:
        AskedInVain: Stripe did not say.
        NothingWasSent: The ledger can't be reached.
    """
    if ask.effect != Effect.REFUND:
        await _need(parts, ask, account, f"/v1/payment_intents/{ask.intent}", intent=ask.intent)
        return ask
    parameters = parse_form(incoming.body)
    charge: object = parameters.get("charge")
    if charge is None:
        intent = await _need(parts, ask, account, f"/v1/payment_intents/{_id(parameters['payment_intent'])}")
        charge = intent.get("latest_charge")
    found = await _need(parts, ask, account, f"/v1/charges/{_id(charge)}")
    captured, refunded, currency = (
        found.get(name) for name in ("amount_captured", "amount_refunded", "currency")
    )
    if not isinstance(captured, int) or not isinstance(refunded, int) or not isinstance(currency, str):
        raise AskedInVain("the charge can't be read")
    amount = ask.amount if ask.amount is not None else captured - refunded
    return replace(ask, amount=max(amount, 0), currency=currency)


async def question(
    parts: Parts,
    account: str,
    target: str,
    *,
    intent: str | None = None,
    key_sha256: str = "",
    effect: str = ASK,
) -> tuple[Ask, Answered]:
    """Send a GET of the proxy's own, and return it with its answer, which the caller records.

    Raises:
        AskedInVain: No answer came, or there is no key for the account.
        NothingWasSent: The ledger can't be reached.
    """
    key = parts.keys.of(account)
    if key is None:
        raise AskedInVain("there is no real key for the account")
    ask = Ask(
        call_id=str(uuid.uuid4()),
        key_sha256=key_sha256,
        method="GET",
        path=target.partition("?")[0],
        account=account,
        effect=effect,
        intent=intent,
        own=True,
    )
    await parts.ledger.admit(ask)
    began = time.monotonic()
    try:
        answered = await parts.upstream.send("GET", target, key.headers(account), b"", account=account)
    except (NoAnswer, NotReached) as failure:
        parts.ledger.record(tell_silence(ask, round((time.monotonic() - began) * 1000, 3)))
        raise AskedInVain(f"Stripe did not answer ({failure})") from None
    if answered.status == 401:
        parts.refresh_keys()
    return ask, answered


async def _need(
    parts: Parts, asked_for: Ask, account: str, target: str, *, intent: str | None = None
) -> dict[str, Any]:
    began = time.monotonic()
    ask, answered = await question(parts, account, target, intent=intent, key_sha256=asked_for.key_sha256)
    parts.ledger.record(tell(ask, answered, round((time.monotonic() - began) * 1000, 3)))
    await parts.ledger.recorded(ask.call_id)
    document = read_json(answered)
    if answered.status == 200 and document is not None:
        return document
    raise AskedInVain(
        f"Stripe answered {answered.status}", answered if 400 <= answered.status < 500 else None
    )


def _id(value: object) -> str:
    if not isinstance(value, str) or not value.isascii() or not value.replace("_", "").isalnum():
        raise AskedInVain("the object to refund has no id that can be asked for")
    return value
