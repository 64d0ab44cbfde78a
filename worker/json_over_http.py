"""One small JSON question over HTTP, past any proxy, for controls that listen on this machine."""

import json
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_SECONDS = 10.0


class NoAnswer(Exception):
    """Nobody answered, or not with a success and JSON."""


def ask_json(base_url: str, method: str, path: str, document: Any = None) -> Any:
    """Send one request and return the JSON of its answer. Blocks up to 10 s at each step; raises NoAnswer."""
    parts = urlsplit(base_url)
    if parts.scheme != "http" or parts.hostname is None:
        raise NoAnswer(f"{base_url!r} is no http:// address")
    connection = HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECONDS)
    try:
        body = None if document is None else json.dumps(document)
        connection.request(method, path, body=body, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
        if response.status >= 300:
            raise NoAnswer(f"{method} {path}: HTTP {response.status} {text[:200]}")
        return json.loads(text)
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{method} {base_url}{path}: {error}") from error
    finally:
        connection.close()
