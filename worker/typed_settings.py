"""What was typed where a process listens, in place of what the environment says."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

SettingsOf = TypeVar("SettingsOf", bound=BaseModel)


def type_over(settings: SettingsOf, *, listen: str | None, ready_file: Path | None) -> SettingsOf:
    """Return settings with place and ready file as typed; None leaves what was. Raises InvalidInput."""
    typed: dict[str, object] = {}
    if listen is not None:
        typed["host"], typed["port"] = read_listen(listen)
    if ready_file is not None:
        typed["ready_file"] = ready_file
    return settings.model_copy(update=typed)


def read_listen(text: str) -> tuple[str, int]:
    """Return address and port of "127.0.0.1:12112" or "[::1]:12112"; raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise InvalidInput(f"{echo(text)} is no place to listen: write 127.0.0.1:12112")
    return host, int(port)
