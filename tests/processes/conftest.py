"""What the tests of processes start from."""

from pathlib import Path

import pytest

from deploy.postgres import PostgresServer
from tests.conftest import drive


@pytest.fixture(scope="session")
def fresh_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a PostgreSQL that was started once and stopped: to be copied, not to be used."""
    directory = tmp_path_factory.mktemp("fresh") / "postgres"
    server = PostgresServer(directory, durable=False)
    drive(server.start())
    drive(server.stop())
    return directory
