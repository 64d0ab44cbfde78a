"""Settings for a command, or one clear refusal that names what is missing."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from workflows.domain.errors import RefusedToStart

if TYPE_CHECKING:
    from worker.settings import LedgerSettings, Settings

NOTHING_RUNS = (
    "nothing to work with: start a stack with `chargeonce dev`, or set CHARGEONCE_DATABASE_URL, "
    "TEMPORAL_ADDRESS, and CHARGEONCE_PROXY_URL with CHARGEONCE_VAULT_SECRET (or, without a backstop, "
    "STRIPE_SECRET_KEY)"
)
NO_LEDGER = (
    "CHARGEONCE_DATABASE_URL is not set: where the ledger is, as the workers' role, such as "
    "postgresql://chargeonce:...@127.0.0.1/ledger (or start a stack with `chargeonce dev`)"
)
NO_OWNER = (
    "say where the ledger is, as the owner of its schema: --database-url or CHARGEONCE_OWNER_DATABASE_URL, "
    "such as postgresql://owner:...@127.0.0.1/ledger (or start a stack with `chargeonce dev`)"
)

Kind = TypeVar("Kind", bound="LedgerSettings")


class Surroundings(Protocol):
    """What the layer above offers to a command that finds nothing configured."""

    def for_the_duration(self, source: Path) -> AbstractAsyncContextManager[None]:
        """Bring up what `load_settings` needs, for a run over `source`, until the context ends."""


def load_settings(*, live: bool = False) -> "Settings":
    """Return the settings of the environment; `live` says that real money may move.

    Raises:
        RefusedToStart: Nothing is configured, or a value can't be right. Values are never repeated: they may
            be secrets.
    """
    from worker.settings import Settings  # noqa: PLC0415 - slow to import, and --help needs none of it

    settings = _read(Settings, NOTHING_RUNS)
    if settings.proxy_url is None:
        settings.need_stripe_key()
    else:
        settings.need_vault_secret()
    return settings.model_copy(update={"live": True}) if live else settings


def load_ledger_settings() -> "LedgerSettings":
    """Return the settings of a command for which the ledger is enough: no key and no Temporal is asked for.

    Raises:
        RefusedToStart: No ledger is named, or a value can't be right.
    """
    from worker.settings import LedgerSettings  # noqa: PLC0415 - see above

    return _read(LedgerSettings, NO_LEDGER)


def is_configured() -> bool:
    """Return whether `load_settings` would find anything."""
    try:
        load_settings()
    except RefusedToStart as refusal:
        return str(refusal) != NOTHING_RUNS
    return True


def _read(kind: type[Kind], without_ledger: str) -> Kind:
    from pydantic import ValidationError  # noqa: PLC0415 - see above

    try:
        return kind()
    except ValidationError as error:
        faults = {str(part["loc"][0]): part["type"] for part in error.errors() if part["loc"]}
        wrong = [_variable_of(name) for name, kind in faults.items() if kind != "missing"]
        missing = [_variable_of(name) for name, kind in faults.items() if kind == "missing"]
        if wrong:
            raise RefusedToStart(f"the value of {', '.join(wrong)} can't be right") from None
        if "CHARGEONCE_DATABASE_URL" in missing:
            raise RefusedToStart(without_ledger) from None
        raise RefusedToStart(f"{', '.join(missing)} is not set") from None


def _variable_of(location: str) -> str:
    name = location.upper()
    return name if name.startswith(("STRIPE_", "CHARGEONCE_")) else f"CHARGEONCE_{name}"
