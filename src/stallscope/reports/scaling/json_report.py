"""JSON for programs: what docs/scaling.schema.json describes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stallscope.analysis.scaling import Point, Projected, Scaled, Series
from stallscope.arrays.stats import Mean

from ..base import ReportOptions
from ..json_report import valid

SCHEMA_VERSION = 1


def json_text(series: Sequence[Series], _options: ReportOptions) -> str:
    return json.dumps(document(series), indent=1, allow_nan=False) + "\n"


def document(series: Sequence[Series]) -> dict[str, Any]:
    """All series as one object; what is not known is None."""
    content: dict[str, Any] = valid(
        {"schema_version": SCHEMA_VERSION, "series": [_series(one) for one in series]}
    )
    return content


def _series(one: Series) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "synthetic": one.synthetic,
        "unit": one.unit,
        "points": [_point(scaled) for scaled in one.points],
        "alone": None if one.alone is None else _rates(one.alone),
        "projection": [_projected(there) for there in one.projection],
        "difference": None
        if one.difference is None
        else {"p": one.difference.p, "found": one.difference.found},
        "warnings": one.warnings,
    }


def _rates(point: Point) -> dict[str, Any]:
    return {
        "ranks": point.ranks,
        "samples_per_second": point.rate.value,
        "samples_per_second_ci95": point.rate.ci95,
        "samples_per_second_job": _value(point.job_rate),
        "samples_per_second_job_ci95": _ci95(point.job_rate),
        "step_ms": _value(point.step_ms),
        "runs": [run.run.id for run in point.runs],
    }


def _point(scaled: Scaled) -> dict[str, Any]:
    lost = scaled.lost
    return {
        **_rates(scaled.point),
        "efficiency": _value(scaled.efficiency),
        "efficiency_ci95": _ci95(scaled.efficiency),
        "efficiency_job": _value(scaled.efficiency_job),
        "efficiency_alone": _value(scaled.efficiency_alone),
        "relative_efficiency": scaled.relative.value,
        "lost": None if lost is None else {name: mean.value for name, mean in lost.items()},
        "lost_ci95": None if lost is None else {name: mean.ci95 for name, mean in lost.items()},
    }


def _projected(there: Projected) -> dict[str, Any]:
    return {
        "ranks": there.ranks,
        "samples_per_second": there.rate.value,
        "samples_per_second_ci95": there.rate.ci95,
        "efficiency": _value(there.efficiency),
        "efficiency_ci95": _ci95(there.efficiency),
    }


def _value(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value


def _ci95(mean: Mean | None) -> tuple[float, float] | None:
    return None if mean is None else mean.ci95
