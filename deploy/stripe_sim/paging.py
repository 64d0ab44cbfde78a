"""Stripe's lists: newest first, cursors by id, a created window, has_more."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import PAGE_SIZE_MAX, Params, refuse_unknown, take_integer, take_text
from deploy.stripe_sim.store import Line, ListedT, Shelf

PAGE_PARAMS = frozenset({"limit", "starting_after", "ending_before", "expand"})
PAGE_SIZE_DEFAULT = 10
_WINDOW = frozenset({"gt", "gte", "lt", "lte"})


def take_page(
    params: Params,
    shelf: Shelf[ListedT],
    items: Sequence[ListedT],
    noun: str,
    accept: Callable[[ListedT], bool] | None = None,
) -> tuple[list[ListedT], bool]:
    """Return the page that the parameters ask for, newest first, and whether more follow in that direction.

    `items` are oldest first: the whole shelf or one customer's part of it. The walk starts at the cursor,
    stays inside the created window, leaves out what is not accepted and stops as soon as the page is full.
    """
    limit = take_limit(params)
    low, high = take_window(params)
    first, end = 0, len(items)
    if shelf.monotone:
        positions, created_at = range(end), _by_creation(items)
        first = bisect_left(positions, low, key=created_at)
        end = bisect_right(positions, high, key=created_at)
    after, before = take_text(params, "starting_after"), take_text(params, "ending_before")
    if after is not None and before is not None:
        raise bad_request("You cannot use both `starting_after` and `ending_before`.", param="starting_after")
    if before is not None:
        walk = range(max(first, _position(items, shelf, before, noun, "ending_before") + 1), end)
    elif after is not None:
        walk = range(min(end, _position(items, shelf, after, noun, "starting_after")) - 1, first - 1, -1)
    else:
        walk = range(end - 1, first - 1, -1)
    page: list[ListedT] = []
    has_more = False
    for index in walk:
        item = items[index]
        if low <= item.created <= high and (accept is None or accept(item)):
            if len(page) == limit:
                has_more = True
                break
            page.append(item)
    return (page[::-1] if before is not None else page), has_more


def _by_creation(items: Sequence[ListedT]) -> Callable[[int], int]:
    return items.created_at if isinstance(items, Line) else lambda position: items[position].created


def _position(items: Sequence[ListedT], shelf: Shelf[ListedT], cursor: str, noun: str, param: str) -> int:
    item = shelf.by_id.get(cursor)
    if item is None:
        raise missing_object(noun, cursor, param=param, status=400)
    if isinstance(items, Line):
        index = items.find(item)
    else:
        index = next((position for position, other in enumerate(items) if other.seq == item.seq), None)
    if index is None:
        raise bad_request(f"The {noun} '{cursor}' is not part of this list.", param=param)
    return index


def take_limit(params: Params) -> int:
    """Return the page size, 10 unless given, or refuse one outside 1 to 100."""
    limit = take_integer(params, "limit")
    limit = PAGE_SIZE_DEFAULT if limit is None else limit
    if not 1 <= limit <= PAGE_SIZE_MAX:
        raise bad_request(f"Invalid limit: must be between 1 and {PAGE_SIZE_MAX}", param="limit")
    return limit


def take_window(params: Params) -> tuple[float, float]:
    """Return the first and the last second of the `created` filter."""
    given = params.get("created")
    if given is None:
        return float("-inf"), float("inf")
    if isinstance(given, str):
        exact = take_integer(params, "created") or 0
        return exact, exact
    refuse_unknown(given, _WINDOW, inside="created")
    low, high = float("-inf"), float("inf")
    for name in given:
        bound = take_integer(given, name)
        if bound is None:
            continue
        if name in {"gt", "gte"}:
            low = max(low, bound + (name == "gt"))
        else:
            high = min(high, bound - (name == "lt"))
    return low, high


def show_list(url: str, data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a list object."""
    return {"object": "list", "data": data, "has_more": has_more, "url": url}
