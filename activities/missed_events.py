"""Events that Stripe made and the inbox never had: what a receiver that was down has missed.

Nothing rests on an event alone, since each is only a nudge to look at an object. But where many are missing,
somebody has to know why, and Stripe shows what it sent for 30 days.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.accounts import AccountParts
from activities.counted_limiter import CountedLimiter
from activities.ledger.charges import ChargeLedger
from activities.ledger.database import Pool
from activities.ledger.inbox import InboxLedger, Received
from activities.ledger.missed_events import MissedEventsLedger
from activities.stripe_pages import read_events
from workflows.domain.webhook_event import WebhookEvent

KEPT_SECONDS = 30 * 86_400  # https://docs.stripe.com/api/events/list
ON_ITS_WAY_SECONDS = 600.0  # by the ledger's clock: a younger one may still be delivered

# What changes something about a charge, of the types that Stripe has (`workflows.domain.merge.about`). One
# question can name twenty of them.
TYPES = (
    "charge.captured",
    "charge.dispute.closed",
    "charge.dispute.created",
    "charge.dispute.funds_reinstated",
    "charge.dispute.funds_withdrawn",
    "charge.dispute.updated",
    "charge.expired",
    "charge.failed",
    "charge.pending",
    "charge.refund.updated",
    "charge.refunded",
    "charge.succeeded",
    "payment_intent.canceled",
    "payment_intent.payment_failed",
    "payment_intent.processing",
    "payment_intent.requires_action",
    "payment_intent.succeeded",
    "refund.created",
    "refund.failed",
    "refund.updated",
)


@dataclass(frozen=True, slots=True)
class MissedEvents:
    """What looking for gaps came to. Times are epoch seconds.

    Without `ever_received` the account has no receiver, and nothing was looked for. `unheard` counts events
    of types of which none was ever received: an endpoint that does not subscribe to them misses nothing, so
    none of them is among the `missed`. `beyond_reach` says that the span begins before what Stripe shows.
    """

    missed: tuple[WebhookEvent, ...]
    requests: int
    ever_received: bool
    charge_ids: Mapping[str, str] = field(default_factory=dict)
    """The charge of each missed event, by the event's id."""
    unheard: Mapping[str, int] = field(default_factory=dict)
    beyond_reach: bool = False
    looked_epoch_seconds: float = 0.0

    def seconds_left(self, event: WebhookEvent) -> float:
        """Return for how long Stripe still shows an event."""
        return event.created_epoch_seconds + KEPT_SECONDS - self.looked_epoch_seconds


async def find_missed(
    pool: Pool,
    parts: AccountParts,
    *,
    since_epoch_seconds: float,
    until_epoch_seconds: float,
    run_id: str | None = None,
) -> MissedEvents:
    """Return the events of a span that are about charges of ours, and are not in the inbox.

    A charge is ours where the ledger has it, in this run if one is named. Events whose object carries no
    identity (refunds, disputes) are matched by their PaymentIntent, where the ledger knows it. What is
    younger than ten minutes may be on its way, and is left out.

    Raises:
        Unreadable: Stripe did not show its events.
    """
    ledger, account = MissedEventsLedger(pool), parts.account.id
    now = await ChargeLedger(pool).now()
    heard = await ledger.types_received(account)
    if not heard:
        return MissedEvents((), 0, ever_received=False, looked_epoch_seconds=now)
    counted = CountedLimiter(parts.limiter)
    search = _Search(ledger, account, run_id, heard)
    until = min(until_epoch_seconds, now - ON_ITS_WAY_SECONDS)
    if until >= since_epoch_seconds:
        async for page in read_events(
            parts.gateway,
            parts.account,
            types=TYPES,
            since_epoch_seconds=int(since_epoch_seconds),
            until_epoch_seconds=int(until),
            limiter=counted,
        ):
            await search.take_in(page)
        await search.match_by_payment_intent()
    return MissedEvents(
        tuple(sorted(search.missed.values(), key=lambda one: (one.created_epoch_seconds, one.event_id))),
        counted.requests,
        ever_received=True,
        charge_ids={event_id: search.charge_ids[event_id] for event_id in search.missed},
        unheard=dict(search.unheard),
        beyond_reach=since_epoch_seconds < now - KEPT_SECONDS,
        looked_epoch_seconds=now,
    )


async def keep_missed(pool: Pool, account: str, event: WebhookEvent) -> bool:
    """Put an event into the inbox as if it had been delivered; return whether it was not there yet.

    Raises:
        LedgerAway: It was not kept, or nobody knows.
    """
    return await InboxLedger(pool).keep(Received(event, account))


@dataclass(slots=True)
class _Search:
    """One search under way: what is missing so far, and what can't be matched by an identity."""

    ledger: MissedEventsLedger
    account: str
    run_id: str | None
    heard: frozenset[str]
    missed: dict[str, WebhookEvent] = field(default_factory=dict)
    charge_ids: dict[str, str] = field(default_factory=dict)
    unheard: Counter[str] = field(default_factory=Counter)
    nameless: list[WebhookEvent] = field(default_factory=list)

    async def take_in(self, page: tuple[WebhookEvent, ...]) -> None:
        named = {one.event_id: one.charge_id for one in page if one.charge_id is not None}
        # An object of a type that carries metadata, and none of ours, is somebody else's business.
        self.nameless += [
            one
            for one in page
            if one.charge_id is None
            and one.payment_intent is not None
            and one.object_kind not in {"payment_intent", "charge"}
        ]
        await self._keep_missing(page, named)

    async def match_by_payment_intent(self) -> None:
        intents = sorted({one.payment_intent for one in self.nameless if one.payment_intent is not None})
        whose = await self.ledger.charges_of(self.account, intents)
        named = {
            one.event_id: whose[one.payment_intent] for one in self.nameless if one.payment_intent in whose
        }
        await self._keep_missing(self.nameless, named)

    async def _keep_missing(self, events: Sequence[WebhookEvent], named: Mapping[str, str]) -> None:
        missing = await self.ledger.missing(named, account=self.account, run_id=self.run_id)
        for one in events:
            if one.event_id not in missing:
                continue
            if one.type not in self.heard:
                self.unheard[one.type] += 1
                continue
            self.missed[one.event_id] = one
            self.charge_ids[one.event_id] = named[one.event_id]
