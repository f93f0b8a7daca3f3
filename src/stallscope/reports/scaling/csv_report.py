"""CSV for spreadsheets: one row per series and number of ranks."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Scaled, Series
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import finite

from ..base import ReportOptions
from ..csv_report import cell

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

Row = dict[str, str | int | float | bool | None]


def csv_text(series: Sequence[Series], _options: ReportOptions) -> str:
    """Cells of what is not known are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for one in series:
        named: Row = {"series": cell(one.name), "synthetic": one.synthetic}
        for scaled in one.points:
            writer.writerow({**named, **_measured(scaled)})
        for there in one.projection:
            row: Row = {"ranks": there.ranks, "projected": True}
            row |= _mean(there.rate, "samples_per_second", "ci")
            row |= _mean(there.efficiency, "efficiency", "efficiency_ci")
            writer.writerow({**named, **row})
    return text.getvalue()


def _measured(scaled: Scaled) -> Row:
    point = scaled.point
    row: Row = {"ranks": point.ranks, "projected": False, "runs": len(point.runs)}
    row |= _mean(point.rate, "samples_per_second", "ci")
    row |= {"samples_per_second_job": _value(point.job_rate)}
    row |= _mean(scaled.efficiency, "efficiency", "efficiency_ci")
    row |= {"efficiency_job": _value(scaled.efficiency_job)}
    row |= {"relative_efficiency": finite(scaled.relative.value)}
    return row | {f"lost_{name}": finite(mean.value) for name, mean in (scaled.lost or {}).items()}


def _value(mean: Mean | None) -> float | None:
    return None if mean is None else finite(mean.value)


def _mean(mean: Mean | None, name: str, interval: str) -> Row:
    if mean is None:
        return {}
    low, high = mean.ci95 or (None, None)
    return {
        name: finite(mean.value),
        f"{interval}_low": finite(low),
        f"{interval}_high": finite(high),
    }
