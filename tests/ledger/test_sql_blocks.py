from importlib.resources import files

import asyncpg
import pytest

from activities.ledger import planning, sql
from deploy.postgres import Database

FILES = sorted(
    entry.name
    for entry in files("activities.ledger").joinpath("sql").iterdir()
    if entry.name.endswith(".sql")
)
BLOCKS = [(file, name) for file in FILES for name in sql.load(file)]


async def test_every_block_fits_the_migrated_schema(database: Database) -> None:
    """Each named statement is prepared as the role that runs it: a renamed column fails here."""
    connection = await asyncpg.connect(database.app_url)
    try:
        async with connection.transaction():
            await connection.execute(planning.STAGING)
            for file, name in BLOCKS:
                try:
                    await connection.prepare(sql.load(file)[name])
                except asyncpg.PostgresError as error:
                    pytest.fail(f"{file}: {name}: {error}")
    finally:
        await connection.close()


@pytest.mark.parametrize(("file", "name"), BLOCKS)
def test_every_block_says_what_it_does_and_names_its_parameters(file: str, name: str) -> None:
    """The comment over a block names every $n that the block uses, since asyncpg takes no names."""
    lines = sql.load(file)[name].splitlines()
    comment = " ".join(line for line in lines if line.startswith("--"))
    body = "\n".join(line for line in lines if not line.startswith("--"))
    assert comment.removeprefix("-- ")
    for number in range(1, 40):
        if f"${number}" in body.replace(f"${number}0", ""):
            assert f"${number} " in comment, f"{file}: {name} does not name ${number}"


def test_a_name_belongs_to_one_block() -> None:
    """A block is found by its name in a search over all files."""
    names = [name for _, name in BLOCKS]
    assert len(names) == len(set(names))
