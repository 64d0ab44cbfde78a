"""`chargeonce verify` and `explain`: what happened, proved against Stripe and told from the journal."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import typer

from activities.explain import ChargeStory, explain_line
from activities.ledger.audit import read_accounts, read_audited_run
from activities.ledger.clock import read_clock
from activities.ledger.database import open_pool
from activities.ledger.story import SkippedRow
from worker.audit_read import read_since
from worker.console_output import Output, table
from worker.environment import load_settings
from worker.failures import EXIT_DRIFT
from worker.plan_preview import REASONS
from worker.settings import Settings
from workflows.domain.errors import RefusedToStart
from workflows.domain.money import format_money

if TYPE_CHECKING:
    from rich.console import RenderableType

    from activities.verify_report import VerifyReport

WORST_LAST = ("clean", "incomplete", "differences")


@dataclass(frozen=True, slots=True)
class Scope:
    """What is verified: a run, an account's runs, or (with neither) those of every account in the ledger.

    `since` (an age such as 90d, or a time) leaves out runs that were locked before.
    """

    run_id: str | None = None
    account: str | None = None
    since: str | None = None


async def verify(output: Output, scope: Scope) -> None:
    """Print the comparison of ledger and Stripe, for each account that is meant.

    Raises:
        typer.Exit: 3: something differs, or could not be read, so nothing is proved.
        InvalidInput: `since` is neither an age nor a time.
        RefusedToStart: There is no such run, or Stripe does not know the key.
    """
    reports = await verified(load_settings(), scope)
    if scope.run_id is not None:
        document = {"run": scope.run_id, **reports[0].as_json()}
    else:
        document = {
            "verify": max((report.verdict for report in reports), key=WORST_LAST.index),
            "clean": all(report.clean for report in reports),
            "accounts": [report.as_json() for report in reports],
        }
    output.result(document, lambda: [report.as_text() for report in reports])
    if not document["clean"]:
        raise typer.Exit(EXIT_DRIFT)


async def verified(settings: Settings, scope: Scope) -> list["VerifyReport"]:
    """Return a comparison for each account that is meant, at least one. Only reads, at Stripe too."""
    # `explain` asks nobody but the ledger, and what speaks Stripe is slow to import.
    from activities.vault import READING  # noqa: PLC0415 - see above
    from activities.verify import verify_account, verify_run  # noqa: PLC0415 - see above
    from worker.wiring import open_accounts  # noqa: PLC0415 - see above
    from workflows.contracts import RunKey  # noqa: PLC0415 - see above

    async with (
        open_pool(settings.database_url.get_secret_value(), connections=2) as pool,
        open_accounts(settings, pool) as accounts,
    ):
        if scope.run_id is not None:
            run = await read_audited_run(pool, scope.run_id)
            parts = await accounts.of(RunKey(run_id=scope.run_id, account=run.account), READING)
            return [await verify_run(pool, parts.gateway, scope.run_id)]
        since = None
        if scope.since is not None:
            clock = await read_clock(settings.database_url.get_secret_value())
            since = read_since(scope.since, now=clock.now)
        names = [scope.account] if scope.account else await read_accounts(pool, since=since)
        if not names:
            raise RefusedToStart("the ledger has no run to verify")
        reports = []
        for name in names:
            parts = await accounts.of(RunKey(run_id="", account=name), READING)
            reports.append(await verify_account(pool, parts.gateway, name, since=since))
        return reports


async def explain(output: Output, wanted: str, *, run_id: str | None) -> None:
    """Print a charge's story. Raises InvalidInput where `wanted` names none, or more than one."""
    settings = load_settings()
    async with open_pool(settings.database_url.get_secret_value(), connections=2) as pool:
        found = await explain_line(pool, wanted, run_id=run_id)
    if isinstance(found, ChargeStory):
        output.result(found.as_json(), lambda: render_story(found, run_id=run_id))
    else:
        output.result({"skipped": [asdict(row) for row in found]}, lambda: render_skipped(found))


def render_skipped(rows: Sequence[SkippedRow]) -> Iterable["RenderableType"]:
    """Yield why rows of a source became no charge, and where the line is charged if another run has it."""
    for row in rows:
        words = REASONS.get(row.reason)
        name = f"{row.customer}/{row.line}" if row.line else str(row.customer)
        yield (
            f"{name}: row {row.source_row} of {row.run_id} is not charged by it: {row.reason}"
            f"{f' ({words})' if words else ''}{f'; {row.detail}' if row.detail else ''}"
        )


def render_story(story: ChargeStory, *, run_id: str | None = None) -> Iterable["RenderableType"]:
    """Yield a charge's story; `run_id` is the run it was looked for in, which may not have it any more."""
    amount = format_money(story.amount_minor, story.currency)
    why = f": {story.reason}" if story.reason else ""
    words = REASONS.get(story.reason or "")
    yield (
        f"{story.charge_id}: {amount} of {story.customer}, {story.line} {story.period}, "
        f"{story.state}{why}{f' ({words})' if words else ''}"
    )
    if run_id is not None and story.run_id != run_id:
        yield f"{run_id} does not have it any more: {story.run_id} has taken it over"
    rows = [
        (f"{event.at:%Y-%m-%d %H:%M:%S.%f}"[:-3], event.kind.value, f"{'! ' * event.alarm}{event.summary}")
        for event in story.events
    ]
    yield table(("ledger's clock", "", "what happened"), rows)
    yield f"next: {story.next_step}"
