"""Which source a spec names, and what becomes of standard input."""

import hashlib
import io
import os
import stat
from pathlib import Path

import pytest

from activities.sources.opening import open_source
from activities.sources.stdin_spool import spool_stdin
from tests.activities.sources_at_hand import lines_of, read
from workflows.domain.errors import InvalidInput

CSV = b"customer,currency,amount\nc1,usd,1\n"
JSON_LINES = b'{"customer": "c1", "currency": "usd", "amount": "1"}\n'


@pytest.mark.parametrize(
    ("spec", "canonical"),
    [
        ("rows.csv", "{here}/rows.csv"),
        ("./a/../ROWS.CSV", "{here}/ROWS.CSV"),
        ("rows.ndjson", "{here}/rows.ndjson"),
        ("csv:rows.txt", "csv:{here}/rows.txt"),
        ("jsonl:rows", "jsonl:{here}/rows"),
        ("parquet:part-0", "parquet:{here}/part-0"),
        ("sql:dues:due.sql", "sql:dues:{here}/due.sql"),
        ("sql:dues:a:b.sql", "sql:dues:{here}/a:b.sql"),
        ("entry:dues", "entry:dues"),
        ("entry:dues:a:b", "entry:dues:a:b"),
        ("entry:dues:", "entry:dues:"),
    ],
)
def test_a_spec_opens_the_same_source_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, canonical: str
) -> None:
    """The source's own spec has absolute paths, and names the same source again."""
    monkeypatch.chdir(tmp_path)
    source = open_source(spec)
    assert source.spec == canonical.format(here=tmp_path)
    assert open_source(source.spec).spec == source.spec


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "rows.xlsx",
            "is of no known kind; there are: a file that ends in .csv, .parquet, .jsonl or .ndjson",
        ),
        ("rows", "is of no known kind"),
        ("", "names no file"),
        ("csv:", "names no file"),
        ("postgresql://someone:secret@host/db", "is of no known kind"),
        ("sql:dues", "names no query: sql:NAME:QUERY.sql"),
        ("sql:dues:", "names no query"),
        ("sql::due.sql", "named by letters, digits and underscores, not ''"),
        ("sql:du-es:due.sql", "named by letters, digits and underscores, not 'du-es'"),
        ("-", "standard input can be read once"),
        ("rows\x1b[31m.csv", "a name that can't be printed"),
        ("rows\0.csv", "a name that can't be printed"),
        ("~no-such-user-here/rows.csv", "is no path"),
    ],
)
def test_a_spec_that_names_nothing_is_invalid_input(spec: str, said: str) -> None:
    """The reason says what there is, on one printable line."""
    with pytest.raises(InvalidInput) as raised:
        open_source(spec)
    assert said in raised.value.reason
    assert raised.value.reason.isprintable()


async def test_a_prefix_says_what_a_suffix_does_not(tmp_path: Path) -> None:
    """A file of any name is read as the kind that its prefix says."""
    (tmp_path / "rows.txt").write_bytes(JSON_LINES)
    found = await read(open_source(f"jsonl:{tmp_path / 'rows.txt'}"))
    assert [line.customer for line in lines_of(found)] == ["c1"]
    source = open_source(f"csv:{tmp_path / 'rows.txt'}")
    assert await source.fingerprint() == hashlib.sha256(JSON_LINES).hexdigest()


@pytest.mark.parametrize(
    ("content", "suffix"),
    [
        (CSV, ".csv"),
        (b"\xef\xbb\xbf" + CSV, ".csv"),
        (JSON_LINES, ".jsonl"),
        (b"\xef\xbb\xbf\n  " + JSON_LINES, ".jsonl"),
        (b"\n" * (1 << 21) + JSON_LINES, ".jsonl"),
        (b"\n\n", ".csv"),
    ],
)
def test_standard_input_becomes_a_file_named_by_its_bytes(
    tmp_path: Path, content: bytes, suffix: str
) -> None:
    """Its kind shows in its name, only its owner may read it, and the same input is the same file."""
    folder = tmp_path / "state" / "sources"
    path = spool_stdin(folder, io.BytesIO(content))
    assert path == folder / f"stdin-{hashlib.sha256(content).hexdigest()}{suffix}"
    assert path.read_bytes() == content
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert spool_stdin(folder, io.BytesIO(content)) == path
    assert list(folder.iterdir()) == [path]


async def test_what_was_sent_to_standard_input_is_billed(tmp_path: Path) -> None:
    """The file's path is a spec like any other."""
    path = spool_stdin(tmp_path, io.BytesIO(JSON_LINES))
    assert [line.customer for line in lines_of(await read(open_source(str(path))))] == ["c1"]


class BrokenPipe(io.BytesIO):
    """Gives a little, and fails then."""

    def read(self, size: int | None = -1) -> bytes:
        """Return the first bytes, and raise at the next call."""
        if self.tell():
            raise OSError(5, "Input/output error")
        return super().read(min(size or 1, 4))


def test_standard_input_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """Empty, broken, a terminal, or nowhere to put it: refused, and no half a file stays."""
    with pytest.raises(InvalidInput, match="standard input is empty"):
        spool_stdin(tmp_path, io.BytesIO(b""))
    with pytest.raises(InvalidInput, match=r"can't be stored in .*: Input/output error"):
        spool_stdin(tmp_path, BrokenPipe(CSV))
    controller, terminal = os.openpty()
    with (
        os.fdopen(controller, "rb"),
        os.fdopen(terminal, "rb") as stream,
        pytest.raises(InvalidInput, match="is a terminal"),
    ):
        spool_stdin(tmp_path, stream)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="can't be stored in"):
        spool_stdin(tmp_path / "file", io.BytesIO(CSV))
