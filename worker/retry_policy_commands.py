"""`chargeonce retry-policy`: what a run does over days about what is not paid, as TOML."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from worker.console_output import Output
from worker.failures import reported
from worker.retry_policy_file import read_retry_policy, render_retry_policy
from workflows.domain.retry_policy import DEFAULT_POLICY, RetryPolicy, RetryRule

EXAMPLES_SHOW = "\b\nExamples:\n  chargeonce retry-policy show"
EXAMPLES_CHECK = "\b\nExamples:\n  chargeonce retry-policy check retries.toml"

retry_policy_app = typer.Typer(
    help="What a run does, over days, about what is not paid: declines, customers, debits.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]


@retry_policy_app.command("show", epilog=EXAMPLES_SHOW)
def show(*, as_json: _AsJson = False) -> None:
    """Print the policy of a run that is started without --retry-policy, as a file to begin with."""
    output = Output(as_json=as_json)
    with reported(output):
        output.result(_document(DEFAULT_POLICY), lambda: render_retry_policy(DEFAULT_POLICY).splitlines())


@retry_policy_app.command("check", epilog=EXAMPLES_CHECK)
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A policy as `retry-policy show` prints it.")],
    *,
    as_json: _AsJson = False,
) -> None:
    """Read a policy and say in plain words what it does. Exits 2, naming the key, where it can't be right."""
    output = Output(as_json=as_json)
    with reported(output):
        policy = read_retry_policy(file)
        output.result(_document(policy), lambda: list(describe_policy(policy)))


def describe_policy(policy: RetryPolicy) -> Iterator[str]:
    """Yield a policy in plain words, a line for each rule."""
    for rule in policy.rules:
        codes = (*rule.decline_codes, *rule.advice_codes, *rule.network_advice_codes)
        named = ", ".join(codes[:4]) + (f" and {len(codes) - 4} more" if len(codes) > 4 else "")
        yield f"{rule.name} ({named}): {_describe_rule(rule)}"
    yield f"all other declines: {_describe_rule(policy.otherwise)}"
    customer, debit = policy.customer_days, policy.debit_days
    handed = f"handed over once, given up after {customer} days" if customer else "not waited for"
    yield f"needs_customer: {handed}"
    yield f"processing: {f'asked about daily for {debit} days' if debit else 'not waited for'}"


def _describe_rule(rule: RetryRule) -> str:
    if not rule.retry_after_days:
        return "never tried again"
    days = ", ".join(str(day) for day in rule.retry_after_days)
    return f"tried again {days} days after the first decline, payment method {rule.payment_method}"


def _document(policy: RetryPolicy) -> dict[str, Any]:
    return asdict(policy)
