"""How much is measured: sizes, repetitions, and which comparisons."""

from typing import get_args

from pydantic import BaseModel, ConfigDict, Field

from deploy.bench.jobs import CallStyle
from deploy.bench.pairs import PairPlan
from workflows.domain.errors import InvalidInput

STYLES: tuple[CallStyle, ...] = get_args(CallStyle)


class BenchPlan(BaseModel):
    """Everything that a bench does. Empty or 0 leaves a comparison out."""

    model_config = ConfigDict(frozen=True)

    pairs: tuple[PairPlan, ...]
    limit_rates_per_second: tuple[float, ...] = ()
    limit_seconds: float = 20.0
    limit_warm_up_seconds: float = 3.0
    kill_charges: int = Field(default=0, ge=0)
    per_call_charges: int = Field(default=0, ge=0)


def quick_plan(
    *, style: str | None = None, seconds: float | None = None, repetitions: int | None = None
) -> BenchPlan:
    """Return the plan of `--quick`. Raises InvalidInput for a style that there is not."""
    return BenchPlan(pairs=_pairs(style, seconds or 4.0, repetitions or 3))


def full_plan(
    *, style: str | None = None, seconds: float | None = None, repetitions: int | None = None
) -> BenchPlan:
    """Return the plan of everything. Raises InvalidInput for a style that there is not."""
    return BenchPlan(
        pairs=_pairs(style, seconds or 12.0, repetitions or 5),
        limit_rates_per_second=(25.0, 50.0),
        kill_charges=1_000,
        per_call_charges=10_000,
    )


def _pairs(style: str | None, seconds: float, repetitions: int) -> tuple[PairPlan, ...]:
    if style is not None and style not in STYLES:
        raise InvalidInput(f"--style is one of {', '.join(STYLES)}, not {style!r}")
    return tuple(
        PairPlan(
            call_style=name,
            repetitions=repetitions,
            at_once=64,
            warm_up_charges=500,
            seconds=seconds,
            charges_min=1_000,
            charges_max=10_000,
        )
        for name in STYLES
        if style in {None, name}
    )
