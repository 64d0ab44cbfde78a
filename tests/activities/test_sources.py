"""One judge for all sources: the same row has the same reasons, whatever it comes from."""

from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from activities.sources import SourceLine, SourceProblem
from activities.sources.first_rows import FirstRows
from deploy.postgres import PostgresServer
from tests.activities.sources_at_hand import (
    Row,
    Value,
    install_entry_point,
    lines_of,
    opened,
    problems_of,
    read,
    write_csv,
    write_json_lines,
    write_parquet,
    write_query,
)

ReadRows = Callable[[Sequence[Row]], Awaitable[list[Value]]]

KINDS = ("csv", "jsonl", "parquet", "sql", "entry", "async_entry")
TYPED_KINDS = KINDS[1:]
FIRST_ROW = {"csv": 2}  # elsewhere it is 1: the header is no row

ENTRY_ROWS: list[Row] = []
"""What the entry point of these tests yields."""

HOSTILE_TEXTS: list[tuple[Row, str | None, str]] = [
    ({"currency": "xxx"}, "currency", "unknown currency 'xxx'"),
    ({"currency": ""}, "currency", "currency is empty"),
    ({"currency": "us\x07d"}, "currency", "a control character (0x07) in 'us\\x07d'"),
    ({"currency": '"usd"'}, "currency", "unknown currency '\"usd\"'"),
    ({"amount": "5.001"}, "amount", "'5.001' has too many decimals: usd has 2"),
    ({"amount": "-5"}, "amount", "'-5' is negative"),
    ({"amount": "five"}, "amount", "'five' is not a plain number (digits with at most one '.')"),
    ({"amount": "NaN"}, "amount", "'NaN' is not a plain number (digits with at most one '.')"),
    ({"amount": "1e3"}, "amount", "'1e3' is not a plain number (digits with at most one '.')"),
    ({"amount": "1,000"}, "amount", "'1,000' is not a plain number (digits with at most one '.')"),
    ({"amount": ""}, "amount", "amount is empty"),
    ({"amount": "9" * 13}, "amount", "'9999999999999' has more than 12 digits in minor units"),
    ({"amount": "5\x1b[31m"}, "amount", "a control character (0x1B) in '5\\x1b[31m'"),
    ({"customer": ""}, "customer", "customer is missing"),
    ({"customer": "  "}, "customer", "customer is missing"),
    ({"customer": None}, "customer", "customer is missing"),
    ({"customer": "c\x1f1"}, "customer", "a control character (0x1F) in 'c\\x1f1'"),
    ({"customer": "c\n1"}, "customer", "a control character (0x0A) in 'c\\n1'"),
    ({"customer": "c\u200b1"}, "customer", "an invisible character (U+200B) in 'c\\u200b1'"),
    ({"customer": "\ufeffc1"}, "customer", "an invisible character (U+FEFF) in '\\ufeffc1'"),
    ({"customer": ' "c1"'}, "customer", "a stray quote in '\"c1\"'"),
    ({"customer": ".."}, "customer", "'..' can't be asked for at Stripe"),
    ({"customer": "cus_1/cards"}, "customer", "'cus_1/cards' can't be asked for at Stripe"),
    ({"customer": "c" * 256}, "customer", f"{'c' * 40!r}… is longer than 255 characters"),
    ({"line": "l" * 101}, "line", f"{'l' * 40!r}… is longer than 100 characters"),
    ({"line": "l\x01"}, "line", "a control character (0x01) in 'l\\x01'"),
    ({"payment_method": "p" * 256}, "payment_method", f"{'p' * 40!r}… is longer than 255 characters"),
    ({"description": "d" * 501}, "description", f"{'d' * 40!r}… is longer than 500 characters"),
    ({"description": "a\x08b"}, "description", "a control character (0x08) in 'a\\x08b'"),
]

