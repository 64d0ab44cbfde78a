"""Pages of what is numbered and not kept as objects: events and balance transactions."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import Params, take_text
from deploy.stripe_sim.paging import take_limit, take_window

ItemT = TypeVar("ItemT")


def take_numbered_page(
    params: Params,
    created: Sequence[int],
    *,
    monotone: bool,
    since: float,
    find: Callable[[str], int | None],
    read: Callable[[int], ItemT | None],
    noun: str,
) -> tuple[list[ItemT], bool]:
    """Return the page that the parameters ask for, newest first, and whether more follow.

    `created` has the second of each number, and `monotone` says that they never fall; what is older than
    `since` is gone. `read` returns None for what the other filters leave out.
    """
    limit, (low, high) = take_limit(params), take_window(params)
    low = max(low, since)
    after, before = take_text(params, "starting_after"), take_text(params, "ending_before")
    if after is not None and before is not None:
        raise bad_request("You cannot use both `starting_after` and `ending_before`.", param="starting_after")
    first, end = (bisect_left(created, low), bisect_right(created, high)) if monotone else (0, len(created))
    walk = range(end - 1, first - 1, -1)
    if before is not None:
        walk = range(max(first, _need(find, before, noun, "ending_before") + 1), end)
    elif after is not None:
        walk = range(min(end, _need(find, after, noun, "starting_after")) - 1, first - 1, -1)
    page: list[ItemT] = []
    has_more = False
    for number in walk:
        item = read(number) if low <= created[number] <= high else None
        if item is None:
            continue
        if len(page) == limit:
            has_more = True
            break
        page.append(item)
    return (page[::-1] if before is not None else page), has_more


def _need(find: Callable[[str], int | None], cursor: str, noun: str, param: str) -> int:
    number = find(cursor)
    if number is None:
        raise missing_object(noun, cursor, param=param, status=400)
    return number
