"""A ledger for each process of tests, for scenes that play in it one after the other."""

from collections.abc import Callable, Iterator

import pytest

from deploy.postgres import Database, PostgresServer
from tests.conftest import drive


def stage_named(name: str) -> Callable[..., Iterator[Database]]:
    """Return a fixture: a ledger of this name for all scenes of this process. Each scene finds it empty."""

    @pytest.fixture(scope="session")
    def stage(postgres_server: PostgresServer, ledger_template: str) -> Iterator[Database]:
        """A ledger for all scenes of this process, one after the other: each finds it empty."""
        database = drive(postgres_server.create_database(name, template=ledger_template))
        try:
            yield database
        finally:
            drive(postgres_server.drop_database(name))

    return stage
