"""The run's own send path over a pair of books, and one command that moves both their clocks."""

from datetime import UTC, datetime

import asyncpg

from activities.carry import Breaker, Carrier, End
from activities.gateway.requests import StripeAccount
from activities.ledger.charges import ChargeLedger
from activities.limiter import Limiter
from activities.send import Sender
from activities.settle import Settler
from deploy.postgres import Database
from tests.activities.books import ACCOUNT, RUN, Books


async def carry_due(books: Books) -> list[End]:
    """Claim what is due in the run and carry each charge as far as it goes."""
    account = StripeAccount(ACCOUNT, connected=False)
    ledger, limiter = ChargeLedger(books.pool), Limiter(10_000)
    sender = Sender(ledger=ledger, gateway=books.gateway, limiter=limiter, account=account)
    settler = Settler(ledger=ledger, gateway=books.gateway, limiter=limiter, sender=sender, account=account)
    carrier = Carrier(
        ledger=ledger, sender=sender, settler=settler, breaker=Breaker(), is_draining=lambda: False
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
