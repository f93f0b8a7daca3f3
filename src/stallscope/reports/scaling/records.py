"""Scaling for programs and spreadsheets: one object, and one row per series and number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Point, Projected, Scaled, ScalingSeries

from ..base import (
    Content,
    ReportRecords,
    Row,
    content_of,
    fields_of,
    mean_cells,
    mean_fields,
    value_of,
)

COLUMNS = (
    "series",
    "synthetic",
    "ranks",
    "projected",
    "runs",
    "samples_per_second",
    "ci_low",
    "ci_high",
    "samples_per_second_job",
    "efficiency",
    "efficiency_ci_low",
    "efficiency_ci_high",
    "efficiency_job",
    "relative_efficiency",
    *(f"lost_{name}" for name in ENTRIES),
)


def json_content(series: Sequence[ScalingSeries], warnings: Sequence[str] = ()) -> Content:
    """Return all series as one object; unknown values are None."""
    return content_of(series=[_series(scaling) for scaling in series], warnings=[*warnings])


def _series(series: ScalingSeries) -> dict[str, Any]:
    return {
        **fields_of(series, "name kind synthetic unit"),
        "points": [_point(scaled) for scaled in series.points],
        "alone": None if series.alone is None else _rates(series.alone),
        "projection": [_projected(projected) for projected in series.projection],
        "difference": series.difference and fields_of(series.difference, "p found"),
        "warnings": series.warnings,
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


def _projected(projected: Projected) -> dict[str, Any]:
    return {
        "ranks": projected.ranks,
        **mean_fields("samples_per_second", projected.rate),
        **mean_fields("efficiency", projected.efficiency),
    }


def records(series: Sequence[ScalingSeries]) -> ReportRecords:
    """List every size, the projected ones last."""
    return ReportRecords(COLUMNS, (row for scaling in series for row in _series_rows(scaling)))


def _series_rows(series: ScalingSeries) -> Iterator[Row]:
    named: Row = {"series": series.name, "synthetic": series.synthetic}
    for scaled in series.points:
        yield {**named, **_measured_row(scaled)}
    for projected in series.projection:
        yield {**named, **_projected_row(projected)}


def _measured_row(scaled: Scaled) -> Row:
    point = scaled.point
    return {
        "ranks": point.ranks,
        "projected": False,
        "runs": len(point.runs),
        **mean_cells(point.rate, "samples_per_second"),
        "samples_per_second_job": value_of(point.job_rate),
        **mean_cells(scaled.efficiency, "efficiency", "efficiency_ci"),
        "efficiency_job": value_of(scaled.efficiency_job),
        "relative_efficiency": scaled.relative.value,
        **{f"lost_{name}": mean.value for name, mean in (scaled.lost or {}).items()},
    }


def _projected_row(projected: Projected) -> Row:
    return {
        "ranks": projected.ranks,
        "projected": True,
        **mean_cells(projected.rate, "samples_per_second"),
        **mean_cells(projected.efficiency, "efficiency", "efficiency_ci"),
    }