NOT_FOR_POSTGRES: list[tuple[Row, str | None, str]] = [
    ({"customer": "M\udcfcller"}, "customer", "not UTF-8: byte 0xFC in 'M\\udcfcller'"),
    ({"amount": "\udcff"}, "amount", "not UTF-8: byte 0xFF in '\\udcff'"),
    ({"customer": "c\x001"}, "customer", "a control character (0x00) in 'c\\x001'"),
]
"""Texts that no database in UTF-8 can hold."""


def rows_yielded(_argument: str | None) -> list[Row]:
    """Return the rows of this test: an entry point."""
    return ENTRY_ROWS


async def rows_yielded_later(_argument: str | None):  # type: ignore[no-untyped-def] # noqa: ANN201
    """Yield the rows of this test: an asynchronous entry point."""
    for row in ENTRY_ROWS:
        yield row


@pytest.fixture
def reading(
    tmp_path: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], ReadRows]:
    """Return how rows are read through a kind of source."""
    install_entry_point(tmp_path / "site", "entry", f"{__name__}:rows_yielded")
    install_entry_point(tmp_path / "site", "async_entry", f"{__name__}:rows_yielded_later")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    writers = {
        "csv": (write_csv, "rows.csv"),
        "jsonl": (write_json_lines, "rows.jsonl"),
        "parquet": (write_parquet, "rows.parquet"),
        "sql": (write_query, "rows.sql"),
    }

    def of_kind(kind: str) -> ReadRows:
        async def read_rows(rows: Sequence[Row]) -> list[Value]:
            if kind in writers:
                write, name = writers[kind]
                spec = write(tmp_path / name, rows)
            else:
                spec = f"entry:{kind}"
                monkeypatch.setitem(globals(), "ENTRY_ROWS", rows)
            return await read(opened(spec, postgres_server.owner_url), rows_max=7)

        return read_rows

    return of_kind


def row_of(number: int, **cells: object) -> Row:
    """Return a row of texts that can be billed, but for `cells`."""
    valid = {"customer": f"cus_{number}", "currency": "usd", "amount": "5", "payment_method": "pm_1"}
    return {**valid, "line": "", "description": None, **cells}


