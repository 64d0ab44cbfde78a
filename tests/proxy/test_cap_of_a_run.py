"""The cap in a run: what stops it, what it says then, and how it goes on."""

import asyncio
from pathlib import Path

import aiohttp
import pytest
from pydantic import SecretStr

from activities.ledger.database import open_pool
from activities.ledger.vault import VaultLedger
from activities.vault import CHARGING, RunVault
from deploy.devstack import DevStack
from tests.proxy.small_stack import RUN, books_of, command, small_stack, start_run, until
from worker.json_over_http import ask_json
from workflows.contracts import RunKey
from workflows.domain.vault_keys import Mode

LINES = 40
TOTAL_MINOR = sum(number * 100 + 50 for number in range(1, LINES + 1))
CAP_MINOR = TOTAL_MINOR * 110 // 100
ROGUE_MINOR = TOTAL_MINOR // 2


async def spend_beside_the_run(stack: DevStack) -> None:
    """Pay half of the run's total by the run's own key, as code that is broken in some new way would."""
    async with open_pool(stack.info.database_url, connections=1) as pool:
        vault = RunVault(VaultLedger(pool), secret=SecretStr(stack.info.vault_secret), mode=Mode.TEST)
        key = await vault.key_for(RunKey(run_id=RUN, account="acct_sim"), CHARGING)
    form = {
        "amount": str(ROGUE_MINOR), "currency": "usd", "customer": "cus_c1",
        "payment_method": "pm_card_visa_c1", "confirm": "true", "off_session": "true",
    }  # fmt: skip
    headers = {"Authorization": f"Bearer {key.get_secret_value()}", "Idempotency-Key": "rogue"}
    url = f"{stack.info.proxy_url}/v1/payment_intents"
    async with aiohttp.ClientSession() as session, session.post(url, data=form, headers=headers) as response:
        assert response.status == 200, await response.text()


async def money_moved(stack: DevStack) -> int:
    """Return what the simulator's book says has moved."""
    summary = await asyncio.to_thread(ask_json, stack.info.stripe_sim_url, "GET", "/_sim/book/summary")
    return int(summary["money_moved"]["usd"])


@pytest.mark.proof
@pytest.mark.timeout(240)
async def test_a_run_stops_at_its_cap_and_goes_on_after_a_raise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Money that moves beside the run stops it at the cap; after a raise it ends, and the books tell."""
    async with small_stack(tmp_path / "home", monkeypatch, rate_per_second=20) as stack:
        await start_run(stack, lines=LINES)
        await until(stack, "SELECT count(*) >= 3 FROM charges WHERE state = 'succeeded'")
        await spend_beside_the_run(stack)
        await until(stack, "SELECT hold = 'cap' FROM billing_runs")
        largest_minor = LINES * 100 + 50
        assert CAP_MINOR - largest_minor < await money_moved(stack) <= CAP_MINOR
        shown = await command(stack, "run", "show", RUN)
        assert "held (cap)" in shown.stdout, shown.stdout
        cap = f"usd={(TOTAL_MINOR + ROGUE_MINOR) / 100:.2f}"
        raised = await command(stack, "run", "raise-cap", RUN, "--cap", cap, "--reason", "looked into it")
        assert raised.returncode == 0, raised.stderr
        await until(stack, "SELECT phase = 'closed' FROM billing_runs")
        books = await books_of(stack)
    assert books["agree"] is False
    assert books["by_currency"]["usd"] == {
        "ledger_minor": TOTAL_MINOR,
        "proxy_minor": TOTAL_MINOR + ROGUE_MINOR,
        "stripe_minor": TOTAL_MINOR,
        "cap_minor": TOTAL_MINOR + ROGUE_MINOR,
    }
