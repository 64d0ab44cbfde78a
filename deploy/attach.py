"""Point a command at the stack that runs on this machine, or at one that runs as long as the command does."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from deploy.stack_info import StackInfo, home_directory, inherited_environment, load_stack
from workflows.domain.errors import RefusedToStart

CONFIGURED_BY = "CHARGEONCE_DATABASE_URL"
OWNER_VARIABLE = "CHARGEONCE_OWNER_DATABASE_URL"


def attach_to_running_stack() -> StackInfo | None:
    """Put a running stack into this process's environment, unless the environment names a ledger itself."""
    if os.environ.get(CONFIGURED_BY):
        return None
    info = load_stack(home_directory())
    if info is not None:
        use_stack(info)
    return info


def need_running_stack() -> StackInfo:
    """Return the stack that runs in this home, or raise RefusedToStart that names `chargeonce dev`."""
    home = home_directory()
    info = load_stack(home)
    if info is None:
        raise RefusedToStart(f"no stack runs in {home}: start one with `chargeonce dev`")
    return info


def use_stack(info: StackInfo) -> None:
    """Replace what the environment says about Stripe and Temporal by what the stack says.

    Nothing of the user's own may stay: a live key or a cloud profile must not meet an embedded stack.
    """
    environment = inherited_environment() | info.environment()
    environment[OWNER_VARIABLE] = info.owner_database_url
    # A user's own Temporal profile is meant for another server.
    environment["TEMPORAL_CONFIG_FILE"] = os.devnull
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)


class EmbeddedStack:
    """What this layer offers to a command that finds nothing configured: see worker.environment."""

    @asynccontextmanager
    async def for_the_duration(self, source: Path) -> AsyncIterator[None]:
        """Run a stack in the usual home until the context ends.

        Its simulator gets the customers that the source names: here nobody else could have made them.
        """
        from deploy.devstack import StackOptions, running_stack  # noqa: PLC0415 - slow, and seldom needed
        from deploy.stripe_sim.client import ClientError, seed_file  # noqa: PLC0415 - see above

        home = home_directory()
        notice(f"no stack runs: bringing one up in {home} until this command ends")
        before = dict(os.environ)
        async with running_stack(home, StackOptions(on_notice=notice, headless=True)) as stack:
            try:
                use_stack(stack.info)
                try:
                    new = seed_file(stack.info.stripe_sim_url, source, None)
                except ClientError as error:
                    raise RefusedToStart(f"the simulator did not take the customers: {error}") from error
                notice(f"simulated Stripe: {new['customers']} new customers of {source.name}")
                yield
            finally:
                os.environ.clear()
                os.environ.update(before)


def notice(text: str) -> None:
    """Say something about the stack that is no command's result."""
    print(text, file=sys.stderr, flush=True)
