"""The JSON of scaling, which docs/scaling.schema.json describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.analysis.scaling import Point, Projected, Scaled, Series

from ..content import SCHEMA_VERSION, Content, ci95_of, valid, value_of


def json_content(series: Sequence[Series]) -> Content:
    """Return all series as one object; unknown values are None."""
    content: Content = valid(
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
        "projection": [_projected(projected) for projected in one.projection],
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
        "samples_per_second_job": value_of(point.job_rate),
        "samples_per_second_job_ci95": ci95_of(point.job_rate),
        "step_ms": value_of(point.step_ms),
        "runs": [run.run.id for run in point.runs],
    }


def _point(scaled: Scaled) -> dict[str, Any]:
    lost = scaled.lost
    return {
        **_rates(scaled.point),
        "efficiency": value_of(scaled.efficiency),
        "efficiency_ci95": ci95_of(scaled.efficiency),
        "efficiency_job": value_of(scaled.efficiency_job),
        "efficiency_alone": value_of(scaled.efficiency_alone),
        "relative_efficiency": scaled.relative.value,
        "lost": None if lost is None else {name: mean.value for name, mean in lost.items()},
        "lost_ci95": None if lost is None else {name: mean.ci95 for name, mean in lost.items()},
    }


def _projected(one: Projected) -> dict[str, Any]:
    return {
        "ranks": one.ranks,
        "samples_per_second": one.rate.value,
        "samples_per_second_ci95": one.rate.ci95,
        "efficiency": value_of(one.efficiency),
        "efficiency_ci95": ci95_of(one.efficiency),
    }
