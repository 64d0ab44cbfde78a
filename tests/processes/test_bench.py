import json
from pathlib import Path

import pytest

from activities.sources.opening import open_source
from deploy.bench import book
from deploy.bench.customers import dues, write_source
from deploy.bench.durable import running_bench
from deploy.bench.measure import measure
from deploy.bench.measured import Spread
from deploy.bench.pairs import PairPlan
from deploy.bench.plan import BenchPlan, full_plan, quick_plan
from deploy.bench.report import render_report
from deploy.stripe_sim.client import read_customers
from worker.source_check import check_source
from workflows.domain.errors import InvalidInput

CHARGES = 30


def tiny_plan() -> BenchPlan:
    """Everything, as small as it can be."""
    pair = PairPlan(
        call_style="raw", repetitions=1, at_once=8, warm_up_charges=10, seconds=0.1,
        charges_min=CHARGES, charges_max=CHARGES,
    )  # fmt: skip
    return BenchPlan(
        pairs=(pair, pair.model_copy(update={"call_style": "typed"})),
        limit_rates_per_second=(40.0,),
        limit_seconds=1.5,
        limit_warm_up_seconds=0.5,
        kill_charges=120,
        per_call_charges=20,
    )


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_bench_reports_every_comparison(tmp_path: Path) -> None:
    """A tiny bench of everything has rates above 0, the parts' CPU, and the book's word on the kill."""
    report = await measure(tmp_path, tiny_plan(), lambda _: None)
    assert [pair.call_style for pair in report.pairs] == ["raw", "typed"]
    for pair in report.pairs:
        assert pair.charges == CHARGES
        assert min(pair.loop_rate.least, pair.durable_whole_rate.least, pair.ratio_whole.least) > 0
        assert pair.durable_charging_rate.median >= pair.durable_whole_rate.median
        assert set(pair.durable_cpu_ms_per_charge) == {"worker", "postgres", "temporal", "simulator"}
    assert [limit.rate_per_second for limit in report.limits] == [40.0]
    assert 0.5 < report.limits[0].share_create < 1.2
    assert report.kill is not None
    assert (report.kill.payments, report.kill.double_charges) == (120, 0)
    assert report.kill.in_flight > 0
    assert report.kill.repeated_requests <= report.kill.in_flight
    assert report.per_call is not None
    assert report.per_call.ratio > 0
    assert json.loads(report.model_dump_json())["machine"]["cores"] >= 1
    assert list(render_report(report))


async def test_a_run_that_the_book_does_not_show_is_no_measurement(tmp_path: Path) -> None:
    """Speed is reported only if the simulator's book shows everybody charged once."""
    async with running_bench(tmp_path, {}, durable=False) as bench:
        before = book.read_summary(bench.url)
        book.charged_once(bench.url, before, 0)
        with pytest.raises(book.BookDisagrees, match="3 were due, the book has 0 payments"):
            book.charged_once(bench.url, before, 3)


async def test_repetitions_have_customers_of_their_own(tmp_path: Path) -> None:
    """Labels never share a customer, and the source of one names each of its customers with a card."""
    everybody = dues("a", 20)
    assert not {due.customer for due in everybody} & {due.customer for due in dues("b", 20)}
    write_source(tmp_path / "source.csv", everybody)
    checked = await check_source(open_source(str(tmp_path / "source.csv")))
    assert (checked.lines, list(checked.problems)) == (20, [])
    assert [row["id"] for row in read_customers(tmp_path / "source.csv")] == [d.customer for d in everybody]


def test_a_spread_quotes_median_least_and_most() -> None:
    """Medians stand with least and most."""
    assert str(Spread.of([3.0, 1.0, 2.0])) == "2 (1-3)"


def test_plans_measure_both_styles_unless_told() -> None:
    """Quick is pairs alone; full has everything; a style that there is not is refused."""
    assert [pair.call_style for pair in quick_plan().pairs] == ["raw", "typed"]
    assert not quick_plan().per_call_charges
    assert full_plan(style="raw").per_call_charges == 10_000
    with pytest.raises(InvalidInput, match="--style is one of raw, typed"):
        quick_plan(style="rough")
