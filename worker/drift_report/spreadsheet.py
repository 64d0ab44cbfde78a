"""A drift report as CSV: one row a difference, every text cell inert to a spreadsheet."""

import csv
import io
from datetime import datetime
from typing import Any

from activities.spreadsheet_cells import neutral_cell
from worker.drift_report.findings import DriftReport, Finding
from workflows.domain.echo import readable

COLUMNS = (
    "kind", "subject", "account", "run_id", "charge_id", "customer", "line", "payment_intents",
    "ledger_says", "stripe_says", "repair", "amount_minor", "currency", "command", "repair_state",
    "repair_detail", "occurred_at", "first_seen_at", "age_seconds", "last_seen_at", "ended_at",
)  # fmt: skip


def to_csv(report: DriftReport) -> str:
    """Return the differences as CSV (RFC 4180), the header first; times in ISO 8601, amounts in minor units.

    Control and format characters in names are shown as escapes, so that a cell is what it looks like.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for finding in report.findings:
        writer.writerow(_cell(_value_of(finding, column)) for column in COLUMNS)
    return text.getvalue()


def _value_of(finding: Finding, column: str) -> Any:
    if column == "payment_intents":
        return " ".join(finding.payment_intents)
    return round(finding.age_seconds) if column == "age_seconds" else getattr(finding, column)


def _cell(value: Any) -> str | int:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, int) else neutral_cell(readable(str(value)))
