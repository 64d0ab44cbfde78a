"""The suite runs both ways: straight to the simulator, and through the spend-cap proxy.

Property tests are judged by what they find, not by how fast a busy machine runs them.
"""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from deploy.postgres import Database, PostgresServer
from tests.conftest import drive
from tests.gateway.through_proxy import LEDGER_OF_THE_PROXY

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

DIRECT, PROXIED = "direct", "through the proxy"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that opens a till both ways, but for those that are about one of them."""
    if "open_till" not in metafunc.function.__code__.co_names:
        return
    if "way" not in metafunc.fixturenames:
        metafunc.fixturenames.append("way")
    alone = hasattr(metafunc.function, "direct_only")
    metafunc.parametrize("way", [DIRECT] if alone else [DIRECT, PROXIED], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to `make proof` what goes through the proxy in a second call style: each call takes a new one."""
    for item in items:
        parameters = (
            item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        )
        if parameters.get("way") == PROXIED and (
            parameters.get("call_style") == "typed" or item.name.startswith("test_both_call_styles")
        ):
            item.add_marker(pytest.mark.proof)


@pytest.fixture(scope="session")
def proxied_ledger(postgres_server: PostgresServer, ledger_template: str) -> Database:
    """One ledger for all proxies of these tests, each of which begins by forgetting the last one's."""
    return drive(postgres_server.create_database("gateway_proxy", template=ledger_template))


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which way the test's tills go."""
    if request.param == DIRECT:
        yield DIRECT
        return
    token = LEDGER_OF_THE_PROXY.set(request.getfixturevalue("proxied_ledger"))
    try:
        yield PROXIED
    finally:
        LEDGER_OF_THE_PROXY.reset(token)
