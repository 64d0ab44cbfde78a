"""Where commands keep what must outlive them."""

import os
from pathlib import Path

HOME_VARIABLE = "CHARGEONCE_HOME"


def state_folder() -> Path:
    """Return $CHARGEONCE_HOME, else `chargeonce` in the user's state folder; it may not be there yet.

    The state folder is XDG_STATE_HOME or ~/.local/state (XDG base directory specification).
    """
    chosen = os.environ.get(HOME_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().resolve()
    above = os.environ.get("XDG_STATE_HOME")
    return (Path(above) if above else Path.home() / ".local" / "state") / "chargeonce"
