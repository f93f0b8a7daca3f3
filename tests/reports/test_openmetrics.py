"""OpenMetrics as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from support.reports import rendered

from stallscope.analysis import Analysis
from stallscope.reports.report_formats import ReportOptions

from .cases import NAMES


def samples(analysis: Analysis, options: ReportOptions) -> dict[tuple[str, ...], float]:
    """Return values by name and labels, without the run's id, as Prometheus's own parser reads them."""
    text = rendered("openmetrics", analysis, options)
    values = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels.pop("run_id")
            values[(sample.name, *sample.labels.values())] = sample.value
    return values


@pytest.mark.parametrize("name", NAMES)
def test_prometheus_reads_every_run(
    name: str, case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    values = samples(case(name), options)
    assert [key for key in values if key[0] == "stallscope_run_info"]


def test_figures_are_those_of_the_analysis_in_seconds(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    analysis = case("a slow rank and a baseline")
    values = samples(analysis, options)
    assert analysis.step is not None
    assert values["stallscope_step_mean_seconds",] == analysis.step.mean / 1e3
    assert values["stallscope_step_seconds", "0.95"] == analysis.step.p95 / 1e3
    stages = [value for key, value in values.items() if key[0] == "stallscope_stage_seconds"]
    assert sum(stages) == pytest.approx(analysis.step.mean / 1e3)
    imbalance = analysis.entry("imbalance")
    assert imbalance is not None
    waits = [v for key, v in values.items() if key[0] == "stallscope_stage_waiting_seconds"]
    assert len(waits) == 3
    assert sum(waits) == pytest.approx(imbalance.ms / 1e3)
    assert values["stallscope_ranks",] == 4
    assert values["stallscope_baseline_gap_ratio",] == analysis.gap
    assert values["stallscope_fix_speedup_ratio", "imbalance"] > 1.1
    low, saved, high = (
        values[f"stallscope_fix_saved_{end}seconds", "imbalance"] for end in ("low_", "", "high_")
    )
    assert 0 < low <= saved <= high
    assert values["stallscope_slow_ranks",] == 1
    assert values["stallscope_fault",] == values["stallscope_completed",] == 1
    assert values["stallscope_stopped_seconds",] == 0
    assert analysis.goodput is not None
    assert values["stallscope_goodput_ratio",] == analysis.goodput.fraction
    lost = [value for key, value in values.items() if key[0] == "stallscope_goodput_lost_seconds"]
    assert sum(lost) == pytest.approx(sum(analysis.goodput.lost_s.values()))


def test_unmeasured_values_are_absent(
    case: Callable[[str], Analysis], options: ReportOptions
) -> None:
    names = {key[0] for key in samples(case("host stamps only"), options)}
    assert "stallscope_step_mean_seconds" in names
    assert not names & {"stallscope_stage_seconds", "stallscope_fix_speedup_ratio"}
    assert "stallscope_baseline_gap_ratio" not in names
    assert "stallscope_steps" not in {key[0] for key in samples(case("epochs only"), options)}


def test_labels_are_escaped(case: Callable[[str], Analysis], options: ReportOptions) -> None:
    analysis = case("hostile names")
    (info,) = [key for key in samples(analysis, options) if key[0] == "stallscope_run_info"]
    assert '<script>alert(1)</script>"><img src=x' in info[1]
