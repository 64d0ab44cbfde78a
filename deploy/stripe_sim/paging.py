"""Stripe's lists: newest first, cursors by id, a created window, has_more."""

from bisect import bisect_left, bisect_right
from typing import Any

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import PAGE_SIZE_MAX, Params, refuse_unknown, take_integer, take_text
from deploy.stripe_sim.store import ListedT, Shelf

PAGE_PARAMS = frozenset({"limit", "starting_after", "ending_before", "expand"})
PAGE_SIZE_DEFAULT = 10
_WINDOW = frozenset({"gt", "gte", "lt", "lte"})


def take_page(
    params: Params, shelf: Shelf[ListedT], items: list[ListedT], noun: str
) -> tuple[list[ListedT], bool]:
    """Return the page that the parameters ask for, newest first, and whether more follow in that direction.

    `items` are oldest first: the whole shelf or one customer's part of it. The walk starts at the cursor,
    stays inside the created window and stops as soon as the page is full.
    """
    limit = take_integer(params, "limit")
    limit = PAGE_SIZE_DEFAULT if limit is None else limit
    if not 1 <= limit <= PAGE_SIZE_MAX:
        raise bad_request(f"Invalid limit: must be between 1 and {PAGE_SIZE_MAX}", param="limit")
    low, high = _take_window(params)
    first, end = 0, len(items)
    if shelf.monotone:
        first = bisect_left(items, low, key=lambda listed: listed.created)
        end = bisect_right(items, high, key=lambda listed: listed.created)
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
        if low <= item.created <= high:
            if len(page) == limit:
                has_more = True
                break
            page.append(item)
    return (page[::-1] if before is not None else page), has_more


def _position(items: list[ListedT], shelf: Shelf[ListedT], cursor: str, noun: str, param: str) -> int:
    item = shelf.by_id.get(cursor)
    if item is None:
        raise missing_object(noun, cursor, param=param, status=400)
    index = bisect_left(items, item.seq, key=lambda listed: listed.seq)
    if index == len(items) or items[index] is not item:
        raise bad_request(f"The {noun} '{cursor}' is not part of this list.", param=param)
    return index


def _take_window(params: Params) -> tuple[float, float]:
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
