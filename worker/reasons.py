"""Why somebody decides something, as it may stand on record for good."""

from pydantic import TypeAdapter, ValidationError

from workflows.contracts import Words
from workflows.domain.errors import InvalidInput

REASON_RULE = (
    "a reason has 1 to 1,000 characters that can be seen, and of control characters only line breaks and tabs"
)
_WORDS = TypeAdapter(Words)


def read_reason(text: str) -> str:
    """Return a reason without the blanks around it.

    Raises:
        InvalidInput: It is blank, too long or no plain text.
    """
    if not text.strip():
        raise InvalidInput("--reason is empty: say why in a few words; it stays on record")
    try:
        return _WORDS.validate_python(text)
    except ValidationError:
        raise InvalidInput(REASON_RULE) from None
