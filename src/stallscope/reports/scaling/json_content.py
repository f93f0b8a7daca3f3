"""The JSON of scaling, which docs/scaling.schema.json describes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.analysis.scaling import Point, Projected, Scaled, Series

from ..base import Content, content_of, fields_of, mean_fields, value_of


def json_content(series: Sequence[Series]) -> Content:
    """Return all series as one object; unknown values are None."""
    return content_of(series=[_series(one) for one in series])


def _series(one: Series) -> dict[str, Any]:
    return {
        **fields_of(one, "name kind synthetic unit"),
        "points": [_point(scaled) for scaled in one.points],
        "alone": None if one.alone is None else _rates(one.alone),
        "projection": [_projected(projected) for projected in one.projection],
        "difference": one.difference and fields_of(one.difference, "p found"),
        "warnings": one.warnings,
    }


def _rates(point: Point) -> dict[str, Any]:
    return {
        "ranks": point.ranks,
        **mean_fields("samples_per_second", point.rate),
        **mean_fields("samples_per_second_job", point.job_rate),
        "step_ms": value_of(point.step_ms),
        "runs": [run.run.id for run in point.runs],
    }


def _point(scaled: Scaled) -> dict[str, Any]:
    lost = scaled.lost
    return {
        **_rates(scaled.point),
        **mean_fields("efficiency", scaled.efficiency),
        "efficiency_job": value_of(scaled.efficiency_job),
        "efficiency_alone": value_of(scaled.efficiency_alone),
        "relative_efficiency": scaled.relative.value,
        "lost": None if lost is None else {name: mean.value for name, mean in lost.items()},
        "lost_ci95": None if lost is None else {name: mean.ci95 for name, mean in lost.items()},
    }


def _projected(one: Projected) -> dict[str, Any]:
    return {
        "ranks": one.ranks,
        **mean_fields("samples_per_second", one.rate),
        **mean_fields("efficiency", one.efficiency),
    }
