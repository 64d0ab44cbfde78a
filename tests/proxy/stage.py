"""A simulator, a ledger and a proxy in front of them, in the test's own event loop."""

import json
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
import asyncpg

from deploy.postgres import Database
from deploy.stripe_sim.testing import RunningSim, running_sim
from worker.proxy.server import open_proxy
from worker.proxy.settings import ProxySettings
from workflows.domain.vault import ENDPOINTS
from workflows.domain.vault_keys import Mode, parse_vault_key, random_vault_key

REAL_KEY = "sk_test_theRealOne"
ACCOUNT = "acct_sim"
CUSTOMER, CARD = "cus_1", "pm_card_visa_1"
EVERYTHING = tuple(ENDPOINTS)

ISSUE = """
INSERT INTO vault_keys (key_id, key_sha256, scope, run_id, account, mode, allow, budget, issued_at, issued_by,
                        expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, ledger_now(), 'a test', ledger_now() + $9 * interval '1 second')
"""


@dataclass(frozen=True)
class Said:
    """An answer as the caller saw it."""

    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def code(self) -> str | None:
        """The error's code."""
        return (
            self.body["error"].get("code") if isinstance(self.body, dict) and "error" in self.body else None
        )


class Caller:
    """Calls with one key, one request on the wire per call."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session = session
        self.url = url
        self.key = key

    async def post(
        self, path: str, parameters: Mapping[str, object] | str | None = None, **headers: str
    ) -> Said:
        """POST a form; `Idempotency_Key="k"` sets the header `Idempotency-Key`."""
        body = parameters if isinstance(parameters, str) else urlencode(parameters or {})
        return await self.send("POST", path, body, **headers)

    async def get(self, path: str, **headers: str) -> Said:
        """GET."""
        return await self.send("GET", path, None, **headers)

    async def send(self, method: str, path: str, body: str | None, **headers: str) -> Said:
        """Send a request."""
        fields = {"Authorization": f"Bearer {self.key}"}
        if body is not None:
            fields["Content-Type"] = "application/x-www-form-urlencoded"
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.request(
            method, self.url + path, data=body, headers=fields, allow_redirects=False
        ) as response:
            text = (await response.read()).decode(errors="replace")
            try:
                document = json.loads(text)
            except ValueError:
                document = text
            return Said(response.status, dict(response.headers), document)

    async def create(self, amount: int = 1_000, *, key: str, **parameters: object) -> Said:
        """Create a PaymentIntent for the customer, ready to be confirmed."""
        fields = {"amount": amount, "currency": "usd", "customer": CUSTOMER, "payment_method": CARD}
        return await self.post("/v1/payment_intents", fields | parameters, Idempotency_Key=key)

    async def confirm(self, intent: str, *, key: str, card: str = CARD) -> Said:
        """Confirm a PaymentIntent off session."""
        return await self.post(
            f"/v1/payment_intents/{intent}/confirm",
            {"off_session": "true", "payment_method": card},
            Idempotency_Key=key,
        )

    async def pay(self, amount: int = 1_000, *, name: str, card: str = CARD) -> Said:
        """Create and confirm."""
        made = await self.create(amount, key=f"create_{name}", payment_method=card)
        return await self.confirm(made.body["id"], key=f"confirm_{name}", card=card)


@dataclass
class Stage:
    """What a test of the proxy has in its hands."""

    database: Database
    sim: RunningSim
    url: str
    session: aiohttp.ClientSession

    def caller(self, key: str, url: str | None = None) -> Caller:
        """Return a caller with this key."""
        return Caller(self.session, url or self.url, key)

    async def issue(self, caps: Mapping[str, int] | None = None, **fields: Any) -> str:
        """Issue a key; see `issue`."""
        return await issue(self.database, caps, **fields)

    async def caller_with(self, caps: Mapping[str, int] | None = None, **fields: Any) -> Caller:
        """Issue a key and return a caller with it."""
        return self.caller(await self.issue(caps, **fields))

    async def fetch(self, query: str, *arguments: object) -> list[Any]:
        """Read the ledger."""
        connection = await asyncpg.connect(self.database.owner_url)
        try:
            return list(await connection.fetch(query, *arguments))
        finally:
            await connection.close()

    async def standing(self) -> dict[str, Any]:
        """The one budget there is."""
        rows = await self.fetch("SELECT * FROM vault_standing")
        assert len(rows) == 1
        return dict(rows[0])

    async def settled_standing(self) -> dict[str, Any]:
        """The one budget, once every answer that came has been recorded."""
        waiting = 1
        while waiting:
            async with self.session.get(f"{self.url}/_proxy/health") as response:
                waiting = (await response.json())["unrecorded"]
        return await self.standing()


async def issue(
    database: Database,
    caps: Mapping[str, int] | None = None,
    *,
    scope: str = "custom",
    allow: tuple[str, ...] = EVERYTHING,
    account: str = ACCOUNT,
    mode: Mode = Mode.TEST,
    daily: bool = False,
    expires_in_seconds: float = 86_400.0,
    run_id: str | None = None,
    budget: str | None = None,
) -> str:
    """Issue a key with a budget of its own; without caps it moves no money."""
    key = random_vault_key(mode, secrets.token_bytes(64))
    known = parse_vault_key(key)
    assert known is not None
    connection = await asyncpg.connect(database.owner_url)
    try:
        await connection.execute(
            ISSUE,
            *(known.key_id, known.sha256, scope, run_id, account, mode.value, list(allow)),
            budget or (known.key_id if caps is not None else None),
            expires_in_seconds,
        )
        for currency, cap in (caps or {}).items():
            await connection.execute(
                "INSERT INTO vault_budgets (budget, currency, cap_minor, daily) VALUES ($1, $2, $3, $4)",
                *(known.key_id, currency, cap, daily),
            )
    finally:
        await connection.close()
    return key


def proxy_settings(database: Database, sim_url: str, **changes: Any) -> ProxySettings:
    """Settings of a proxy that never sweeps by itself."""
    fields: dict[str, Any] = {
        "database_url": database.proxy_url,
        "stripe_secret_key": REAL_KEY,
        "stripe_api_base": sim_url,
        "sweep_seconds": 0,
        "timeout_seconds": 5,
    }
    return ProxySettings(**(fields | changes))


@asynccontextmanager
async def open_stage(database: Database, **changes: Any) -> AsyncIterator[Stage]:
    """Yield a stage with one customer who has a good card."""
    async with (
        running_sim() as sim,
        open_proxy(proxy_settings(database, sim.url, **changes)) as (url, _),
        aiohttp.ClientSession() as session,
    ):
        sim.seed(CUSTOMER, CARD, "pm_card_chargeCustomerFail_1")
        yield Stage(database, sim, url, session)
