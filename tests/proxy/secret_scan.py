"""Looks for secrets wherever a stack writes: logs, crash output, the database, Temporal's histories."""

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr
from temporalio.client import Client

from activities.ledger.database import open_pool
from activities.ledger.vault import KeyUse, VaultLedger
from activities.vault import CHARGING, PLANNING, PREVIEWING, READING, RECONCILING, RunVault
from deploy.postgres_programs import find_program
from deploy.stack_info import StackInfo
from workflows.contracts import RunKey
from workflows.domain.vault_keys import Mode, parse_vault_key

Places = Mapping[str, bytes]
"""What was written, by where it was found."""

# Files of a home that are there to keep secrets, each readable by its owner alone.
KEPT_SECRET = frozenset({"stripe_secret_key", "vault_secret", "stack.json", "passwords.json"})
# Stripe's own side, and PostgreSQL's own files: what those hold of the ledger is read from the dump.
NOT_OURS = frozenset({"simulator", "postgres", "temporal"})

SILENCE_SECONDS = 0.5


def read_logs(home: Path) -> Places:
    """Return every file that a stack has left in its home, but for those that keep secrets."""
    files = (path for path in home.rglob("*") if path.is_file())
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in files
        if path.name not in KEPT_SECRET and path.relative_to(home).parts[0] not in NOT_OURS
    }


def dump_database(info: StackInfo) -> Places:
    """Return the whole ledger as text."""
    command = [str(find_program("pg_dump")), "--dbname", info.owner_database_url]
    dumped = subprocess.run(command, check=True, capture_output=True)
    return {"database": dumped.stdout}


async def read_histories(client: Client) -> dict[str, bytes]:
    """Return every event of every workflow, payloads in clear."""
    places: dict[str, bytes] = {}
    async for execution in client.list_workflows():
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        events = [event.SerializeToString() async for event in handle.fetch_history_events()]
        places[f"history of {execution.id} {execution.run_id}"] = b"\n".join(events)
    return places


async def secrets_of(info: StackInfo, stripe_key: str) -> dict[str, bytes]:
    """Return every secret of a stack by its name: Stripe key, vault secret, vault keys, passwords."""
    named = {"Stripe key": stripe_key, "vault secret": info.vault_secret}
    passwords = json.loads((info.home / "postgres" / "passwords.json").read_text())
    named |= {f"password of {role}": password for role, password in passwords.items()}
    async for key_id, key in _vault_keys(info):
        named[f"vault key {key_id}"] = key
    return {name: secret.encode() for name, secret in named.items()}


def find_secrets(secrets: Mapping[str, bytes], places: Places) -> list[str]:
    """Return where which secret stands, as it is or as a Basic authorization would carry it."""
    return [
        f"{name} in {place}"
        for name, secret in secrets.items()
        for place, written in places.items()
        if any(form in written for form in _forms(secret))
    ]


def malformed_requests(key: str) -> dict[str, bytes]:
    """Return requests that are hardly HTTP, each with a key where a server might repeat it."""
    bearer = f"Authorization: Bearer {key}"
    post = f"POST / HTTP/1.1\r\nHost: x\r\n{bearer}\r\n"
    heads = {
        "line feeds alone": f"GET /v1/account HTTP/1.1\nHost: x\n{bearer}\n\n",
        "a control after the key": f"GET / HTTP/1.1\r\nHost: x\r\n{bearer}\x01\r\n\r\n",
        "a control in the path": f"GET /{key}\x01 HTTP/1.1\r\nHost: x\r\n\r\n",
        "the key as method": f"{key} / HTTP/1.1\r\nHost: x\r\n\r\n",
        "no version": f"GET /{key}\r\n\r\n",
        "another version": f"GET / {key}/1.1\r\n\r\n",
        "a header without a colon": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization {key}\r\n\r\n",
        "the key as header": f"GET / HTTP/1.1\r\nHost: x\r\n{key} : x\r\n\r\n",
        "a header too long": f"GET / HTTP/1.1\r\nHost: x\r\n{bearer}{'x' * 20_000}\r\n\r\n",
        "a folded header": f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n {key}\r\n\r\n",
        "a length that is none": f"{post}Content-Length: {key}\r\n\r\n",
        "a chunk that is none": f"{post}Transfer-Encoding: chunked\r\n\r\n{key}\r\n",
        "a coding that is none": f"{post}Transfer-Encoding: {key}\r\n\r\n",
        "a body that is no gzip": f"{post}Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n{key[:5]}",
        "an expectation": f"{post}Expect: {key}\r\nContent-Length: 0\r\n\r\n",
        "CONNECT": f"CONNECT {key}:443 HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n",
        "OPTIONS *": f"OPTIONS * HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n",
        "OPTIONS * that expects": f"OPTIONS * HTTP/1.1\r\nHost: x\r\nExpect: {key}\r\n\r\n",
        "a URL that is none": f"GET http://{key}@x:99999999/ HTTP/1.1\r\nHost: x\r\n\r\n",
        "HTTP/2": f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{key}",
        "garbage behind a request": f"GET /{key} HTTP/1.1\r\nHost: x\r\n\r\n{key}\x01\r\n\r\n",
        "garbage behind an upgrade": "GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n"
        f"Upgrade: {key}\r\n\r\n{key}\n\n",
        "a TLS hello": f"\x16\x03\x01\x02\x00\x01\x00\x01\xfc{key}\r\n\r\n",
    }
    return {name: head.encode("latin-1") for name, head in heads.items()}


async def send_raw(url: str, request: bytes) -> bytes:
    """Send bytes and return what comes back until the server closes, or says no more."""
    parts, answered = urlsplit(url), b""
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(request)
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                if not (chunk := await reader.read(65_536)):
                    return answered
            answered += chunk
    except (TimeoutError, ConnectionError):
        return answered
    finally:
        writer.close()


def _forms(secret: bytes) -> Iterator[bytes]:
    yield secret
    yield base64.b64encode(secret + b":").rstrip(b"=")[:-1]
    yield secret.hex().encode()


async def _vault_keys(info: StackInfo) -> AsyncIterator[tuple[str, str]]:
    """Derive every key that the ledger says was issued, and see that there is none that can't be derived."""
    async with open_pool(info.database_url, connections=1) as pool:
        rows = await pool.fetch("SELECT key_id, run_id, account, label, serial FROM vault_keys")
        vault = RunVault(VaultLedger(pool), secret=SecretStr(info.vault_secret), mode=Mode.TEST)
        for row in rows:
            run = RunKey(run_id=row["run_id"] or "", account=row["account"])
            key = vault._derive(run, _use(row["label"]), row["serial"]).get_secret_value()
            known = parse_vault_key(key)
            assert known is not None
            assert known.key_id == row["key_id"]
            yield row["key_id"], key


def _use(name: str) -> KeyUse:
    uses: Iterable[KeyUse] = (CHARGING, PLANNING, PREVIEWING, READING, RECONCILING)
    [use] = [use for use in uses if use.name == name]
    return use
