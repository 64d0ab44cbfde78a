"""A pack that was changed after it was written: whatever was done to it is found, and where."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from activities.export.check import check_pack
from activities.export.check_bytes import find_in_bytes
from activities.export.line_digests import DIGESTS_MAX, LineDigests
from activities.export.manifest import OWN_HASH, seal, unseal
from activities.export.pack import Format
from tests.export.office import LINES, Office, findings, read_manifest
from workflows.domain.errors import InvalidInput

SEED = 20_310_301
FLIPS_PER_FILE = 300
CHECKS_PER_FILE = 12


@pytest.fixture
async def pack(office: Office) -> Path:
    """An intact pack in both formats."""
    await office.run()
    await office.live_a_while()
    return (await office.export(formats=Format.BOTH)).folder


@pytest.mark.parametrize("per_file", [FLIPS_PER_FILE, pytest.param(None, marks=pytest.mark.proof)])
async def test_a_flipped_byte_is_found_in_its_file(office: Office, per_file: int | None) -> None:
    """A sample of the bytes of every file of data and of the manifest; as a proof, every one of them."""
    await office.run([LINES[0], LINES[3], LINES[4]])
    pack = (await office.export()).folder
    chance, tried = random.Random(SEED), 0
    entries = {entry["name"]: entry for entry in read_manifest(pack)["files"]}
    for path in sorted(pack.iterdir()):
        data = path.read_bytes()
        places: Sequence[int] = range(len(data))
        if path.name == "columns.md" or per_file is not None:
            places = chance.sample(places, min(len(places), per_file or FLIPS_PER_FILE))
        for place in places:
            flipped = bytearray(data)
            flipped[place] ^= 1 << chance.randrange(8)
            tried += 1
            if path.name == "manifest.json":
                assert not unseal(bytes(flipped))[1], f"{path.name} byte {place}, seed {SEED}"
                continue
            path.write_bytes(flipped)
            [finding] = find_in_bytes(path, entries[path.name])
            assert finding.line == data[:place].count(b"\n") + 1, f"{path.name} byte {place}, seed {SEED}"
        path.write_bytes(data)
    print(f"{tried} flipped bytes, every one found")
    assert findings(pack) == []


def test_a_check_of_a_pack_with_any_flipped_byte_ends_with_findings(pack: Path) -> None:
    """Whatever the byte made of a number, a quote or a bracket, the check names the file and goes on."""
    chance = random.Random(SEED)
    for path in sorted(pack.iterdir()):
        data = path.read_bytes()
        for place in chance.sample(range(len(data)), CHECKS_PER_FILE):
            flipped = bytearray(data)
            flipped[place] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            found = {finding.file for finding in check_pack(pack).findings}
            assert path.name in found, f"{path.name} byte {place}, seed {SEED}"
        path.write_bytes(data)


@pytest.mark.parametrize(
    "name", ["runs.csv", "charges.csv", "attempts.csv", "exceptions.csv", "settlement.csv"]
)
def test_a_changed_cell_is_found_with_its_row(pack: Path, name: str) -> None:
    """The row counts from 1 below the header, also below a cell with line breaks in it."""
    import csv
    import io

    text = (pack / name).read_bytes().decode()
    rows = list(csv.reader(io.StringIO(text, newline="")))
    for number in range(1, len(rows)):
        changed = [list(row) for row in rows]
        changed[number][0] += "x"
        written = io.StringIO(newline="")
        csv.writer(written).writerows(changed)
        (pack / name).write_bytes(written.getvalue().encode())
        [finding] = check_pack(pack).findings
        assert (finding.file, finding.row) == (name, number), finding


@pytest.mark.parametrize("name", ["charges.csv", "attempts.csv", "settlement.csv", "audit.jsonl"])
def test_every_removed_added_or_moved_line_is_found_where_it_was(pack: Path, name: str) -> None:
    """One line less, one twice, two exchanged: the first line that is not as it was is named."""
    path = pack / name
    lines = path.read_bytes().splitlines(keepends=True)
    for at in range(len(lines)):
        path.write_bytes(b"".join(lines[:at] + lines[at + 1 :]))
        [finding] = check_pack(pack).findings
        assert (finding.file, finding.line) == (name, at + 1)
        assert "1 lines are missing" in finding.what
        path.write_bytes(b"".join([*lines[: at + 1], *lines[at:]]))
        [finding] = check_pack(pack).findings
        assert finding.file == name
        assert "1 lines are added" in finding.what
    if lines[-1] != lines[-2]:
        path.write_bytes(b"".join([*lines[:-2], lines[-1], lines[-2]]))
        [finding] = check_pack(pack).findings
        assert finding.line == len(lines) - 1


def test_files_that_are_missing_or_were_added_are_found(pack: Path) -> None:
    """A pack has the files of its manifest and no other."""
    (pack / "more.csv").write_text("more")
    (pack / "audit.jsonl").unlink()
    assert {(finding.file, finding.what) for finding in check_pack(pack).findings} == {
        ("more.csv", "it was not written with this pack"), ("audit.jsonl", "it is missing"),
    }  # fmt: skip


def test_totals_are_added_up_again(pack: Path) -> None:
    """A manifest that was changed and sealed again does not agree with the rows."""
    document = read_manifest(pack)
    del document[OWN_HASH]
    for *way, name, value in (
        ("totals", "usd", "paid_minor", 1),
        ("counts", "declined", 7),
        ("settlement", "totals", "jpy", "fee_minor", 0),
        ("counts", "skipped_rows", 0),
        ("files", 2, "rows", 7),
    ):
        changed = place = json.loads(json.dumps(document))
        for step in way:
            place = place[step]
        place[name] = value
        (pack / "manifest.json").write_bytes(seal(changed))
        assert findings(pack)


def test_a_cell_that_differs_between_the_formats_is_found(pack: Path, office: Office) -> None:
    """A CSV file with other cells, whose entry in the manifest was made to fit, is not the Parquet file's."""
    import hashlib

    path = pack / "attempts.csv"
    data = path.read_bytes().replace(b"req_", b"rex_", 1)
    path.write_bytes(data)
    document = read_manifest(pack)
    del document[OWN_HASH]
    [entry] = [entry for entry in document["files"] if entry["name"] == "attempts.csv"]
    entry["sha256"] = hashlib.sha256(data).hexdigest()
    (pack / "manifest.json").write_bytes(seal(document))
    [finding] = check_pack(pack).findings
    assert (finding.file, finding.row) == ("attempts.parquet", 1)
    assert finding.what == "request_id is another than in attempts.csv"


