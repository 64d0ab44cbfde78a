"""`chargeonce review` and `resolve`: what contradicts what, what Stripe shows, and what a person decided."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from activities.accounts import Accounts
from activities.explain import ChargeStory, explain_charge
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool, open_pool
from activities.ledger.review import ReviewLedger
from activities.resolve import Reviewed, Reviewer
from activities.send import Sender
from activities.skew_watch import SkewWatch
from activities.stripe_pages import Unreadable
from activities.vault import RECONCILING
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.proof import render_story
from worker.reasons import read_reason
from worker.whoami import who as user_at_host
from worker.wiring import open_accounts
from workflows.contracts import Decision, RunKey
from workflows.domain.errors import RefusedToStart, StaleWrite
from workflows.domain.money import format_money
from workflows.domain.review import Allowed, Resolution

if TYPE_CHECKING:
    from rich.console import RenderableType


async def list_reviews(output: Output, *, account: str | None, run_id: str | None, limit: int) -> None:
    """Print up to `limit` charges in review, longest there first. Asks nobody but the ledger."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=1) as pool:
        found = await ReviewLedger(pool).in_review(account=account, run_id=run_id, limit=limit)
    output.result({"charges": found}, lambda: _render_list(found))


async def show_review(output: Output, wanted: str, *, run_id: str | None) -> None:
    """Print one charge in review: its story, what Stripe shows of it now, and what may be decided.

    Raises:
        InvalidInput: `wanted` names no charge, or more than one.
        RefusedToStart: It is not in review, or Stripe did not answer in full.
    """
    async with _at_work(wanted, run_id) as (story, reviewer, _sender):
        reviewed = await _look(reviewer, story)
    output.result(_document(story, reviewed), lambda: _render(story, reviewed))


async def resolve(
    output: Output, wanted: str, resolution: Resolution, *, run_id: str | None, who: str | None, reason: str
) -> None:
    """Record a decision about a charge in review, if Stripe bears it out at this moment.

    Raises:
        InvalidInput: `wanted` names no charge, or more than one; or the reason is empty.
        RefusedToStart: Stripe does not bear it out, or did not answer; nothing was recorded.
    """
    decision = Decision(who=who or user_at_host(), reason=read_reason(reason))
    async with _at_work(wanted, run_id) as (story, reviewer, sender):
        try:
            charge = await reviewer.resolve(story.charge_id, resolution, decision, sender=sender)
        except Unreadable as failure:
            raise RefusedToStart(f"nothing was recorded, since Stripe did not answer: {failure}") from None
        except StaleWrite as stale:
            raise RefusedToStart(f"nothing was recorded: {stale}") from None
    document = {
        "charge_id": charge.charge_id,
        "run": charge.run_id,
        "resolution": resolution,
        "state": charge.state,
        "payment_intent": charge.payment_intent,
        "who": decision.who,
        "reason": decision.reason,
    }
    output.result(
        document,
        lambda: [f"{charge.charge_id}: review -> {charge.state}; see chargeonce explain {charge.charge_id}"],
    )


@asynccontextmanager
async def _at_work(wanted: str, run_id: str | None) -> AsyncIterator[tuple[ChargeStory, Reviewer, Sender]]:
    settings = load_settings()
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        story = await explain_charge(pool, wanted, run_id=run_id)
        yield story, *await _parts(pool, accounts, story)


async def _parts(pool: Pool, accounts: Accounts, story: ChargeStory) -> tuple[Reviewer, Sender]:
    parts = await accounts.of(RunKey(run_id=story.run_id, account=story.account), RECONCILING)
    charges = ChargeLedger(pool)
    sender = Sender(
        ledger=charges,
        gateway=parts.gateway,
        limiter=parts.limiter,
        account=parts.account,
        places=parts.places,
        skew=SkewWatch(),
    )
    return Reviewer(parts, charges, ReviewLedger(pool)), sender


async def _look(reviewer: Reviewer, story: ChargeStory) -> Reviewed:
    if story.state != "review":
        raise RefusedToStart(
            f"charge {story.charge_id} is {story.state}, not in review: "
            f"see chargeonce explain {story.charge_id}"
        )
    try:
        return await reviewer.look(story.charge_id)
    except Unreadable as failure:
        raise RefusedToStart(f"Stripe did not answer in full: {failure}") from None


def _document(story: ChargeStory, reviewed: Reviewed) -> dict[str, Any]:
    return {
        **story.as_json(),
        "stripe": [
            {
                "payment_intent": one.id,
                "status": one.status,
                "amount_minor": one.amount_minor,
                "currency": one.currency,
                "customer": one.customer,
                "returned_minor": reviewed.evidence.returned_minor.get(one.id, 0),
                "is_own": one.id == story.payment_intent,
            }
            for one in reviewed.evidence.payment_intents
        ],
        "decisions": {
            resolution: {"allowed": True, "state": ruling.state, "cancels_first": ruling.cancel_first}
            if isinstance(ruling, Allowed)
            else {"allowed": False, "why_not": ruling.reason}
            for resolution, ruling in reviewed.rulings.items()
        },
    }


def _render_list(found: list[dict[str, Any]]) -> Iterable["RenderableType"]:
    if not found:
        yield "no charge is in review"
        return
    rows = [
        (
            row["charge_id"],
            f"{row['customer']}/{row['line']}",
            row["run_id"],
            format_money(row["amount_minor"], row["currency"]),
            f"{row['since']:%Y-%m-%d %H:%M}",
            row["reason"] or row["alarm_reason"] or "",
            f"{row['attempts']} sends, {row['decisions']} decisions, {row['events']} events",
        )
        for row in found
    ]
    yield table(("charge", "of", "run", "owed", "since", "what contradicts what", "evidence"), rows)
    yield "What Stripe shows and what may be decided about one: chargeonce review CHARGE"


def _render(story: ChargeStory, reviewed: Reviewed) -> Iterable["RenderableType"]:
    yield from render_story(story)
    shown = [
        (
            one.id,
            "the charge's own" if one.id == story.payment_intent else "",
            one.status,
            format_money(one.amount_minor, one.currency),
            one.customer,
            format_money(reviewed.evidence.returned_minor.get(one.id, 0), one.currency),
        )
        for one in reviewed.evidence.payment_intents
    ]
    names = ("Stripe shows now", "", "status", "of", "customer", "refunded")
    yield table(names, shown) if shown else "Stripe shows nothing of it"
    for resolution, ruling in reviewed.rulings.items():
        if isinstance(ruling, Allowed):
            first = f", after {story.payment_intent} was canceled" if ruling.cancel_first else ""
            yield (
                f"may be resolved as {resolution} (it becomes {ruling.state}{first}): "
                f"chargeonce resolve {story.charge_id} --as {resolution} --reason ..."
            )
        else:
            yield f"not as {resolution}: {ruling.reason}"
