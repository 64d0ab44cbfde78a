import csv
import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from activities.sources import SourceLine, SourceProblem
from activities.sources.csv_file import read_csv
from activities.sources.physical_lines import RECORD_CHARACTERS_MAX
from workflows.domain.errors import InvalidInput
from workflows.domain.money import minimum_minor

SAMPLE = Path(__file__).parents[2] / "deploy" / "samples" / "charges-2031-03.csv"
Read = Callable[[str | bytes], list[SourceLine | SourceProblem]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Write a content to a file and read it as a source."""

    def read_content(content: str | bytes) -> list[SourceLine | SourceProblem]:
        path = tmp_path / "source.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return list(read_csv(path))

    return read_content


def problems_of(found: list[SourceLine | SourceProblem]) -> list[SourceProblem]:
    """Only the problems."""
    return [value for value in found if isinstance(value, SourceProblem)]


def lines_of(found: list[SourceLine | SourceProblem]) -> list[SourceLine]:
    """Only the lines."""
    return [value for value in found if isinstance(value, SourceLine)]


def only_problem(found: list[SourceLine | SourceProblem]) -> SourceProblem:
    """Return the problem of a file that has one."""
    (problem,) = problems_of(found)
    return problem


def test_a_row_becomes_a_line(read: Read) -> None:
    """All columns of a valid row arrive canonical, and the header is row 1."""
    (line,) = read(
        "customer,currency,amount,payment_method,line,description\ncus_1, USD ,19.99,pm_1,usage,March\n",
    )
    assert line == SourceLine(2, "cus_1", "usage", "usd", 1999, "pm_1", "March")


def test_optional_columns_and_cells_have_defaults(read: Read) -> None:
    """Without a line column or cell the line is `base`; other empty cells are None; zero is a line."""
    assert read("amount_minor,customer,currency\n0,c1,jpy\n") == [
        SourceLine(2, "c1", "base", "jpy", 0, None, None)
    ]
    full = "customer,currency,amount,line,payment_method,description\nc1,eur,1, , ,\n"
    assert read(full) == [SourceLine(2, "c1", "base", "eur", 100, None, None)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("separator", [",", ";"])
def test_every_dialect_reads_the_same(read: Read, mark: bytes, end: str, separator: str) -> None:
    """Byte order mark, line ends and separator change nothing, quoted separators and line breaks included."""
    rows = [
        "customer,currency,amount,description",
        'c1,eur,5.00,"a;b,c',
        'd ""e"""',
        "ç2,usd,7,",
        "c3,usd,8.5,x",
    ]
    text = end.join(rows).translate({ord(","): separator, ord(";"): "/"})
    found = read(mark + text.encode())
    assert [(line.row, line.customer, line.amount_minor) for line in lines_of(found)] == [
        (2, "c1", 500),
        (4, "ç2", 700),
        (5, "c3", 850),
    ]
    assert lines_of(found)[0].description == f'a/b{separator}c{end}d "e"'
    assert not problems_of(found)


