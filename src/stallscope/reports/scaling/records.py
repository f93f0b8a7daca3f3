"""The figures of scaling for spreadsheets: one row per series and number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Projected, Scaled, Series

from ..base import Records, Row, mean_cells, value_of

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


def records(series: Sequence[Series]) -> Records:
    """List every size, the projected ones last."""
    return Records(COLUMNS, (row for one in series for row in _series(one)))


def _series(series: Series) -> Iterator[Row]:
    named: Row = {"series": series.name, "synthetic": series.synthetic}
    for scaled in series.points:
        yield {**named, **_measured(scaled)}
    for projected in series.projection:
        yield {**named, **_projected(projected)}


def _measured(scaled: Scaled) -> Row:
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


def _projected(projected: Projected) -> Row:
    return {
        "ranks": projected.ranks,
        "projected": True,
        **mean_cells(projected.rate, "samples_per_second"),
        **mean_cells(projected.efficiency, "efficiency", "efficiency_ci"),
    }
