"""The words of `--allow`: what each opens, and which of them say what a key may do."""

import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from workflows.domain.echo import echo
from workflows.domain.errors import InvalidInput
from workflows.domain.vault import ENDPOINTS, SCOPES, Effect

WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "reads": frozenset(endpoint for endpoint, effect in ENDPOINTS.items() if effect is Effect.READ),
        **{scope.value: endpoints for scope, endpoints in SCOPES.items()},
    }
)

_SINGLE_SHOWN_MAX = 2
_HELP_COLUMNS = 78
_SAYS: Mapping[Effect, str] = MappingProxyType(
    {
        Effect.READ: "reads",
        Effect.HARMLESS: "writes, moves no money",
        Effect.PREPARE: "creates; counted if it confirms at once",
        Effect.CHANGE: "changes what a confirm would move",
        Effect.CONFIRM: "moves money: counted",
        Effect.CAPTURE: "moves money: counted",
        Effect.INCREMENT: "moves money: counted",
        Effect.CANCEL: "ends it; gives back what was held",
        Effect.REFUND: "moves money back: counted",
    }
)


def read_allow(words: Sequence[str]) -> frozenset[str]:
    """Return the endpoints that these words mean; raises InvalidInput where one means none."""
    allow: set[str] = set()
    for word in words:
        found = WORDS.get(word) or ({word} if word in ENDPOINTS else None)
        if found is None:
            raise InvalidInput(
                f"{echo(word)} can't be allowed: it is neither {', '.join(WORDS)} nor an endpoint of "
                "`chargeonce vault endpoints`, such as 'POST /v1/payment_intents/{id}/confirm'"
            )
        allow |= found
    if not allow:
        raise InvalidInput("say what the key may do: --allow reads, or --allow 'POST /v1/payment_intents'")
    return frozenset(allow)


def describe_allow(allow: Collection[str]) -> str:
    """Return words, and endpoints beside them, that mean exactly these endpoints: the largest words first."""
    if set(allow) >= ENDPOINTS.keys():
        return "everything"
    left, names = set(allow), []
    for word, endpoints in sorted(WORDS.items(), key=lambda item: -len(item[1])):
        if endpoints <= set(allow) and endpoints & left:
            names.append(word)
            left -= endpoints
    single = sorted(left)
    if len(single) > _SINGLE_SHOWN_MAX:
        single = [*single[:_SINGLE_SHOWN_MAX], f"{len(single) - _SINGLE_SHOWN_MAX} more"]
    return ", ".join([*names, *single])


def say_effect(endpoint: str) -> str:
    """Return what an endpoint of the catalog does to money, in a few words."""
    return _SAYS[ENDPOINTS[endpoint]]


def explain_words() -> str:
    """Return a line or two for each word: what it opens, for --help."""
    indent = " " * 12
    return "\n".join(
        textwrap.fill(
            _in_short(endpoints), width=_HELP_COLUMNS, initial_indent=f"  {word:10}", subsequent_indent=indent
        )
        for word, endpoints in WORDS.items()
    )


def _in_short(endpoints: frozenset[str]) -> str:
    reads = WORDS["reads"]
    if endpoints == reads:
        return f"every GET of the catalog ({len(reads)} endpoints); moves nothing"
    shown = _by_method(endpoints - reads if endpoints > reads else endpoints)
    return f"every GET, and {shown}" if endpoints > reads else shown


def _by_method(endpoints: Iterable[str]) -> str:
    parts = []
    for method in ("GET", "POST"):
        paths = sorted(name.removeprefix(f"{method} /v1/") for name in endpoints if name.startswith(method))
        if paths:
            parts.append(f"{method} {', '.join(paths)}")
    return "; ".join(parts)
