"""Charges from code that somebody installed beside ours."""

import asyncio
import re
import sqlite3
import textwrap
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from activities.sources import SourceLine, entry_point
from tests.activities.sources_at_hand import install_entry_point, lines_of, opened, problems_of, read
from workflows.domain.errors import InvalidInput

DUES = """
    import threading
    from collections import UserDict
    from workflows.domain.errors import InvalidInput

    log = []

    def row(number, **cells):
        return {"customer": f"cus_{number}", "currency": "usd", "amount_minor": 100 + number, **cells}

    def in_memory(argument):
        return (row(1), UserDict(row(2)), "no row", row(3, line=argument))

    def failing(argument):
        yield row(1)
        yield row(2)
        raise ValueError("postgresql://someone:s3cret-word@host/db")

    def telling(argument):
        yield row(1)
        raise InvalidInput("March is not closed yet")

    def refusing(argument):
        raise LookupError("s3cret-word")

    async def later(argument):
        for number in range(5):
            yield row(number)

    async def failing_later(argument):
        try:
            yield row(1)
            raise ValueError("s3cret-word")
        finally:
            log.append("closed")

    async def no_rows(argument):
        return []

    def number(argument):
        return 5

    def endless(argument):
        opened_in = threading.get_ident()
        try:
            number = 0
            while True:
                number += 1
                yield row(number)
        finally:
            log.append(threading.get_ident() == opened_in)
            closed.set()

    closed = threading.Event()
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed distributions: a module, and an entry point for each of its functions."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "dues_of_tests.py").write_text(textwrap.dedent(DUES))
    for name in re.findall(r"def (\w+)\(argument", DUES):
        install_entry_point(folder, name, f"dues_of_tests:{name}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "dues_of_tests", raising=False)
    return folder


async def test_the_documented_example_bills(tmp_path: Path, site: Path) -> None:
    """The example of the docstring, installed on disk as it stands, yields what its database holds."""
    code, _, rest = str(entry_point.__doc__).partition("```python\n")[2].partition("```")
    target = re.search(r'\[project.entry-points."chargeonce.sources"\]\n(\w+) = "(\S+)"', rest)
    assert target is not None
    (site / "dues.py").write_text(code)
    install_entry_point(site, target[1], target[2])
    with closing(sqlite3.connect(tmp_path / "march.db")) as database:
        database.execute(
            "CREATE TABLE dues (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER, paid INTEGER)"
        )
        database.executemany(
            "INSERT INTO dues (customer, cents, paid) VALUES (?, ?, ?)",
            [("cus_1", 1999, 0), ("cus_2", 500, 1), ("cus_3", -1, 0)],
        )
        database.commit()
    source = opened(f"entry:dues:{tmp_path / 'march.db'}")
    found = await read(source, rows_max=1)
    assert lines_of(found) == [SourceLine(1, "cus_1", "base", "eur", 1999, None, None)]
    assert [(problem.row, problem.reason) for problem in problems_of(found)] == [(2, "'-1' is negative")]
    assert len(await source.fingerprint()) == 64


async def test_rows_may_be_any_mappings_and_anything_else_is_a_problem(site: Path) -> None:
    """What is no mapping is told with its row, and the rows around it are read."""
    found = await read(opened("entry:in_memory:usage"))
    assert [(line.row, line.amount_minor, line.line) for line in lines_of(found)] == [
        (1, 101, "base"),
        (2, 102, "base"),
        (4, 103, "usage"),
    ]
    assert [(problem.row, problem.reason) for problem in problems_of(found)] == [
        (3, "a row that is no mapping but a str")
    ]


async def test_an_asynchronous_iterator_is_read_in_batches(site: Path) -> None:
    """Five rows in batches of two are two, two and one."""
    async with aclosing(opened("entry:later").batches(2)) as batches:
        assert [len(batch) async for batch in batches] == [2, 2, 1]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("failing", r"failed after row 2: ValueError at dues_of_tests\.py:\d+$"),
        ("telling", "failed after row 1: March is not closed yet$"),
        ("refusing", r"failed before its first row: LookupError at dues_of_tests\.py:\d+$"),
        ("failing_later", r"failed after row 1: ValueError at dues_of_tests\.py:\d+$"),
        ("no_rows", "returned no rows but a coroutine$"),
        ("number", "returned no rows but a int$"),
    ],
)
async def test_code_that_fails_is_invalid_input_with_the_row_reached(
    site: Path, name: str, said: str
) -> None:
    """The reason says where, and repeats nothing that might be a password, nor carries it along."""
    with pytest.raises(InvalidInput, match=said) as raised:
        await read(opened(f"entry:{name}"), rows_max=1)
    carried: BaseException | None = raised.value
    while carried is not None:
        assert "s3cret-word" not in str(carried)
        carried = carried.__cause__ or carried.__context__


@pytest.mark.parametrize(
    ("target", "said"),
    [("no_such_module:open", "ModuleNotFoundError"), ("dues_of_tests:no_such_name", "AttributeError")],
)
async def test_code_that_is_not_there_is_invalid_input(site: Path, target: str, said: str) -> None:
    """An entry point that can't be loaded says so."""
    install_entry_point(site, "broken", target)
    with pytest.raises(InvalidInput, match=f"failed while it was loaded: {said}"):
        await read(opened("entry:broken"))


async def test_a_name_that_nobody_or_several_installed_is_invalid_input(site: Path) -> None:
    """The names that there are come with the refusal; of two under one name none is chosen."""
    with pytest.raises(InvalidInput, match=r"no entry point 'endles' .* there are: .*'endless'"):
        await read(opened("entry:endles"))
    install_entry_point(site, "endless", "dues_of_tests:later", distribution="another_source")
    with pytest.raises(InvalidInput, match="several distributions have an entry point 'endless'"):
        await read(opened("entry:endless"))


async def test_a_reading_that_is_given_up_is_closed_in_its_own_thread(site: Path) -> None:
    """What a source opened it can close, where it opened it."""
    async with aclosing(opened("entry:endless").batches(3)) as batches:
        assert [len(await anext(batches)) for _ in range(3)] == [3, 3, 3]
    import dues_of_tests  # type: ignore[import-not-found]

    assert await asyncio.to_thread(dues_of_tests.closed.wait, 10)
    assert dues_of_tests.log == [True]


async def test_the_fingerprint_is_of_name_argument_and_version(site: Path) -> None:
    """Another argument or version is another source."""
    first = await opened("entry:later").fingerprint()
    assert first == await opened("entry:later").fingerprint()
    assert first != await opened("entry:later:").fingerprint()
    information = (site / "later_source-1.0.dist-info").rename(
        site / "later_source-1.1.dist-info"
    ) / "METADATA"
    information.write_text(information.read_text().replace("Version: 1.0", "Version: 1.1"))
    assert first != await opened("entry:later").fingerprint()
