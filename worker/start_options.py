"""The options of `chargeonce run start`, as its help shows them."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Month = Annotated[
    str,
    typer.Option(
        help="What to bill: a month such as 2031-03, a quarter 2031-Q1, a week 2031-W09 (ISO), a day "
        "2031-03-01, or a label of your own: x-..."
    ),
]
SourceSpec = Annotated[
    str,
    typer.Option(
        help="A .csv, .parquet or .jsonl file, sql:NAME:QUERY.sql, entry:NAME[:ARGUMENT], or - for standard "
        "input. Columns: customer, currency, amount or amount_minor; optional payment_method, line, "
        "description. The workers read it at this path."
    ),
]
Account = Annotated[str | None, typer.Option(help="Whose money, where there are several accounts: acct_...")]
Again = Annotated[
    bool,
    typer.Option(
        "--again",
        help="Bill a period once more that has had its run: lines that it did not have, and lines that ended "
        "unpaid. What was paid is left out.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Charge whatever the plan is, without asking.")]
Approve = Annotated[
    str | None,
    typer.Option(metavar="HASH", help="Charge only the plan of this hash (the whole of it), as previewed."),
]
Preview = Annotated[
    bool, typer.Option("--preview", help="Show the plan, its hash and who is not charged; start nothing.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Show progress until the run has closed, or all that is left waits for more than 60 s or does "
        "not settle for 120 s (exit code 1: not finished). With no stack running, bring one up.",
    ),
]
CanaryLines = Annotated[
    int, typer.Option(min=0, max=5_000, metavar="N", help="Charge the first N lines, then hold the run.")
]
CanaryMaxDeclined = Annotated[
    float | None,
    typer.Option(
        min=0,
        max=100,
        metavar="PERCENT",
        help="Go on by itself after a canary of which at most so many ended unpaid and none unknown.",
    ),
]
SmallLines = Annotated[
    Literal["carry-forward", "waive", "charge"],
    typer.Option(
        help="What becomes of lines below Stripe's minimum: recorded as owed (nothing bills that later: add "
        "it to a later source yourself), given up, or sent, which Stripe refuses."
    ),
]
ChangePercent = Annotated[
    float, typer.Option(min=0, max=1_000_000, help="Show lines that changed by more since the month before.")
]
DurationLimit = Annotated[
    float | None,
    typer.Option(min=0.001, metavar="MINUTES", help="How long the charging may take; its report tells."),
]
RetryPolicyFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="What to do over days about declines, customers and debits: see `chargeonce retry-policy show`.",
    ),
]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Record rows that can't be billed as skipped, and go on.")
]
SliceSize = Annotated[int, typer.Option(min=1, max=5_000, help="Lines that one worker takes at a time.")]
