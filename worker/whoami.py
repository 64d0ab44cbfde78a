"""Who types the commands."""

import getpass
import os
import socket


def who() -> str:
    """Return user@host; a container's user may have no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
