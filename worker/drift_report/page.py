"""A drift report as one HTML file that loads nothing and runs nothing."""

from datetime import datetime
from pathlib import Path
from typing import Any

from worker.drift_report.findings import MEANINGS, REPAIRS, DriftReport
from worker.plan_preview import describe_duration
from workflows.domain.echo import readable

_TEMPLATE = "page.html.jinja"
# The page is opened from a mail or a share: whatever a name in it says, it may load and run nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def to_html(report: DriftReport) -> str:
    """Return the page. Every value is escaped, and control and bidirectional characters are shown as such."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - slow, and seldom used

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters["age"] = describe_duration
    environment.filters["moment"] = _moment
    template = environment.get_template(_TEMPLATE)
    return template.render(report=report, meanings=MEANINGS, repairs=REPAIRS, policy=POLICY)


def _shown(value: Any) -> Any:
    # `Markup` of the template itself is a str as well, and holds nothing that is not printable.
    return readable(value) if type(value) is str else value


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S %Z}"