@pytest.mark.parametrize("kind", KINDS)
async def test_hostile_texts_have_the_same_reasons_everywhere(
    reading: Callable[[str], ReadRows], kind: str
) -> None:
    """Each of thirty faults is told with its row, column and reason, and the rows around it are lines."""
    cases = HOSTILE_TEXTS if kind == "sql" else HOSTILE_TEXTS + NOT_FOR_POSTGRES
    rows = [
        row_of(number, **(cases[number // 2][0] if number % 2 else {})) for number in range(2 * len(cases))
    ]
    found = await reading(kind)(rows)
    first = FIRST_ROW.get(kind, 1)
    # A line break inside a cell is one physical line more for the rows of a CSV file that come after it.
    told = [(problem.column, problem.reason, problem.skippable) for problem in problems_of(found)]
    assert told == [(column, reason, True) for _, column, reason in cases]
    assert [line.customer for line in lines_of(found)] == [
        f"cus_{2 * number}" for number in range(len(cases))
    ]
    breaks_before = 0
    for number, value in enumerate(found):
        assert value.row == number + first + breaks_before
        breaks_before += kind == "csv" and "\n" in str(rows[number]["customer"])


@pytest.mark.parametrize("kind", KINDS)
async def test_every_reason_of_a_row_and_a_repeated_line_are_told_everywhere(
    reading: Callable[[str], ReadRows], kind: str
) -> None:
    """All faults of one row are told together; of a repeated line the first row is the line."""
    found = await reading(kind)(
        [
            row_of(1, customer="c1", line="usage"),
            row_of(2, customer="c1 ", line=" usage", currency="xxx", amount="x"),
            row_of(3, customer="c1"),
            row_of(4, customer="c\u0327", line="base"),
            row_of(5, customer="\u00e7"),
        ]
    )
    first = FIRST_ROW.get(kind, 1)
    assert [(line.row - first, line.customer, line.line) for line in lines_of(found)] == [
        (0, "c1", "usage"),
        (2, "c1", "base"),
        (3, "\u00e7", "base"),
    ]
    problems = [(problem.row - first, problem.column, problem.customer) for problem in problems_of(found)]
    assert problems == [
        (1, "currency", "c1"),
        (1, "amount", "c1"),
        (1, None, "c1"),
        (4, None, "\u00e7"),
    ]
    assert problems_of(found)[2].reason == f"line 'usage' of customer 'c1' stands in row {first} already"
    assert problems_of(found)[3].reason == f"line 'base' of customer 'ç' stands in row {first + 3} already"


NOT_EXACT = "a float is not exact: give amounts as text, as an integer or as a decimal"
HOSTILE_VALUES: list[tuple[str, Row, str, str]] = [
    ("jsonl sql entry parquet", {"amount": True}, "amount", "true is neither a text nor an exact number"),
    (
        "jsonl sql entry parquet",
        {"customer": False},
        "customer",
        "false is neither a text nor an exact number",
    ),
    ("jsonl sql entry parquet", {"customer": [1]}, "customer", "a nested value where a text or an exact"),
    ("jsonl sql entry parquet", {"amount": {"usd": 5}}, "amount", "a nested value where a text or an exact"),
    ("jsonl sql entry parquet", {"amount": None}, "amount", "amount is empty"),
    ("jsonl sql entry parquet", {"amount": -5}, "amount", "'-5' is negative"),
    ("jsonl sql entry parquet", {"amount": Decimal("5.001")}, "amount", "'5.001' has too many decimals"),
    ("jsonl sql entry parquet", {"customer": Decimal("4.2")}, "customer", "'4.2' is a decimal number where"),
    ("jsonl sql entry parquet", {"amount": 10**13}, "amount", "has more than 12 digits in minor units"),
    ("jsonl sql entry", {"amount": Decimal("NaN")}, "amount", "'NaN' is not a plain number"),
    ("jsonl entry", {"amount": Decimal("Infinity")}, "amount", "'Infinity' is not a plain number"),
    ("jsonl entry", {"amount": Decimal("1E+999999")}, "amount", "'1E+999999' is not a plain number"),
    ("jsonl entry", {"amount": 10**90}, "amount", "a whole number of more than 77 digits"),
    ("entry", {"amount": 0.5}, "amount", NOT_EXACT),
    ("entry", {"amount": float("nan")}, "amount", NOT_EXACT),
    ("entry", {"customer": b"cus_1"}, "customer", "a value of type bytes is neither a text nor an exact"),
    ("parquet", {"customer": b"cus_1"}, "customer", "a value of type bytes is neither a text nor an exact"),
]


@pytest.mark.parametrize(
    ("kind", "cells", "column", "said"),
    [(kind, *case) for kinds, *case in HOSTILE_VALUES for kind in kinds.split()],
)
async def test_values_of_wrong_types_have_the_same_reasons_everywhere(
    reading: Callable[[str], ReadRows], kind: str, cells: Row, column: str, said: str
) -> None:
    """What is no text and no exact number spoils its row, and the reason says what it is."""
    (problem,) = await reading(kind)([row_of(1, **cells)])
    assert isinstance(problem, SourceProblem)
    assert (problem.row, problem.column, problem.skippable) == (1, column, True)
    assert said in problem.reason


@pytest.mark.parametrize(
    ("amounts", "amount_minor"),
    [
        ({"amount": "19.99"}, 1999),
        ({"amount": Decimal("19.9900")}, 1999),
        ({"amount": Decimal("20.00")}, 2000),
        ({"amount": Decimal(0)}, 0),
        ({"amount": 20}, 2000),
        ({"amount_minor": "1999"}, 1999),
        ({"amount_minor": 1999}, 1999),
        ({"amount_minor": Decimal(1999)}, 1999),
    ],
)
@pytest.mark.parametrize("kind", TYPED_KINDS)
async def test_exact_amounts_of_every_type_are_read(
    reading: Callable[[str], ReadRows], kind: str, amounts: Row, amount_minor: int
) -> None:
    """Texts, integers and decimals are the digits they are, and zeros of a column's scale mean nothing."""
    row = {"customer": 42, "currency": "usd", **amounts}
    assert await reading(kind)([row]) == [SourceLine(1, "42", "base", "usd", amount_minor, None, None)]


@pytest.mark.parametrize("kind", TYPED_KINDS)
async def test_minor_units_with_decimals_are_refused_even_if_zeros(
    reading: Callable[[str], ReadRows], kind: str
) -> None:
    """20.00 in a column of minor units is twenty of something else, and is not guessed at."""
    row = {"customer": "c1", "currency": "usd", "amount_minor": Decimal("20.00")}
    (problem,) = problems_of(await reading(kind)([row]))
    assert "'20.00' has decimals" in problem.reason


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"customer": "c1", "currency": "usd", "amount": "1", "amount_minor": "100"},
            "exactly one of amount and amount_minor is needed, not amount and amount_minor",
        ),
        (
            {"customer": "c1", "currency": "usd"},
            "exactly one of amount and amount_minor is needed, not none",
        ),
        ({"customer": "c1", "currency": "usd", "amount": "1", "note": "x"}, "columns unknown: 'note'"),
    ],
)
async def test_wrong_columns_are_told_everywhere(
    reading: Callable[[str], ReadRows], kind: str, row: Row, said: str
) -> None:
    """Both amounts, none, or a column that nobody knows: a fault of the header, or of the row that has it."""
    (problem,) = problems_of(await reading(kind)([row]))
    assert said in problem.reason
    assert problem.column is None
    if kind in ("jsonl", "entry", "async_entry"):
        assert (problem.row, problem.skippable, problem.customer) == (1, True, "c1")
    else:
        assert (problem.row, problem.skippable) == (FIRST_ROW.get(kind, 1) - 1, False)


