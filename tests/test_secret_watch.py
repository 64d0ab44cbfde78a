"""The suite is watched for secrets: what is found, what is not, and wherever it may be written."""

import base64
from pathlib import Path

import pytest

from deploy.postgres import Database, PostgresServer
from tests.ledger.planting import run_as_owner
from tests.secret_watch import (
    SecretFound,
    find_secrets,
    refuse_secrets_in_database,
    refuse_secrets_in_files,
)
from workflows.domain.vault_keys import CHANCE_BYTES, Mode, parse_vault_key, random_vault_key

VAULT_KEY = random_vault_key(Mode.TEST, b"0123456789abcdef" * (CHANCE_BYTES // 16))
STRIPE_KEY = "sk_test_synthetic0Key"
KEYS = (VAULT_KEY, STRIPE_KEY, "rk_live_synthetic0Key", "whsec_synthetic0secret0of0a0hook")


@pytest.mark.parametrize("key", KEYS)
def test_a_key_is_found_in_whatever_surrounds_it(key: str) -> None:
    """In JSON, in a log line, at the very end."""
    for text in (f'{{"key": "{key}"}}', f"... Bearer {key}\n", key):
        assert find_secrets(text.encode()), text


@pytest.mark.parametrize("key", [VAULT_KEY, STRIPE_KEY])
def test_a_key_is_found_in_disguise(key: str) -> None:
    """As a Basic authorization carries it, and in hexadecimal."""
    assert find_secrets(b"Basic " + base64.b64encode(f"{key}:".encode()))
    assert find_secrets(key.encode().hex().encode())


def test_what_is_public_is_no_secret() -> None:
    """Public ids of vault keys, keys that were blanked out, and the mere beginning of one."""
    known = parse_vault_key(VAULT_KEY)
    assert known is not None
    for text in (known.key_id, "sk_test_***", "begins with sk_test_ or rk_test_", f"{known.key_id}***"):
        assert find_secrets(text.encode()) == []


@pytest.mark.plants_secrets
def test_a_file_that_was_left_is_looked_through(tmp_path: Path) -> None:
    """A log in any folder; not the files that are there to keep secrets."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "vault_secret").write_text(STRIPE_KEY)
    refuse_secrets_in_files(tmp_path)
    (tmp_path / "logs" / "worker.log").write_text(f"POST with {VAULT_KEY}\n")
    with pytest.raises(SecretFound, match=r"vk_test_\w{6}\.\.\. in logs/worker.log") as found:
        refuse_secrets_in_files(tmp_path)
    assert VAULT_KEY not in str(found.value)


@pytest.mark.parametrize("kind", ["text", "jsonb", "bytea"])
async def test_every_row_of_a_database_is_looked_through(
    postgres_server: PostgresServer, database: Database, kind: str
) -> None:
    """Whatever the table and the type of its column."""
    written = f'"{VAULT_KEY}"' if kind == "jsonb" else VAULT_KEY
    await run_as_owner(database, f"CREATE TABLE planted (value {kind})")
    await run_as_owner(database, f"INSERT INTO planted VALUES ('{written}')")
    with pytest.raises(SecretFound, match="in table planted of"):
        await refuse_secrets_in_database(postgres_server, database.name)
    await run_as_owner(database, "DROP TABLE planted")
    await refuse_secrets_in_database(postgres_server, database.name)
