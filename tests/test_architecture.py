"""What no linter knows of this project: where things live, what may not be called, how large they are."""

import ast
import importlib
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT_FOLDERS = ("workflows", "activities", "worker", "deploy")
FOLDERS = (*PRODUCT_FOLDERS, "tests")

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is tracked or would be, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return tuple(sorted(Path(line) for line in listed.splitlines() if (ROOT / line).is_file()))


def python_files(*folders: str) -> list[Path]:
    """Python files below these folders, each a folder or a path such as workflows/domain."""
    return [
        path
        for path in project_files()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in folders)
    ]


@cache
def read(path: Path) -> str:
    """Return a project file's text."""
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def parse(path: Path) -> ast.Module:
    """Return a project file's syntax tree."""
    return ast.parse(read(path), filename=str(path))


def functions(path: Path) -> Iterator[Function]:
    """Every function and method of a file."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def assert_none(findings: Iterable[str]) -> None:
    """Fail with every finding, one a line."""
    found = sorted(findings)
    assert not found, "\n" + "\n".join(found)


# --- where things live -------------------------------------------------------------------------------------


def test_there_are_five_folders_and_no_sixth() -> None:
    """The folders are the layers, so a new top-level folder would be a new layer."""
    top = {path.parts[0] for path in project_files() if len(path.parts) > 1}
    assert {folder for folder in top if not folder.startswith(".")} == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_package_is_the_one_of_this_checkout(folder: str) -> None:
    """Names as plain as `workflows` could be anybody's: each must resolve to the folder beside this test."""
    assert importlib.import_module(folder).__file__ == str(ROOT / folder / "__init__.py")


def test_every_folder_of_python_files_is_a_package() -> None:
    """A folder of tests without __init__.py would shadow the package that it is named after."""
    folders = {path.parent for path in python_files(*FOLDERS)}
    assert_none(str(folder) for folder in folders if not (ROOT / folder / "__init__.py").is_file())


def test_the_workflow_package_runs_nothing_on_import() -> None:
    """workflows/__init__.py is run inside the sandbox for every workflow instance, so it is empty."""
    assert read(Path("workflows/__init__.py")) == ""


def test_no_module_is_a_drawer() -> None:
    """A module is named by what it knows; a drawer takes everything and is found by nobody."""
    drawers = re.compile(r"(^|_)(utils?|commons?|shared|managers?|helpers?|misc)(_|$)")
    assert_none(str(path) for path in python_files(*FOLDERS) if drawers.search(path.stem))


# --- what decisions may not do -----------------------------------------------------------------------------

IMPURE_MODULES = frozenset(
    {"io", "os", "pathlib", "random", "secrets", "socket", "subprocess", "sys", "threading", "time", "uuid"}
)
IMPURE_BUILTINS = frozenset({"open", "print", "input", "exec", "eval", "id", "hash"})
IMPURE_METHODS = frozenset({"now", "utcnow", "today", "time", "monotonic", "perf_counter", "uuid1", "uuid4"})


def impure_steps(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and name of what reads a clock, draws chance, or touches the machine."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, a.name) for a in names if a.name.split(".")[0] in IMPURE_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in IMPURE_MODULES:
                yield node.lineno, module
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_BUILTINS:
                yield node.lineno, name
            case ast.Call(func=ast.Attribute(value=ast.Name(id="workflow"))):
                continue  # Temporal's own deterministic clock and ids
            case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_METHODS:
                yield node.lineno, name


def test_decisions_read_no_clock_and_draw_no_chance() -> None:
    """Workflows and domain give the same answer for the same input, on every replay."""
    assert_none(
        f"{path}:{line}: {name}"
        for path in python_files("workflows")
        for line, name in impure_steps(parse(path))
    )


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.datetime.now()",
        "open('x')",
        "import uuid",
    ],
)
def test_an_impure_step_would_be_found(source: str) -> None:
    """The search above knows what it looks for."""
    assert list(impure_steps(ast.parse(source)))


def test_product_code_has_no_bare_assert() -> None:
    """`assert` vanishes under -O; product code calls invariant(), which never does."""
    assert_none(
        f"{path}:{node.lineno}"
        for path in python_files(*PRODUCT_FOLDERS)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Assert)
    )


# --- who speaks SQL and Stripe -----------------------------------------------------------------------------

SQL_START = re.compile(
    r"^\s*(SELECT\s|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s|"
    r"(CREATE|ALTER|DROP|GRANT|REVOKE|TRUNCATE|COPY)\s+[A-Z])"
)
SQL_METHODS = frozenset({"execute", "executemany", "fetch", "fetchrow", "fetchval", "prepare", "cursor"})
# DDL takes no parameters, so a name is quoted and put into the text: a checked role name, and databases and
# roles of the embedded server. Nothing else may build SQL.
BUILDS_DDL = frozenset({Path("activities/ledger/migrate.py"), Path("deploy/postgres.py")})


def may_speak_sql(path: Path) -> bool:
    """The ledger, what sets up roles and databases of the embedded server, and the bench, which looks on."""
    return (
        path.is_relative_to("activities/ledger")
        or path.is_relative_to("deploy/bench")
        or (path.parent == Path("deploy") and path.name.startswith("postgres"))
    )


def docstrings(tree: ast.Module) -> set[ast.expr]:
    """Return the nodes that are docstrings: prose about SQL is no SQL."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }


def sql_texts(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield string constants that begin as SQL does."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if node not in prose and SQL_START.match(text):
                yield node


def built_sql(tree: ast.Module) -> Iterator[int]:
    """Yield lines on which SQL is put together out of text and values."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=method), args=[first, *_]) if method in SQL_METHODS:
                if is_built(first):
                    yield node.lineno
            case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]) if SQL_START.match(text):
                yield node.lineno


