"""Pages of what is numbered and not kept as objects: events and balance transactions."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from deploy.stripe_sim.errors import bad_request, missing_object
from deploy.stripe_sim.forms import Params, take_text
from deploy.stripe_sim.paging import take_limit, take_window

ItemT = TypeVar("ItemT")


def take_numbered_page(
    params: Params,
    count: int,
    *,
    find: Callable[[str], int | None],
    read: Callable[[int], ItemT | None],
    created: Callable[[ItemT], int],
    noun: str,
    oldest: int = 0,
) -> tuple[list[ItemT], bool]:
    """Return the page that the parameters ask for, newest first, and whether more follow.

    `read` returns None for what the other filters leave out; numbers below `oldest` are gone.
    """
    limit, (low, high) = take_limit(params), take_window(params)
    after, before = take_text(params, "starting_after"), take_text(params, "ending_before")
    if after is not None and before is not None:
        raise bad_request("You cannot use both `starting_after` and `ending_before`.", param="starting_after")
    walk: Iterable[int] = range(count - 1, oldest - 1, -1)
    if before is not None:
        walk = range(_need(find, before, noun, "ending_before") + 1, count)
    elif after is not None:
        walk = range(_need(find, after, noun, "starting_after") - 1, oldest - 1, -1)
    page: list[ItemT] = []
    for number in walk:
        item = read(number)
        if item is None or not low <= created(item) <= high:
            continue
        if len(page) == limit:
            return (page[::-1] if before is not None else page), True
        page.append(item)
    return (page[::-1] if before is not None else page), False


def _need(find: Callable[[str], int | None], cursor: str, noun: str, param: str) -> int:
    number = find(cursor)
    if number is None:
        raise missing_object(noun, cursor, param=param, status=400)
    return number
