"""A folder that is there whole, or not at all: filled beside its place under another name, then renamed.

Whoever ends by an exception, Ctrl-C included, leaves nothing. Whoever is killed leaves a hidden folder, which
the next export to the same place removes: nobody holds its lock any more.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput

FOLDER_MODE = 0o700
_NAME_CHARACTERS_MAX = 100


def refuse_unusable(out: Path) -> None:
    """Raise InvalidInput where no folder can be put, said before the work and not after it."""
    named, parent = echo(str(out)), out.absolute().parent
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InvalidInput(f"{named} is there, and no folder: name a folder that is not there yet")
    if out.is_dir() and any(out.iterdir()):
        raise InvalidInput(
            f"{named} is there and not empty: name a folder that is not there yet, or move this one away "
            "(a pack is never written over another)"
        )
    if not parent.is_dir():
        raise InvalidInput(f"{named} can't be made: there is no folder {echo(str(parent))}, so make it first")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InvalidInput(f"{named} can't be made: the folder that it would be in can't be written to")


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block ends well, and vanishes when it does not.

    Raises:
        InvalidInput: `out` can't be used, or somebody has filled it meanwhile.
    """
    refuse_unusable(out)
    place = out.absolute()
    prefix = f".{place.name[:_NAME_CHARACTERS_MAX]}.partial-"
    try:
        _remove_left_behind(place.parent, prefix)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place.parent))
    except OSError as error:
        raise InvalidInput(f"{echo(str(out))} can't be made: {error.strerror}") from None
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.chmod(FOLDER_MODE)
            yield folder
            os.fsync(lock)
            _publish(folder, place, out)
        finally:
            os.close(lock)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _publish(folder: Path, place: Path, out: Path) -> None:
    try:
        folder.rename(place)  # over an empty folder too, and over nothing else
    except OSError as error:
        reason = str(error.strerror).lower()
        raise InvalidInput(f"{echo(str(out))} can't be made: {reason}") from None
    parent = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def _remove_left_behind(parent: Path, prefix: str) -> None:
    for left in parent.glob(f"{_escape(prefix)}*"):
        try:
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # somebody is still writing it
        finally:
            os.close(lock)


def _escape(name: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)
