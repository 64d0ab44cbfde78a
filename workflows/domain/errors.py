"""Whose fault is it? The exception tree, drawn once.

```
ChargeonceError
├── InvalidInput          theirs: a value from outside that can't be billed exactly
├── RefusedToStart        theirs or the operator's: nothing was begun, and why
│   └── CredentialsRefused   a key does not open what it should: only a person mends that
├── InvariantViolation    ours: a promise of DESIGN.md does not hold; stop before money moves
├── StaleWrite            nobody's: the row moved on, so this writer has been superseded
└── NothingWasSent        nobody's: a local wait or a connection failed before the first byte left
```

What Stripe answers is never an exception here: a decline, a refusal and an unknown outcome are values
(`workflows.domain.verdict`).
"""


class ChargeonceError(Exception):
    """The root of every error that the project raises itself."""


class InvalidInput(ChargeonceError):
    """A value from outside can't be billed exactly. `reason` says which and why, in one short text."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class RefusedToStart(ChargeonceError):
    """Nothing was begun; the message says what stands in the way and what to do."""


class CredentialsRefused(RefusedToStart):
    """A key does not open what it should, by the word of whoever guards it. Trying again says the same."""


class InvariantViolation(ChargeonceError):
    """A promise does not hold. Going on could move money wrongly, so nothing goes on."""


class StaleWrite(ChargeonceError):
    """A guarded write matched no row: another writer owns the charge now."""


class NothingWasSent(ChargeonceError):
    """A local wait (pool, limiter, lock) failed before anything left this machine."""


def invariant(holds: object, promise: str) -> None:
    """Raise InvariantViolation unless `holds`.

    Unlike `assert`, this runs in production and under `-O`: a catastrophe becomes a stop.
    """
    if not holds:
        raise InvariantViolation(promise)
