"""How a command ends when it does not end well: one line for people, one object for scripts, one exit code.

Exit codes are a promise to scripts (DESIGN.md section 7): 0 good, 2 usage, 3 drift or duplicates found,
4 refused to start, 1 anything else.
"""

import os
import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer

from worker.console_output import Output
from workflows.domain.errors import ChargeonceError, InvalidInput, RefusedToStart

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DRIFT = 3
EXIT_REFUSED = 4

TRACEBACK_VARIABLE = "CHARGEONCE_TRACEBACK"
_SECRETS = re.compile(
    r"\b((?:sk|rk|whsec)_(?:live_|test_)?)\w+"
    r"|\b(vk_(?:live|test)_[0-9A-Za-z]{10})[0-9A-Za-z]+"  # what comes before is the key's public id
    r"|(://[^\s:/@]+:)[^\s@]+(?=@)"
)


class CommandFailed(ChargeonceError):
    """A command has an answer that is no success: `details` for scripts, the message for people."""

    def __init__(self, message: str, *, exit_code: int, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.details = dict(details or {})


@contextmanager
def reported(output: Output) -> Iterator[None]:
    """Turn whatever the block raises into a line or an object, and an exit code. Never a traceback."""
    try:
        yield
    except typer.Exit:
        raise
    except KeyboardInterrupt:
        raise _ended(output, "interrupted", EXIT_FAILED) from None
    except CommandFailed as error:
        raise _ended(output, str(error), error.exit_code, error.details) from None
    except ChargeonceError as error:
        raise _ended(output, str(error), exit_code_of(error)) from None
    except Exception as error:  # noqa: BLE001 - a person at a terminal is owed one line, whatever it was
        if os.environ.get(TRACEBACK_VARIABLE):
            output.notice(without_secrets("".join(traceback.format_exception(error))))
        text = " ".join(str(error).split())
        raise _ended(
            output,
            f"unexpected {type(error).__name__}: {text} (set {TRACEBACK_VARIABLE}=1 to see where)",
            EXIT_FAILED,
        ) from None


def without_secrets(text: str) -> str:
    """Return the text with API keys and the passwords of URLs blanked out."""
    return _SECRETS.sub(lambda match: f"{match[1] or match[2] or match[3]}***", text)


def exit_code_of(error: Exception) -> int:
    """Return the exit code of a command that ends by this error."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, InvalidInput):
        return EXIT_USAGE
    return EXIT_REFUSED if isinstance(error, RefusedToStart) else EXIT_FAILED


def _ended(
    output: Output, message: str, exit_code: int, details: Mapping[str, Any] | None = None
) -> typer.Exit:
    output.failure(without_secrets(message), details or {})
    return typer.Exit(exit_code)
