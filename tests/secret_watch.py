"""Watches the whole suite for secrets: no key may stand in what any process, database or workflow wrote.

A pytest plugin. It knows keys by their shape, so whatever key a test invents is one: a Stripe key, a whole
vault key or a webhook secret, as it is, in hexadecimal, or as a Basic authorization carries it. After each
test it looks through the files that the test left and what was captured of its output, before a database is
dropped through all its rows, and before a Temporal server stops through all histories. A test that plants a
secret on purpose is marked `plants_secrets`.
"""

import re
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest
from temporalio.client import Client

from deploy.postgres import PostgresServer

MARK: Final = "plants_secrets"
SHOWN_CHARACTERS: Final = 14  # of a find: enough to know which it is

_SHAPES: Final = (
    r"\b[sr]k_(?:test|live)_[0-9A-Za-z_]{5}"
    r"|\bvk_(?:test|live)_[0-9A-Za-z]{20}"
    r"|\bwhsec_[0-9A-Za-z+/]{16}"
    r"|\b(?:c2tf|cmtf|dmtf)(?:dGVzdF|bGl2ZV)[0-9A-Za-z+/]{16}"
    r"|7[236]6b5f(?:74657374|6c697665)5f[0-9a-f]{24}"
)
_PATTERN: Final = re.compile(_SHAPES.encode())
# What a find can't be without, found much faster than the pattern.
_TRACES: Final = (
    b"k_test_",
    b"k_live_",
    b"whsec_",
    b"tfdGVzdF",
    b"tfbGl2ZV",
    b"6b5f746573745f",
    b"6b5f6c6976655f",
)
# What PostgreSQL calls the beginning of a word.
_SQL_PATTERN: Final = _SHAPES.replace(r"\b", r"\m")

# Files that are there to keep secrets, readable by their owner alone, and what tests write as input.
_KEPT_SECRET: Final = frozenset({"stripe_secret_key", "vault_secret", "stack.json", "passwords.json"})
_INPUTS: Final = frozenset({".csv", ".jsonl", ".parquet", ".py", ".sql", ".toml", ".key"})
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
# Stripe's own side, and what only looks like a place to write to.
_PASSED_OVER: Final = frozenset({"simulator", "__pycache__"})

_QUERY: Final = """
SELECT string_agg(format('SELECT %L, t::text FROM %I.%I t WHERE t::text ~ $1', c.relname, n.nspname,
                         c.relname), ' UNION ALL ')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND n.nspname = 'public' AND pg_relation_size(c.oid) > 0
"""


class SecretFound(Exception):
    """A key stands where none may; the message says where, and shows no more of it than its beginning."""


def find_secrets(written: bytes) -> list[str]:
    """Return the beginnings of what looks like a key."""
    if not any(trace in written for trace in _TRACES):
        return []
    found = {match.group()[:SHOWN_CHARACTERS].decode("ascii") for match in _PATTERN.finditer(written)}
    return sorted(found)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", f"{MARK}: writes secrets where none may stand, and shows that it is seen"
    )


def refuse_secrets_in_files(folder: Path, *, passed_over: frozenset[str] = _PASSED_OVER) -> None:
    """Raise SecretFound where a file below a folder holds a key; also the raw data of servers."""
    refuse_secrets(_read_files(folder, passed_over))


def refuse_secrets(places: Iterable[tuple[str, bytes]]) -> None:
    """Raise SecretFound where one of these texts holds a key."""
    hits = [f"{begins}... in {place}" for place, written in places for begins in find_secrets(written)]
    if hits:
        raise SecretFound(f"secrets were written: {', '.join(hits[:10])}")


async def refuse_secrets_in_database(server: PostgresServer, name: str) -> None:
    """Raise SecretFound where a row of a database holds a key."""
    connection = await server.connect_superuser(name)
    try:
        query = await connection.fetchval(_QUERY)
        rows = [] if query is None else await connection.fetch(query, _SQL_PATTERN)
    except asyncpg.PostgresError as error:  # a test may have broken what it owns
        raise SecretFound(f"database {name} can't be looked through: {error}") from error
    finally:
        await connection.close(timeout=10)
    refuse_secrets((f"table {row[0]} of database {name}", row[1].encode()) for row in rows)


async def refuse_secrets_in_histories(address: str) -> None:
    """Raise SecretFound where an event of any workflow of a Temporal server holds a key."""
    client = await Client.connect(address)
    found: list[tuple[str, bytes]] = []
    async for execution in client.list_workflows():
        handle = client.get_workflow_handle(execution.id, run_id=execution.run_id)
        async for event in handle.fetch_history_events():
            written = event.SerializeToString()
            if find_secrets(written):
                found.append((f"history of {execution.id}", written))
    refuse_secrets(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Look through what a test left in its folder, once its processes have ended."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    result = yield
    if folder is not None and not item.get_closest_marker(MARK):
        refuse_secrets_in_files(folder)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Look through what was captured of a test that passed: a failing one shows its own source."""
    report = yield
    if report.passed and not item.get_closest_marker(MARK):
        try:
            refuse_secrets((name, text.encode(errors="replace")) for name, text in report.sections)
        except SecretFound as found:
            report.outcome, report.longrepr = "failed", f"{item.nodeid}: {found}"
    return report


def _read_files(folder: Path, passed_over: frozenset[str]) -> Iterator[tuple[str, bytes]]:
    for path in _walk(folder, passed_over):
        if path.name in _KEPT_SECRET or path.suffix in _INPUTS:
            continue
        try:
            if path.stat().st_size <= _FILE_BYTES_MAX:
                yield str(path.relative_to(folder)), path.read_bytes()
        except OSError:  # gone, or not ours to read
            continue


def _walk(folder: Path, passed_over: frozenset[str]) -> Iterator[Path]:
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            continue
        if entry.is_dir():
            if entry.name not in passed_over:
                yield from _walk(entry, passed_over)
        elif entry.is_file():
            yield entry
