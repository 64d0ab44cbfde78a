"""manifest.json: what is in a pack, with a hash of everything, itself included."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

OWN_HASH = "manifest_sha256"


def seal(document: Mapping[str, Any]) -> bytes:
    """Return the manifest as a file; its own hash, added last, is of the file that it would be without."""
    digest = hashlib.sha256(_dump(document)).hexdigest()
    return _dump({**document, OWN_HASH: digest})


def unseal(data: bytes) -> tuple[dict[str, Any], bool]:
    """Return a manifest, and whether it is byte for byte what was sealed; of what can't be read, none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}, False
    if not isinstance(document, dict):
        return {}, False
    rest = {name: value for name, value in document.items() if name != OWN_HASH}
    return document, seal(rest) == data


def _dump(document: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(document, indent=1)}\n".encode()
