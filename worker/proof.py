"""`chargeonce verify` and `explain`: what happened, proved against Stripe and told from the journal."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from activities.explain import ChargeStory, explain_charge
from activities.ledger.audit import read_audited_run
from activities.ledger.database import open_pool
from activities.vault import READING
from activities.verify import verify_run
from activities.verify_report import VerifyReport
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_DRIFT
from worker.settings import Settings
from worker.wiring import open_accounts
from workflows.contracts import RunKey
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType


async def verify(output: Output, run_id: str) -> None:
    """Print the comparison of ledger and Stripe.

    Raises:
        typer.Exit: 3: something differs, or could not be read, so nothing is proved.
        RefusedToStart: There is no such run, or Stripe does not know the key.
    """
    report = await verified(load_settings(), run_id)
    output.result({"run": run_id, **report.as_json()}, lambda: [report.as_text()])
    if not report.clean:
        raise typer.Exit(EXIT_DRIFT)


async def verified(settings: Settings, run_id: str) -> VerifyReport:
    """Return the comparison. Only reads, at Stripe too."""
    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        run = await read_audited_run(pool, run_id)
        parts = await accounts.of(RunKey(run_id=run_id, account=run.account), READING)
        return await verify_run(pool, parts.gateway, run_id)


async def explain(output: Output, wanted: str, *, run_id: str | None) -> None:
    """Print a charge's story. Raises InvalidInput where `wanted` names none, or more than one."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        story = await explain_charge(pool, wanted, run_id=run_id)
    output.result(story.as_json(), lambda: _render_story(story))


def _render_story(story: ChargeStory) -> Iterable["RenderableType"]:
    amount = format_money(story.amount_minor, story.currency)
    yield f"{story.charge_id}: {amount} of {story.customer}, {story.line} {story.period}, {story.state}"
    rows = [
        (f"{event.at:%Y-%m-%d %H:%M:%S.%f}"[:-3], event.kind.value, f"{'! ' * event.alarm}{event.summary}")
        for event in story.events
    ]
    yield table(("ledger's clock", "", "what happened"), rows)
    yield f"next: {story.next_step}"