@pytest.mark.parametrize(
    ("row", "column", "said"),
    [
        ("c1,xxx,5", "currency", "unknown currency 'xxx'"),
        ("c1,,5", "currency", "currency is empty"),
        ("c1,usd,5.001", "amount", "too many decimals"),
        ("c1,usd,-5", "amount", "negative"),
        ("c1,usd,five", "amount", "'five' is not a plain number"),
        ("c1,usd,", "amount", "amount is empty"),
        ("c1,isk,5.01", "amount", "multiples of 100"),
        (",usd,5", "customer", "customer is missing"),
        ("  ,usd,5", "customer", "customer is missing"),
        ("c1,usd", None, "2 fields where the header has 3"),
        ("c1,usd,5,", None, "4 fields where the header has 3"),
        ("c1,usd,1,999.00", None, "4 fields where the header has 3"),
        ("c\x001,usd,5", "customer", "a control character (0x00)"),
        ("c1\x1f,usd,5", "customer", "a control character (0x1F)"),
        ('"c\n1",usd,5', "customer", "a control character (0x0A)"),
        ("c1,us\x07d,5", "currency", "a control character (0x07)"),
        ("c1,usd,5\x1b[31m", "amount", "a control character (0x1B)"),
        ("c\u200b1,usd,5", "customer", "an invisible character (U+200B)"),
        ("\ufeffc1,usd,5", "customer", "an invisible character (U+FEFF)"),
        ('c1, "usd",5', "currency", "unknown currency"),
        (' "c1",usd,5', "customer", "stray quote"),
        ("..,usd,5", "customer", "can't be asked for at Stripe"),
        (" . ,usd,5", "customer", "can't be asked for at Stripe"),
        ("cus_1/cards,usd,5", "customer", "can't be asked for at Stripe"),
        ("cus_1%2Fcards,usd,5", "customer", "can't be asked for at Stripe"),
        ("cus_1\\cards,usd,5", "customer", "can't be asked for at Stripe"),
        ("c" * 256 + ",usd,5", "customer", "longer than 255 characters"),
    ],
)
def test_each_kind_of_wrong_row_has_its_reason(read: Read, row: str, column: str | None, said: str) -> None:
    """A row that can't be billed exactly is one problem with row, column and reason; others are lines."""
    found = read(f"customer,currency,amount\nbefore,usd,1\n{row}\nafter,usd,1\n")
    problem = only_problem(found)
    assert (problem.row, problem.column) == (3, column)
    assert said in problem.reason
    assert problem.skippable
    assert [line.customer for line in lines_of(found)] == ["before", "after"]


def test_limits_of_length_count_characters_after_normalisation(read: Read) -> None:
    """A customer of 255, a line of 100 and a description of 500 characters pass, one more does not."""
    header = "customer,currency,amount,line,description\n"
    customer = "e\u0301" * 255
    assert lines_of(read(f"{header}{customer},usd,1,{'l' * 100},{'d' * 500}\n"))
    found = read(f"{header}c1,usd,1,{'l' * 101},{'d' * 501}\n")
    assert [problem.column for problem in problems_of(found)] == ["line", "description"]


def test_every_reason_of_a_row_is_told(read: Read) -> None:
    """A row that is wrong in four ways is four problems, and names its customer where that is readable."""
    found = read("customer,currency,amount,line,description\nc1,xxx,five,l\x01,\x00\n,jpy,1.5,base,\n")
    assert [(problem.row, problem.column, problem.customer) for problem in problems_of(found)] == [
        (2, "line", "c1"),
        (2, "currency", "c1"),
        (2, "amount", "c1"),
        (2, "description", "c1"),
        (3, "customer", None),
        (3, "amount", None),
    ]


def test_a_repeated_line_names_the_row_of_the_first(read: Read) -> None:
    """The same customer and line again is a problem, also in another spelling or beside another fault."""
    found = read(
        "customer,currency,amount,line\nc1,usd,1,\nc1,usd,1,usage\n"
        "c1 ,eur,2,base\nç,usd,1,\nc\u0327,usd,1,\nc1,usd,x,\n"
    )
    assert [(line.row, line.line) for line in lines_of(found)] == [(2, "base"), (3, "usage"), (5, "base")]
    reasons = [(problem.row, problem.column, problem.reason) for problem in problems_of(found)]
    assert reasons == [
        (4, None, "line 'base' of customer 'c1' stands in row 2 already"),
        (6, None, "line 'base' of customer 'ç' stands in row 5 already"),
        (7, "amount", "'x' is not a plain number (digits with at most one '.')"),
        (7, None, "line 'base' of customer 'c1' stands in row 2 already"),
    ]


def test_identities_do_not_collide_at_the_border_of_their_fields(read: Read) -> None:
    """Customer `ab` with line `c` and customer `a` with line `bc` are two lines."""
    assert len(lines_of(read("customer,currency,amount,line\nab,usd,1,c\na,usd,1,bc\n"))) == 2


