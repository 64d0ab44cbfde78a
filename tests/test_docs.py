"""What the documents promise exists: commands, options, diagrams, reasons."""

import importlib
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from deploy.cli import app
from workflows.domain.states import mermaid

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = re.compile(r"^(?:\.venv/bin/)?chargeonce(?P<arguments>\s.*)?$")
# Where an application of its own answers behind a command that forwards.
FORWARDED = {
    name: module
    for name, module in {"sim": "deploy.stripe_sim.cli", "bench": "deploy.bench.cli"}.items()
    if importlib.util.find_spec(module) is not None
}


def read(name: str) -> str:
    """Return the text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def commands_shown(text: str) -> list[str]:
    """Every line of a code block and every inline code that runs something, without prompt and comment."""
    blocks = re.findall(r"^```(?:\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.strip().removeprefix("$ ") for line in [*lines, *re.findall(r"`([^`\n]+)`", prose)]]


def chargeonce_commands(text: str) -> list[str]:
    """The arguments of each `chargeonce` command that a text shows."""
    found = [PROGRAM.match(command) for command in commands_shown(text)]
    return sorted({(match["arguments"] or "").strip() for match in found if match})


def forwarded(name: str) -> Any:
    """Return the command behind a command that forwards."""
    return typer.main.get_command(importlib.import_module(FORWARDED[name]).app)


def parse(command: Any, name: str, arguments: list[str], parent: Any = None) -> None:
    """Parse a command line and run nothing. Raises a usage error for what the application does not know."""
    context = command.make_context(name, list(arguments), parent=parent)
    # A group leaves what follows its own options: the subcommand and its arguments.
    rest = [*context._protected_args, *context.args] if hasattr(command, "commands") else []
    if not rest:
        return
    child = command.get_command(context, rest[0])
    assert child is not None, f"no command {rest[0]!r} in {name!r}"
    if name == "chargeonce" and rest[0] in FORWARDED:
        parse(forwarded(rest[0]), rest[0], rest[1:])
    else:
        parse(child, rest[0], rest[1:], context)


def parse_line(arguments: str) -> None:
    """Parse what follows `chargeonce` on a command line."""
    words = shlex.split(arguments, comments=True)
    if words:
        parse(typer.main.get_command(app), "chargeonce", words)


@cache
def every_command() -> dict[str, Any]:
    """Every command that does something, by its words, also those behind a forwarding command."""
    found: dict[str, Any] = {}
    for words, command in _walk(typer.main.get_command(app), "chargeonce"):
        name = words.removeprefix("chargeonce ")
        if name in FORWARDED:
            found |= dict(_walk(forwarded(name), words))
        else:
            found[words] = command
    return found


def _walk(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    children: dict[str, Any] = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _walk(child, f"{words} {name}")
    if not children or command.invoke_without_command:
        yield words, command


def examples_of(command: Any) -> list[str]:
    """Return the example lines of a command's --help, without the program's name."""
    epilog = (command.epilog or "").replace("\b", "")
    parts = re.split(r"\n|\s{2,}|Examples?:", epilog)
    return [line for part in parts if (line := part.strip().removeprefix("chargeonce "))]


README_COMMANDS = chargeonce_commands(read("README.md"))


def test_the_readme_shows_commands() -> None:
    """The README shows how to run the program, and the search below finds it."""
    assert len(README_COMMANDS) >= 5


@pytest.mark.parametrize("arguments", README_COMMANDS)
def test_a_command_of_the_readme_exists(arguments: str) -> None:
    """Each command line of the README parses: command, options and arguments are there."""
    parse_line(arguments)


def test_a_command_that_is_not_there_would_be_noticed() -> None:
    """The check above knows what it looks for."""
    with pytest.raises(AssertionError, match="no command"):
        parse_line("run begin")
    for line in ("run list --colour", "sim seed", "run start --yes"):
        with pytest.raises(Exception, match=r"(?i)no such option|missing"):
            parse_line(line)


def test_every_make_target_of_the_readme_exists() -> None:
    """Each `make` that the README shows is a target, and demo and test are among them."""
    shown = {
        words[1]
        for command in commands_shown(read("README.md"))
        if len(words := command.split()) >= 2 and words[0] == "make"
    }
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    assert {"demo", "test"} <= shown <= targets


@pytest.mark.parametrize("words", every_command())
def test_a_command_has_help_and_an_example(words: str) -> None:
    """--help of every command says what it does and shows a line to copy, which parses."""
    command = every_command()[words]
    assert command.help
    examples = examples_of(command)
    assert examples
    assert examples[0].startswith(words.removeprefix("chargeonce "))
    for example in examples:
        parse_line(example)


def test_the_diagram_is_the_table() -> None:
    """The state diagram of the README is drawn from the one table of transitions."""
    match = re.search(
        r"<!-- states -->\n```mermaid\n(.*?)\n```\n<!-- /states -->", read("README.md"), re.DOTALL
    )
    assert match is not None
    assert match[1] == mermaid()


def test_the_readme_says_which_folders_there_are() -> None:
    """The five folders stand in the README."""
    for folder in ("workflows/", "activities/", "worker/", "deploy/", "tests/"):
        assert f"`{folder}`" in read("README.md")


def test_a_link_leads_somewhere() -> None:
    """Each relative link of a document names a file of the project."""
    for name in ("README.md", "DECISIONS.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", read(name)):
            assert (ROOT / target).exists(), f"{name} → {target}"


def test_every_direct_dependency_has_its_reason() -> None:
    """DECISIONS.md names each library that pyproject.toml asks for; plugins of pytest by their own word."""
    project = tomllib.loads(read("pyproject.toml"))
    listed = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        listed += extra
    decisions = read("DECISIONS.md")
    missing = [
        name
        for name in listed
        if not re.search(rf"(?<![\w-]){re.escape(name.removeprefix('pytest-'))}(?![\w-])", decisions)
    ]
    assert missing == []


def test_the_changelog_tells_of_this_version() -> None:
    """CHANGELOG.md has a section for what is being built or was released last."""
    version = tomllib.loads(read("pyproject.toml"))["project"]["version"]
    assert re.search(rf"^## \[?({re.escape(version)}|Unreleased)\b", read("CHANGELOG.md"), re.MULTILINE)
