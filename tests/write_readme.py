"""`python -m tests.write_readme` draws what the README generates from the code."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.failure_modes.catalogue import draw_table
from workflows.domain.states import mermaid

README = Path(__file__).resolve().parents[1] / "README.md"


def draw_states() -> str:
    """Return the state diagram as a block of Markdown."""
    return f"```mermaid\n{mermaid()}\n```"


BLOCKS: Final[dict[str, Callable[[], str]]] = {"states": draw_states, "failure-modes": draw_table}


def with_blocks(text: str) -> str:
    """Return the README's text with every generated block drawn anew; each must have its markers."""
    for name, draw in BLOCKS.items():
        before, _, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if not end:
            raise ValueError(f"the README has no markers for {name}")
        text = f"{before}<!-- {name} -->\n{draw()}\n{end}{after}"
    return text


if __name__ == "__main__":
    README.write_text(with_blocks(README.read_text(encoding="utf-8")), encoding="utf-8")