def test_broken_encoding_spoils_its_own_row_only(read: Read) -> None:
    """A Latin-1 byte is reported with its row, and later rows are read."""
    found = read(b"customer,currency,amount\nM\xfcller,usd,1\nc2,usd,2\nc3,usd,\xff\n")
    assert [(problem.row, problem.column) for problem in problems_of(found)] == [
        (2, "customer"),
        (4, "amount"),
    ]
    assert "not UTF-8: byte 0xFC" in problems_of(found)[0].reason
    assert [line.customer for line in lines_of(found)] == ["c2"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('"c1"x,usd,5', "broken quoting"),
        ('c1,usd,"5', "broken quoting"),
        ("c1,u\rsd,5", "carriage return"),
        ("c1,usd," + "5" * RECORD_CHARACTERS_MAX * 3, "a record of more than"),
    ],
)
def test_after_a_broken_record_the_next_row_is_read(read: Read, row: str, said: str) -> None:
    """A broken record is told by its first row, can't be skipped, and takes no other row with it."""
    found = read(f"customer,currency,amount\nc0,usd,1\n{row}\nc2,usd,2\nc3,usd,3\n")
    problem = only_problem(found)
    assert problem.row == 3
    assert said in problem.reason
    assert not problem.skippable
    assert [(line.row, line.customer) for line in lines_of(found)] == [(2, "c0"), (4, "c2"), (5, "c3")]


def test_a_quote_that_is_never_closed_swallows_nobody(read: Read) -> None:
    """Thousands of rows behind an open quote are read, each with its right row number."""
    rows = "".join(f"c{number},usd,1,\n" for number in range(3, 5003))
    found = read(f'customer,currency,amount,description\nc2,usd,1,"open\n{rows}')
    assert only_problem(found).row == 2
    assert [line.row for line in lines_of(found)] == list(range(3, 5003))
    assert all(line.customer == f"c{line.row}" for line in lines_of(found))


def test_rows_that_all_look_open_are_read_in_bounded_time(read: Read) -> None:
    """A file made so that every row opens a quote and none closes it costs a bounded number of rereads."""
    found = read("customer,currency,amount\n" + 'a","\n' * 5000)
    assert [problem.row for problem in problems_of(found)] == list(range(2, 5002))


def test_a_quote_closed_far_away_by_another_row_swallows_nobody(read: Read) -> None:
    """An open quote and a quoted field rows later give one problem, not one record."""
    found = read(
        'customer,currency,amount,description\nc2,usd,1,"open\nc3,usd,1,\nc4,usd,1,"quoted"\nc5,usd,1,\n'
    )
    assert only_problem(found).row == 2
    assert [line.row for line in lines_of(found)] == [3, 4, 5]


@pytest.mark.parametrize(
    ("header", "named"),
    [
        ("customer,currency,amount,note", ["unknown: 'note'"]),
        ("customer,currency,amount,amount", ["duplicated: amount"]),
        ("customer,amount", ["missing: currency"]),
        ("customer,currency", ["exactly one of amount and amount_minor"]),
        ("customer,currency,amount,amount_minor", ["exactly one of amount and amount_minor"]),
        ("a,line,line,amount", ["unknown: 'a'", "duplicated: line", "missing: customer, currency"]),
        ("", ["missing: customer, currency", "exactly one of"]),
        ('"customer,currency,amount', ["can't be read as CSV"]),
        ("customer,currency,amount,\x1b[31m", ["unknown: '\\x1b[31m'"]),
        ("customer" * RECORD_CHARACTERS_MAX, ["the header is longer than"]),
    ],
)
def test_a_wrong_header_is_one_problem_that_names_its_columns(
    read: Read, header: str, named: list[str]
) -> None:
    """Nothing is read under a header that isn't understood."""
    (problem,) = read(f"{header}\nc1,usd,1\n")
    assert isinstance(problem, SourceProblem)
    assert problem.row == 1
    assert not problem.skippable
    assert all(name in problem.reason for name in named)
    assert problem.reason.isprintable()


def test_header_names_are_read_generously(read: Read) -> None:
    """Blanks and capitals in the header mean nothing."""
    assert lines_of(read(" Customer ;CURRENCY; Amount\nc1;usd;1\n"))