def is_built(text: ast.expr) -> bool:
    """Whether a text is made by an f-string with values in it, by %, by + or by format()."""
    match text:
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) for value in values)
        case ast.BinOp() | ast.Call(func=ast.Attribute(attr="format" | "join" | "replace")):
            return True
        case _:
            return False


def test_sql_stands_in_the_ledger_only() -> None:
    """Statements outside the ledger would escape its guards, its tests and its reviewers."""
    assert_none(
        f"{path}:{text.lineno}"
        for path in python_files(*PRODUCT_FOLDERS)
        if not may_speak_sql(path)
        for text in sql_texts(parse(path))
    )


def test_sql_is_never_put_together_from_values() -> None:
    """Values travel as parameters: no f-string, %, + or format() makes a statement, but for quoted DDL."""
    assert_none(
        f"{path}:{line}"
        for path in python_files(*PRODUCT_FOLDERS)
        if path not in BUILDS_DDL
        for line in built_sql(parse(path))
    )


@pytest.mark.parametrize(
    "call",
    [
        'c.execute(f"SELECT {x}")',
        'c.fetch("SELECT %s" % x)',
        'c.fetchval("SELECT " + x)',
        'c.fetchrow("SELECT {}".format(x))',
        'query = f"SELECT 1 FROM t WHERE a = {x}"',
    ],
)
def test_built_sql_would_be_found(call: str) -> None:
    """The search above knows what it looks for."""
    assert list(built_sql(ast.parse(call)))


def imports(path: Path, package: str) -> Iterator[int]:
    """Yield the lines on which a file imports a package."""
    for node in ast.walk(parse(path)):
        match node:
            case ast.Import(names=names) if any(a.name.split(".")[0] == package for a in names):
                yield node.lineno
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] == package:
                yield node.lineno


def test_only_the_gateway_speaks_stripe() -> None:
    """The SDK is imported by the gateway, and by the bench that measures what is compared with it."""
    assert_none(
        f"{path}:{line}"
        for path in python_files(*PRODUCT_FOLDERS)
        if not path.is_relative_to("activities/gateway") and not path.is_relative_to("deploy/bench")
        for line in imports(path, "stripe")
    )


# --- how large and how told --------------------------------------------------------------------------------


def test_files_are_small() -> None:
    """A product file has at most 400 lines: it is read in one sitting."""
    sizes = {path: len(read(path).splitlines()) for path in python_files(*PRODUCT_FOLDERS)}
    assert_none(f"{path}: {lines}" for path, lines in sizes.items() if lines > FILE_LINES_MAX)


def test_functions_are_small() -> None:
    """A product function has at most 70 lines: it is seen at once."""
    assert_none(
        f"{path}:{function.lineno}: {function.name}"
        for path in python_files(*PRODUCT_FOLDERS)
        for function in functions(path)
        if (function.end_lineno or 0) - function.lineno + 1 > FUNCTION_LINES_MAX
    )


def test_every_test_states_its_fact() -> None:
    """A test function has a docstring, and a failure is read beside it."""
    assert_none(
        f"{path}:{function.lineno}: {function.name}"
        for path in python_files("tests")
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    )


def test_nothing_is_left_for_later() -> None:
    """What is to be done stands in the tracker, where somebody looks."""
    marker = re.compile(r"\b(TO" + r"DO|FIX" + r"ME)\b")
    assert_none(f"{path}:{number}" for path, number, line in text_lines() if marker.search(line))


def text_lines() -> Iterator[tuple[Path, int, str]]:
    """Every line of every file of the project."""
    for path in project_files():
        for number, line in enumerate(read(path).splitlines(), start=1):
            yield path, number, line


# --- what a stranger may run -------------------------------------------------------------------------------


def test_no_file_names_a_machine_or_a_registry() -> None:
    """The project runs anywhere: no home folder, no package index, no address but loopback stands in it."""
    machine = re.compile(r"(?<![\w.~*-])/(?:work|root|home|Users|tmp)" + r"/\w")
    registry = re.compile(
        r"(?:--|extra-|\b)index" + r"-url|pypi\.or" + r"g|python" + r"hosted|artifact" + r"ory"
    )
    assert_none(
        f"{path}:{number}: {line.strip()[:100]}"
        for path, number, line in text_lines()
        if machine.search(line) or registry.search(line)
    )


PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)")


def normal(name: str) -> str:
    """Return a distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, list[str]]:
    """Return the hashes of each pinned distribution. Fails on any other line but a comment."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in read(Path("requirements.txt")).splitlines():
        text = line.strip().removesuffix("\\").strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith("--hash=sha256:"):
            found[current].append(text)
            continue
        pin = PIN.match(text)
        assert pin is not None, f"not an exact pin: {line}"
        current = normal(pin["name"])
        found[current] = [part for part in text.split() if part.startswith("--hash=")]
    return found


def direct_dependencies() -> set[str]:
    """Return what pyproject.toml asks for, to run, to develop and to build."""
    project = tomllib.loads(read(Path("pyproject.toml")))
    listed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        listed += extra
    return {normal(re.split(r"[\s\[<>=!~;]", name)[0]) for name in listed}


def test_every_pin_has_hashes() -> None:
    """The installer is run with --require-hashes, so that nobody else's file can be installed."""
    assert_none(name for name, hashes in pins().items() if not hashes)


def test_every_direct_dependency_is_pinned() -> None:
    """What pyproject.toml asks for stands in requirements.txt with one version."""
    assert direct_dependencies() <= pins().keys()
