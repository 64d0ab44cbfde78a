import csv
import io
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer.main

from activities.spreadsheet_cells import neutral_cell
from deploy.cli import app
from tests.processes.drifting import (
    DUPLICATE,
    FORMULA,
    HOSTILE,
    HOSTILE_ROW,
    REPAIRED,
    Kept,
    Row,
    command,
    drifting,
)
from worker.console_output import open_console, to_json
from worker.drift_report.page import to_html
from worker.drift_report.spreadsheet import COLUMNS, to_csv
from worker.drift_report.terminal import FINDINGS_SHOWN_MAX, render_report
from worker.drift_report.whole_file import refuse_unwritable, write_whole
from workflows.domain.drift import DriftKind, Repair
from workflows.domain.echo import readable
from workflows.domain.errors import InvalidInput

ALLOWED_TAGS = frozenset(
    {
        "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2",
        "h3", "p", "ul", "li", "dl", "div", "dt", "dd", "article", "span", "code",
    }
)  # fmt: skip
ALLOWED_ATTRIBUTES = frozenset({"lang", "charset", "http-equiv", "content", "name", "class"})
CHARGE = "0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d"
REFUND = f"chargeonce refund {CHARGE} --payment-intent pi_2 --amount"


class Page(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, and the text that one reads."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        """Keep text, but for the style sheet's."""
        if self.tags[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        """The text, each gap one blank."""
        return " ".join("".join(self.words).split())


def shown(*rows: Row, kept: Kept | None = None) -> str:
    """Return what a terminal would show."""
    text = io.StringIO()
    console = open_console(text)
    for part in render_report(drifting(*rows, kept=kept)):
        console.print(readable(part) if isinstance(part, str) else part, markup=False, highlight=False)
    return text.getvalue()


def test_a_page_has_every_difference_with_its_age_and_the_command_that_ends_it() -> None:
    """Kind, both sides, first seen, age, proposed repair, its state, and what to type stand on one page."""
    page = Page(to_html(drifting(DUPLICATE, REPAIRED, HOSTILE_ROW)))
    for told in (
        "2 open differences.", "duplicate (1)", "first seen 2031-03-01 08:00:00 UTC, age 3 days, 4:00:00",
        "Ledger says succeeded 4200 usd", "Stripe says pi_2 succeeded 4200 usd", "refund 42.00 USD",
        "proposed", "repaired", "25 of 30", f"{REFUND} 42.00 --reason duplicate",
    ):  # fmt: skip
        assert told in page.text


def test_a_page_runs_and_loads_nothing_whatever_a_name_says() -> None:
    """Hostile names are text: no element, no attribute, no address and no invisible character of theirs."""
    html = to_html(drifting(replace(HOSTILE_ROW, repair_state="proposed"), kept=Kept(who=HOSTILE)))
    page = Page(html)
    assert set(page.tags) <= ALLOWED_TAGS
    assert {name for name, _ in page.attributes} <= ALLOWED_ATTRIBUTES
    assert ("http-equiv", "Content-Security-Policy") in page.attributes
    policy = next(value for name, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'")
    assert "<script>alert('x')</script>" in page.text
    assert html.isascii() or all(character.isprintable() or character == "\n" for character in html)
    assert not re.search(r"(?:src|href|url|@import)\s*[=(]", html.split("</style>")[0])
    assert "\x1b" not in html
    assert "\u202e" not in html


def test_a_terminal_shows_escapes_of_names_and_never_sends_them() -> None:
    """Neither a control character nor a bidirectional override of a name reaches the terminal."""
    text = shown(HOSTILE_ROW, DUPLICATE)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert "\\x1b[31m" in re.sub(r"\s", "", text)
    assert "requests: 25 for pages and looks, of 30 allowed" in text
    assert text.index("duplicate:") < text.index("amount:")  # the worst first


def test_a_terminal_shows_the_worst_and_says_how_many_more_there_are() -> None:
    """Many missed events push no duplicate off the screen, and nothing is passed over in silence."""
    gaps = [
        Row(DriftKind.EVENT_GAP, f"evt_{number}", Repair.KEEP_EVENT, charge_id=None) for number in range(200)
    ]
    text = shown(*gaps, DUPLICATE)
    assert text.count("evt_") == FINDINGS_SHOWN_MAX - 1
    assert "pi_2" in text
    assert f"and {201 - FINDINGS_SHOWN_MAX} differences more: --json, --csv FILE or --html FILE" in text
    assert text.count("chargeonce reconcile --run") == 1
    assert to_csv(drifting(*gaps, DUPLICATE)).count("\n") == 202


def test_a_sheet_has_a_row_a_difference_and_no_cell_that_runs() -> None:
    """Every column of every difference is there, and what begins like a formula is text."""
    [header, first, second] = list(csv.reader(io.StringIO(to_csv(drifting(DUPLICATE, HOSTILE_ROW)))))
    assert tuple(header) == COLUMNS
    cells = dict(zip(header, first, strict=True))
    assert (cells["kind"], cells["amount_minor"], cells["age_seconds"]) == ("duplicate", "4200", "273600")
    hostile = dict(zip(header, second, strict=True))
    assert hostile["line"] == hostile["stripe_says"] == f"'{FORMULA}"
    assert "\x1b" not in hostile["customer"]
    assert "\u202e" not in hostile["customer"]


@pytest.mark.parametrize(
    "text",
    [
        "=1+1", "+1", "-1", "@SUM(A1)", "  =1", "\u00a0=1", "\u200b=1", "\ufeff=1", "\uff1d1", "\uff0b1",
        "\u22121", "a\n=1", "a;=1", "a\t=1", "a; @x", "\x00=1",
    ],
)  # fmt: skip
def test_what_a_spreadsheet_would_run_gets_an_apostrophe(text: str) -> None:
    """Formula signs at the start of a cell are inert, also after blanks or a separator, or fullwidth."""
    inert = neutral_cell(text)
    assert inert.replace("'", "", 1) == text
    assert neutral_cell(inert) == inert


@pytest.mark.parametrize("text", ["", "cus_1", "a=b", "a, -b", "1-2", "pi_1 pi_2", "2031-03-01"])
def test_what_no_spreadsheet_runs_stays_as_it_is(text: str) -> None:
    """Only what a program would take for a formula is touched."""
    assert neutral_cell(text) == text


@pytest.mark.parametrize("text", ["\ta", "\ra", "\na"])
def test_a_cell_never_begins_with_a_separator(text: str) -> None:
    """Some programs drop it, and what follows would be first."""
    assert neutral_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("row", "run_id", "typed"),
    [
        (DUPLICATE, None, f"{REFUND} 42.00 --reason duplicate"),
        (replace(DUPLICATE, currency="jpy"), None, f"{REFUND} 4200 --reason duplicate"),
        (replace(DUPLICATE, currency="zzz"), None, ""),
        (replace(DUPLICATE, charge_id=None), None, ""),
        (Row(DriftKind.STATUS, "c", Repair.MERGE), None,
         "chargeonce reconcile --run billing-run/acct_1/2031-03 --repair"),
        (Row(DriftKind.ORPHAN, "pi_3", Repair.CANCEL, run_id=None), None,
         "chargeonce reconcile --since 2031-03-01T12:00:00+00:00 --account acct_1 --repair"),
        (Row(DriftKind.EVENT_GAP, "evt_1", Repair.KEEP_EVENT, run_id=None), "billing-run/a;rm -rf/1",
         "chargeonce reconcile --run 'billing-run/a;rm -rf/1' --repair"),
        (Row(DriftKind.AMOUNT, "c", Repair.RESOLVE), None,
         f"chargeonce resolve {CHARGE} --as DECISION --reason WHY"),
        (Row(DriftKind.ORPHAN, "pi_3", Repair.NONE), None, ""),
    ],
)  # fmt: skip
def test_a_difference_names_what_to_type(row: Row, run_id: str | None, typed: str) -> None:
    """The command is whole, with the charge, the PaymentIntent and the amount, and quoted for a shell."""
    assert command(row, run_id=run_id) == typed
    name = shlex.split(typed)[1] if typed else None
    assert name is None or name in typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_what_is_over_has_nothing_to_type() -> None:
    """A repaired difference stays in the report with its state, and asks for nothing."""
    report = drifting(REPAIRED)
    assert (report.verdict, report.findings[0].command) == ("clean", "")
    assert "to type:" not in shown(REPAIRED)


@pytest.mark.parametrize(
    ("kept", "rows", "verdict"),
    [
        (Kept(), (), "clean"),
        (Kept(), (DUPLICATE,), "drift"),
        (Kept(report=(Kept().report or {}) | {"incomplete": ["refunds: timeout"]}), (), "incomplete"),
        (Kept(phase="open", closed_at=None, report=None), (), "under way"),
        (Kept(phase="failed", report=None), (DUPLICATE,), "failed"),
    ],
)
def test_every_form_says_how_it_stands(kept: Kept, rows: tuple[Row, ...], verdict: str) -> None:
    """Clean is only said where everything was read and nothing is open."""
    report = drifting(*rows, kept=kept)
    assert json.loads(to_json(report.as_json()))["verdict"] == verdict
    assert shown(*rows, kept=kept)
    page = Page(to_html(report)).text
    assert ("Clean: ledger and Stripe agree." in page) is (verdict == "clean")
    said = report.totals is not None
    assert ("the span begins before" in page) is ("the span begins before" in shown(*rows, kept=kept)) is said


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    """What ends the writing leaves the old file, and no draft beside it."""
    path = tmp_path / "drift.csv"
    write_whole(path, "old")
    write_whole(path, "new \ud800\n")
    assert path.read_text() == "new \\ud800\n"
    path.chmod(0o400)
    folder = tmp_path / "none"
    with pytest.raises(InvalidInput, match="can't be written"):
        write_whole(folder / "drift.csv", "x")
    assert [one.name for one in tmp_path.iterdir()] == ["drift.csv"]


@pytest.mark.parametrize("name", ["none/drift.csv", ".", "/dev/null"])
def test_what_can_not_be_written_is_said_before_the_work(tmp_path: Path, name: str) -> None:
    """A folder that is not there, a folder, and a device are refused at once."""
    with pytest.raises(InvalidInput, match="can't be written"):
        refuse_unwritable(tmp_path / name)
