"""`python -m tests.write_readme` draws what the README generates from the code: the state diagram."""

import re
from pathlib import Path

from workflows.domain.states import mermaid

README = Path(__file__).resolve().parents[1] / "README.md"
_BLOCK = re.compile(r"(<!-- states -->\n).*?(<!-- /states -->)", re.DOTALL)


def with_diagram(text: str) -> str:
    """Return the README's text with the diagram drawn anew."""
    return _BLOCK.sub(lambda match: f"{match[1]}```mermaid\n{mermaid()}\n```\n{match[2]}", text)


if __name__ == "__main__":
    README.write_text(with_diagram(README.read_text(encoding="utf-8")), encoding="utf-8")