def test_utf16_is_named_as_such(read: Read) -> None:
    """A spreadsheet's UTF-16 gets a reason that says what to do."""
    (problem,) = read("customer,currency,amount\nc1,usd,1\n".encode("utf-16"))
    assert isinstance(problem, SourceProblem)
    assert "UTF-16" in problem.reason


def test_blank_lines_are_passed_over_and_counted(read: Read) -> None:
    """Blank lines are no rows, and the rows after them keep their physical number."""
    found = read("customer,currency,amount\n\nc1,usd,1\n   \n\r\nc2,usd,1\n\n")
    assert [line.row for line in lines_of(found)] == [3, 6]
    assert not problems_of(found)


def test_a_file_that_cannot_be_read_is_invalid_input(tmp_path: Path) -> None:
    """Missing, empty, a directory, a FIFO: each is refused with its reason, and none makes us wait."""
    empty = tmp_path / "empty.csv"
    empty.touch()
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    cases = {
        tmp_path / "missing": "No such file",
        empty: "is empty",
        tmp_path: "a directory",
        fifo: "regular file",
    }
    for path, said in cases.items():
        with pytest.raises(InvalidInput, match=said):
            next(read_csv(path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_invalid_input(tmp_path: Path) -> None:
    """A file that this user may not read is refused with the reason."""
    path = tmp_path / "secret.csv"
    path.touch(mode=0)
    with pytest.raises(InvalidInput, match="Permission denied"):
        next(read_csv(path))


def test_reading_is_lazy(tmp_path: Path) -> None:
    """The first line arrives without the rest of the file being read."""
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write("customer,currency,amount\n")
        file.writelines(f"c{number},usd,1\n" for number in range(100_000))
    values = read_csv(path)
    assert next(values) == SourceLine(2, "c0", "base", "usd", 100, None, None)
    path.write_text("")
    assert len(list(values)) < 5000
    values.close()  # type: ignore[attr-defined]


CELLS = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(rows=st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), max_size=6), end=st.sampled_from(["\n", "\r\n"]))
def test_a_well_formed_file_accounts_for_every_row(read: Read, rows: list[tuple[str, ...]], end: str) -> None:
    """Whatever is in the cells, each record is told as a line or a problem, and every reason is printable."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerow(["customer", "currency", "amount", "description"])
    begun = []
    for row in rows:
        begun.append(text.getvalue().count("\n") + 1)
        writer.writerow(row)
    found = read(text.getvalue())
    assert sorted({value.row for value in found}) == begun
    assert all(problem.reason.isprintable() and problem.skippable for problem in problems_of(found))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(
    body=st.lists(
        st.sampled_from([b'"', b",", b"\n", b"\r", b"c1", b"usd", b"5", b"\xff", b"\x00"]), max_size=60
    )
)
def test_no_bytes_stop_the_reading(read: Read, body: list[bytes]) -> None:
    """Any rubbish is read to its end, and rows come in order, each inside the file."""
    content = b"customer,currency,amount\n" + b"".join(body)
    rows = [value.row for value in read(content)]
    assert rows == sorted(rows)
    assert all(2 <= row <= content.count(b"\n") + 1 for row in rows)


def test_the_sample_is_valid_and_realistic() -> None:
    """The sample bills 300 customers in 7 currencies, above all minimums, with cards of every kind."""
    lines = lines_of(list(read_csv(SAMPLE)))
    assert not problems_of(list(read_csv(SAMPLE)))
    assert len({line.customer for line in lines}) == 300
    assert {line.currency for line in lines} == {"usd", "eur", "gbp", "jpy", "kwd", "isk", "sek"}
    assert {line.line for line in lines} == {"base", "usage"}
    assert all(line.amount_minor >= (minimum_minor(line.currency) or 1) for line in lines)
    kinds = {str(line.payment_method).rpartition("_s")[0] for line in lines}
    assert kinds == {
        "pm_card_visa",
        "pm_card_chargeCustomerFail",
        "pm_card_authenticationRequired",
        "pm_card_visa_chargeDeclinedInsufficientFunds",
    }
