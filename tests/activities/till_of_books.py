"""The run's own send path over a pair of books, and one command that moves both their clocks."""

import asyncio
from datetime import UTC, datetime

import asyncpg

from activities.carry import Carrier, End
from activities.gateway.requests import StripeAccount
from activities.ledger.charges import ChargeLedger
from activities.ledger.control import ControlLedger
from activities.run_watch import RunWatch
from activities.send import Sender
from activities.settle import Settler
from activities.skew_watch import SkewWatch
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, RUN, Books
from tests.activities.local_limiter import LocalLimiter
from workflows.domain.breaker import Breaker


async def carry_due(books: Books) -> list[End]:
    """Claim what is due in the run and carry each charge as far as it goes."""
    account = StripeAccount(ACCOUNT, connected=False)
    ledger, limiter = ChargeLedger(books.pool), LocalLimiter(10_000)
    skew, watch = SkewWatch(), RunWatch(ControlLedger(books.pool), RUN)
    await watch.refresh()
    sender = Sender(
        ledger=ledger,
        gateway=books.gateway,
        limiter=limiter,
        account=account,
        places=asyncio.Semaphore(64),
        skew=skew,
    )
    settler = Settler(
        ledger=ledger, gateway=books.gateway, limiter=limiter, sender=sender, account=account, skew=skew
    )
    carrier = Carrier(
        ledger=ledger,
        sender=sender,
        settler=settler,
        breaker=Breaker(),
        watch=watch,
        skew=skew,
        is_draining=lambda: False,
    )
    return [await carrier.carry(charge) for charge in await ledger.claim_due(RUN, limit=100)]


async def move_clocks(database: Database, books: Books, *, seconds: float) -> None:
    """Let so many seconds pass for ledger and Stripe alike, counted from now."""
    books.sim.clock.set_offset(seconds)
    connection = await asyncpg.connect(database.owner_url)
    try:
        moved: datetime = await connection.fetchval("SELECT move_ledger_clock($1, NULL)", seconds)
    finally:
        await connection.close()
    assert abs(moved.timestamp() - datetime.now(UTC).timestamp() - seconds) < 60