@pytest.mark.parametrize("kind", ["parquet", "sql"])
async def test_a_floating_point_column_is_refused_as_a_whole(
    reading: Callable[[str], ReadRows], kind: str
) -> None:
    """No row is read where the type of a column can't hold an exact amount."""
    found = await reading(kind)([row_of(number, amount=0.5) for number in range(3)])
    (problem,) = problems_of(found)
    assert (problem.row, problem.column, problem.skippable) == (0, "amount", False)
    assert problem.reason.startswith(NOT_EXACT)
    assert problem.reason.endswith("(it is double)" if kind == "parquet" else "(it is float8)")


@pytest.mark.parametrize("kind", KINDS)
async def test_rows_arrive_whole_and_in_order(reading: Callable[[str], ReadRows], kind: str) -> None:
    """Through all batches, from the first row to the last."""
    rows = [row_of(number, amount=f"{number}.07") for number in range(50)]
    found = await reading(kind)(rows)
    assert [(line.customer, line.amount_minor) for line in lines_of(found)] == [
        (f"cus_{number}", 100 * number + 7) for number in range(50)
    ]


def test_first_rows_are_remembered_through_every_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """No identity is forgotten when the table grows, and none is taken for another."""
    monkeypatch.setattr("activities.sources.first_rows._SLOTS_AT_FIRST", 4)
    seen = FirstRows()
    identities = [(f"c{number % 700}", f"l{number // 700}") for number in range(2100)]
    assert all(seen.first_row(*identity, row) == row for row, identity in enumerate(identities, start=1))
    assert all(seen.first_row(*identity, 9999) == row for row, identity in enumerate(identities, start=1))


async def test_a_batch_is_never_longer_than_asked_for(tmp_path: Path) -> None:
    """Eleven rows in batches of four are four, four and three."""
    spec = write_csv(tmp_path / "rows.csv", [row_of(number) for number in range(11)])
    batches = [len(batch) async for batch in opened(spec).batches(4)]
    assert batches == [4, 4, 3]
