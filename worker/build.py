"""Which build of the product a worker is, for Temporal to say beside everything that the worker did."""

import hashlib
from pathlib import Path
from typing import Final

_PLACE: Final = Path(__file__).resolve().parents[1]
_PACKAGES: Final = ("workflows", "activities", "worker")


def read_build_id() -> str:
    """Return a hash of the product's own code and SQL, which differs between any two builds.

    Left to itself, the Temporal SDK reads the code of every module that was imported, most of the thousand
    of them other people's: that took a sixth of a worker's start.
    """
    digest = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((_PLACE / package).rglob("*")):
            if path.suffix in {".py", ".sql"}:
                digest.update(f"{path.relative_to(_PLACE).as_posix()}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:32]