def test_what_is_no_pack_is_refused(tmp_path: Path, pack: Path) -> None:
    """No folder, no manifest, or a pack of another version."""
    for place in (tmp_path / "nothing", tmp_path):
        with pytest.raises(InvalidInput, match="is no closing pack"):
            check_pack(place)
    document = read_manifest(pack)
    del document[OWN_HASH]
    (pack / "manifest.json").write_bytes(seal({**document, "schema_version": 2}))
    with pytest.raises(InvalidInput, match="version 2"):
        check_pack(pack)


def test_a_pack_that_was_copied_is_the_same_pack(pack: Path, tmp_path: Path) -> None:
    """Nothing in it says where it was written."""
    copied = Path(shutil.copytree(pack, tmp_path / "elsewhere"))
    assert findings(copied) == []


@pytest.mark.parametrize("lines", [0, 1, DIGESTS_MAX - 1, DIGESTS_MAX, DIGESTS_MAX + 1, 3 * DIGESTS_MAX + 5])
def test_digests_of_many_lines_stay_few_and_still_say_where(lines: int) -> None:
    """However many lines, there are never more than DIGESTS_MAX, and a change is told within a few lines."""
    written = LineDigests()
    for number in range(lines):
        written.add(b"%d\n" % number)
    kept = written.as_json()
    per_digest, digests = int(str(kept["lines_per_digest"])), str(kept["digests"])
    assert len(digests) <= 8 * DIGESTS_MAX
    for changed in {0, lines // 2, lines - 1} if lines else set():
        read = LineDigests(lines_per_digest=per_digest, may_grow=False)
        for number in range(lines):
            read.add(b"changed\n" if number == changed else b"%d\n" % number)
        first, last = read.first_difference(digests) or (0, 0)
        assert first <= changed + 1 <= last < first + per_digest
    same = LineDigests(lines_per_digest=per_digest, may_grow=False)
    for number in range(lines):
        same.add(b"%d\n" % number)
    assert same.first_difference(digests) is None
