"""A result written to a file whole, or not at all."""

import os
import tempfile
from pathlib import Path

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput


def refuse_unwritable(path: Path) -> None:
    """Raise InvalidInput where `write_whole` could write no file: said before the work, not after it."""
    named, folder = echo(str(path)), path.resolve().parent
    if path.exists() and not path.is_file():
        raise InvalidInput(f"{named} can't be written: it is there, and no file")
    if not folder.is_dir():
        raise InvalidInput(f"{named} can't be written: there is no such folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InvalidInput(f"{named} can't be written: its folder can't be written to")


def write_whole(path: Path, text: str) -> None:
    """Write UTF-8 beside the file and rename: whatever ends us, readers see the old file or the new one.

    A new file is its owner's alone, since it names customers. Raises InvalidInput where it can't be written;
    what was there before still is.
    """
    refuse_unwritable(path)
    place = path.resolve()
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{place.name[:100]}.", dir=place.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8", "backslashreplace"))  # names may hold lone surrogates
                file.flush()
                os.fsync(file.fileno())
            Path(draft).replace(place)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InvalidInput(f"{echo(str(path))} can't be written: {error.strerror}") from None
