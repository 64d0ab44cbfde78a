"""Ports on the loopback, and nowhere else."""

import socket

LOOPBACK = "127.0.0.1"


def choose_port(preferred: int | None = None) -> int:
    """The preferred TCP port of 127.0.0.1 if nobody listens there, else a free one that the kernel picks.

    Another process may take it before it is used, so whoever starts a server there checks that it came up.
    """
    if preferred is not None and is_free(preferred):
        return preferred
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on this port of 127.0.0.1 now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an ended server in TIME_WAIT don't make a port taken, a listener does.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
