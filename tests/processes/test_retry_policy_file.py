from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from worker.cli import app
from worker.retry_policy_file import parse_retry_policy, read_retry_policy, render_retry_policy
from workflows.domain.errors import InvalidInput
from workflows.domain.retry_policy import DEFAULT_POLICY, NOTHING_AFTERWARDS, Method, RetryPolicy, RetryRule

codes = st.lists(st.text('abc_"\\03é', min_size=1, max_size=8), unique=True, max_size=5).map(tuple)
rules = st.builds(
    RetryRule,
    st.text('abc "\\', min_size=1, max_size=8),
    st.lists(st.integers(1, 28), unique=True, max_size=4).map(lambda days: tuple(sorted(days))),
    st.sampled_from(Method),
    codes.filter(bool),
    codes,
    codes,
)


def same(policy: RetryPolicy) -> RetryPolicy:
    """Return a policy as it is printed: what is never retried needs no payment method."""
    kept = [
        rule
        if rule.retry_after_days
        else RetryRule(
            rule.name, (), Method.RE_RESOLVE, rule.decline_codes, rule.advice_codes, rule.network_advice_codes
        )
        for rule in policy.rules
    ]
    return RetryPolicy(tuple(kept), policy.otherwise, policy.customer_days, policy.debit_days)


@pytest.mark.parametrize("policy", [DEFAULT_POLICY, NOTHING_AFTERWARDS])
def test_what_is_printed_is_read_back(policy: RetryPolicy) -> None:
    """`show > file` and `--retry-policy file` change nothing."""
    assert parse_retry_policy(render_retry_policy(policy)) == policy


@given(st.lists(rules, max_size=3, unique_by=lambda rule: rule.name), st.integers(0, 30))
def test_any_policy_is_read_back(some: list[RetryRule], days: int) -> None:
    """Quotes and backslashes in names and codes too."""
    policy = RetryPolicy(rules=tuple(some), customer_days=days)
    assert parse_retry_policy(render_retry_policy(policy)) == same(policy)


def test_an_empty_file_is_the_default_without_rules() -> None:
    """What is left out is as in the default; rules are not, or nobody could do without them."""
    assert parse_retry_policy("") == RetryPolicy()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("retries = 3", "'retries': there is no such key"),
        ("rule = 3", r"rule: is written \[\[rule\]\]"),
        ('[[rule]]\nname = "x"', r"rule\[1\].retry_after_days: is missing"),
        ('[[rule]]\nretry_after_days = []\ndecline_codes = ["x"]', r"rule\[1\].name"),
        ('[[rule]]\nname = "x"\nretry_after_days = [1]', r"rule\[1\].decline_codes: the rule names no code"),
        (
            '[[rule]]\nname = "x"\nretry_after_days = [0]\ndecline_codes = ["y"]',
            r"rule\[1\].retry_after_days",
        ),
        ('[[rule]]\nname = "x"\nretry_after_days = [1.5]\ndecline_codes = ["y"]', "whole days"),
        (
            '[[rule]]\nname = "x"\nretry_after_days = [1]\ndecline_codes = "y"',
            r"rule\[1\].decline_codes: a list",
        ),
        ('[[rule]]\nname = "x"\nretry_after_days = [1]\ndecline_codes = [51]', "codes are texts"),
        ("[otherwise]\nretry_after_days = [3, 2]", "otherwise.retry_after_days"),
        ('[otherwise]\npayment_method = "newest"', "re-resolve or same or replaced"),
        ("[otherwise]\ndecline_codes = []", "'otherwise.decline_codes'"),
        (
            "[needs_customer]\ngive_up_after_days = 31",
            "needs_customer.give_up_after_days: whole days, 0 to 30",
        ),
        ("[processing]\ngive_up_after_days = true", "processing.give_up_after_days"),
        ("processing = 3", "processing: is a table"),
        ("[processing", "not TOML"),
    ],
)
def test_a_mistake_is_named_by_its_key(text: str, named: str) -> None:
    """Whoever wrote the file is told where, and what would be right."""
    with pytest.raises(InvalidInput, match=named):
        parse_retry_policy(text)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """As is one that is no text."""
    with pytest.raises(InvalidInput, match=r"nothing.toml: can't be read"):
        read_retry_policy(tmp_path / "nothing.toml")
    (tmp_path / "image.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"image.toml: is not UTF-8"):
        read_retry_policy(tmp_path / "image.toml")


def test_the_commands_print_and_check_it(tmp_path: Path) -> None:
    """What `show` prints passes `check`, which says in plain words what it does; a mistake exits 2."""
    shown = CliRunner().invoke(app, ["retry-policy", "show"])
    assert shown.exit_code == 0
    file = tmp_path / "retries.toml"
    file.write_text(shown.stdout)
    checked = CliRunner().invoke(app, ["retry-policy", "check", str(file)])
    assert checked.exit_code == 0
    assert "all other declines: tried again 3, 5, 7 days after the first decline" in checked.stdout
    file.write_text("[otherwise]\nretry_after_days = [0]")
    assert CliRunner().invoke(app, ["retry-policy", "check", str(file)]).exit_code == 2
