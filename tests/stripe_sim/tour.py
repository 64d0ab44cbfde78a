"""Raw requests whose every answer is held against the SDK, and a record of what was seen."""

import json
from collections import Counter
from typing import Any

import aiohttp

from deploy.stripe_sim.routes import find_route
from tests.stripe_sim.shape_check import check_answer


class Tour:
    """Asks the simulator and checks each answer; `routes` and `states` are what has been checked."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.routes: Counter[str] = Counter()
        self.states: set[tuple[str, str]] = set()
        self.event_types: set[str] = set()
        self.errors: set[str] = set()
        self.problems: list[str] = []
        self._url = url
        self._session = session

    async def ask(
        self,
        method: str,
        path: str,
        params: dict[str, Any] | None = None,
        *,
        expect: int = 200,
        **headers: str,
    ) -> dict[str, Any]:
        """Send one request; returns the body of the answer, which has this status."""
        pairs = list(flatten(params or {}))
        sent = {
            "Authorization": "Bearer sk_test_tour",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        kwargs: dict[str, Any] = {"data": pairs} if method == "POST" else {"params": pairs}
        async with self._session.request(method, f"{self._url}/v1/{path}", headers=sent, **kwargs) as answer:
            shown: dict[str, Any] = json.loads(await answer.read())
            assert answer.status == expect, f"{method} {path}: {answer.status} {shown}"
        found = find_route(method, f"/v1/{path}")
        if found is not None and expect == 200:
            self.routes[found[0].name] += 1
        self._note(shown)
        self.problems += check_answer(shown, f"{method} {path}")
        return shown

    def _note(self, shown: dict[str, Any]) -> None:
        if "error" in shown:
            self.errors.add(shown["error"].get("code", shown["error"]["type"]))
            return
        items = shown["data"] if shown.get("object") in {"list", "search_result"} else [shown]
        for item in items:
            state = item.get("status") or ("deleted" if item.get("deleted") else "there")
            self.states.add((item["object"], state))
            if item["object"] == "event":
                self.event_types.add(item["type"])


def flatten(params: dict[str, Any], inside: str = "") -> list[tuple[str, str]]:
    """Return nested parameters as Stripe's flat ones."""
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        full = f"{inside}[{name}]" if inside else name
        if isinstance(value, dict):
            pairs += flatten(value, full)
        elif isinstance(value, list):
            pairs += flatten(dict(enumerate(value)), full)  # type: ignore[arg-type]
        elif isinstance(value, bool):
            pairs.append((full, str(value).lower()))
        else:
            pairs.append((full, str(value)))
    return pairs
