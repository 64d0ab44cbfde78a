"""Search: exact and yet careless about case, and late."""

from typing import Any

import pytest
import stripe

from deploy.stripe_sim.errors import ApiError
from deploy.stripe_sim.search import parse_query
from deploy.stripe_sim.testing import RunningSim
from tests.stripe_sim.calls import confirm, create


async def find(client: stripe.StripeClient, query: str, **params: Any) -> list[str]:
    """Return the ids that a query finds."""
    body: Any = {"query": query, **params}
    page = await client.v1.payment_intents.search_async(body)
    return [intent.id for intent in page.data]


async def test_search_lags(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A new payment, and a new state of an old one, are found only after the lag."""
    sim.change(search_lag_seconds=30)
    intent = await create(client, metadata={"order": "A-1"})
    query = 'metadata["order"]:"A-1"'
    assert await find(client, query) == []
    sim.clock.advance(30)
    assert await find(client, query) == [intent.id]
    await confirm(client, intent.id)
    assert await find(client, "status:'succeeded'") == []
    assert await find(client, "status:'requires_confirmation'") == [intent.id]
    sim.clock.advance(30)
    assert await find(client, "status:'succeeded'") == [intent.id]


async def test_queries(sim: RunningSim, client: stripe.StripeClient) -> None:
    """Fields compare exactly whatever their case; AND narrows, OR widens, a minus turns around."""
    sim.change(search_lag_seconds=0)
    sim.seed("cus_2")
    one = (await create(client, amount=1_000, metadata={"order": "A-1", "o'k": "x"})).id
    two = (await create(client, amount=2_000, metadata={"order": "a-2"}, confirm=True)).id
    three = (await create(client, amount=3_000, currency="eur", customer="cus_2", payment_method=None)).id
    for query, ids in {
        'metadata["order"]:"a-1"': [one],
        "metadata['order']:'A-2'": [two],
        'metadata["order"]:"A"': [],
        'metadata["order"]:null': [three],
        '-metadata["order"]:null': [two, one],
        "amount>1000": [three, two],
        "amount>=1000 AND amount<3000": [two, one],
        "amount:2000 OR currency:'EUR'": [three, two],
        "status:'succeeded' -currency:'eur'": [two],
        'customer:"cus_2"': [three],
        f"created>{int(sim.clock.now()) - 1}": [three, two, one],
    }.items():
        assert await find(client, query) == ids, query


async def test_pages(sim: RunningSim, client: stripe.StripeClient) -> None:
    """A page names the next one; the SDK walks through all of them; the total comes on demand."""
    sim.change(search_lag_seconds=0)
    ids = [(await create(client)).id for _ in range(5)]
    first = await client.v1.payment_intents.search_async(
        {"query": "currency:'usd'", "limit": 2, "expand": ["total_count"]}
    )
    assert first.has_more
    assert first.to_dict()["total_count"] == 5
    every = [intent.id async for intent in first.auto_paging_iter()]
    assert every == ids[::-1]


@pytest.mark.parametrize(
    "query",
    [
        "order",
        "description:'x'",
        "metadata:'x'",
        "status~'succ'",
        "amount:'ten'",
        "status:succeeded",
        "status:'a' AND currency:'b' OR amount>1",
        "AND status:'a'",
        " AND ".join(["amount>1"] * 11),
        "status:'a",
        " ",
    ],
)
def test_queries_that_make_no_sense(query: str) -> None:
    """Unknown fields, wrong operators, missing quotes, mixed AND and OR, and too many clauses are refused."""
    with pytest.raises(ApiError) as caught:
        parse_query(query)
    assert caught.value.status == 400
