"""`chargeonce verify` and `chargeonce explain`: what happened, proved against Stripe and told from the journal."""

import typer

from activities.gateway.stripe_gateway import StripeGateway
from activities.ledger.database import open_pool
from activities.verify import VerifyReport, verify_run
from worker.console_output import Output
from worker.environment import load_settings
from worker.failures import EXIT_DRIFT
from worker.settings import Settings


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
        StripeGateway(
            api_key=settings.stripe_secret_key.get_secret_value(),
            api_base=settings.stripe_api_base,
            timeout_seconds=settings.timeout_seconds,
        ) as gateway,
    ):
        return await verify_run(pool, gateway, run_id)
