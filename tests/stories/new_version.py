"""A second version of the product on disk, as a deploy would put it there."""

import shutil
import sys
from pathlib import Path

from tests.forking import CHECKOUT

PACKAGES = ("workflows", "activities", "worker", "deploy")
REASON = 'reason="planned"'
REASON_OF_VERSION_2 = "planned, sent by version 2"


def build_version_2(folder: Path) -> tuple[str, ...]:
    """Copy the product with another reason in the journal of its creates; return its worker's command."""
    for package in PACKAGES:
        shutil.copytree(CHECKOUT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    carry = folder / "activities" / "carry.py"
    source = carry.read_text(encoding="utf-8")
    assert source.count(REASON) == 1
    carry.write_text(source.replace(REASON, f'reason="{REASON_OF_VERSION_2}"'), encoding="utf-8")
    return ("env", f"PYTHONPATH={folder}", sys.executable, "-P", "-m", "worker")
