"""A chart's numbers as CSV: units in the header, one line per bar or point.

Cells of what was not measured are empty; text from logs is never a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stallscope.arrays.stats import Mean
from stallscope.charts.charts import TITLES, Chart, Segment, StackedArea, StackedBars, Waterfall
from stallscope.charts.compared_bars import ComparedBars
from stallscope.charts.curves import EfficiencyLines, Level, OverRuns
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.over_time import OverTime
from stallscope.charts.rates import RateBars
from stallscope.formatting.numbers import finite
from stallscope.reports.formats.csv_text import cell

Value = str | int | float | None
Row = Sequence[Value]


def csv_text(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Write a table as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(cell, head))
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def chart_csv(chart: Chart) -> str | dict[str, Any]:
    """Write a chart's numbers; for a heat map only what the browser lacks: it has the cells."""
    if isinstance(chart, HeatMap):
        return _of_heat_map(chart)
    head, rows = _KINDS[type(chart)](chart)
    return csv_text(head, rows)


def _cell(value: Value) -> str | int | float:
    if isinstance(value, str):
        return cell(value)
    if isinstance(value, float):
        known = finite(value)
        return "" if known is None else float(f"{known:.6g}")
    return "" if value is None else value


def _with_interval(title: str, unit: str) -> list[str]:
    return [f"{title}, {unit}", f"{title} 95% low, {unit}", f"{title} 95% high, {unit}"]


def _mean(mean: Mean | None) -> list[Value]:
    return [None, None, None] if mean is None else [mean.value, *(mean.ci95 or (None, None))]


def _segment(segment: Segment | None) -> list[Value]:
    return (
        [None, None, None] if segment is None else [segment.value, *(segment.ci95 or (None, None))]
    )


def _of_bars(chart: StackedBars) -> tuple[list[str], list[Row]]:
    names = list(dict.fromkeys(one.name for bar in chart.bars for one in bar.segments))
    unsure = any(one.ci95 is not None for bar in chart.bars for one in bar.segments)
    width = 3 if unsure else 1
    head = ["bar"]
    for name in names:
        head += _with_interval(TITLES[name], chart.unit)[:width]
    rows: list[Row] = []
    for bar in chart.bars:
        own = {one.name: one for one in bar.segments}
        values = [value for name in names for value in _segment(own.get(name))[:width]]
        rows.append([bar.label, *values, bar.total])
    return [*head, f"Total, {chart.unit}"], rows


def _of_area(chart: StackedArea) -> tuple[list[str], list[Row]]:
    columns = [values.tolist() for _, values in chart.layers]
    head = [chart.x_label, *(f"{TITLES[name]}, {chart.unit}" for name, _ in chart.layers)]
    if chart.rates is not None:
        head.append("Throughput, samples/s")
        columns.append(chart.rates.tolist())
    steps = [int(one) for one in chart.x.tolist()]
    return head, list(zip(steps, *columns, strict=True))


def _of_waterfall(chart: Waterfall) -> tuple[list[str], list[Row]]:
    changes = [[TITLES[one.name], None, *_segment(one)] for one in chart.changes]
    start, end = ([*total, None, None, None] for total in (chart.start, chart.end))
    head = ["entry", f"Total, {chart.unit}", *_with_interval("Adds", chart.unit)]
    return head, [start, *changes, end]


def _of_compared_bars(chart: ComparedBars) -> tuple[list[str], list[Row]]:
    head = ["entry"]
    for name in chart.series:
        head += _with_interval(name, chart.unit)
    rows: list[Row] = [
        [TITLES[name], *(value for mean in means for value in _mean(mean))]
        for name, means in chart.groups
    ]
    return head, rows


def _of_rates(chart: RateBars) -> tuple[list[str], list[Row]]:
    head = [
        "ranks",
        "projected",
        *_with_interval("Steady steps", chart.unit),
        *_with_interval("Whole job", chart.unit),
        f"Ideal, {chart.unit}",
    ]
    rows: list[Row] = [
        [
            one.ranks,
            "yes" if one.projected else "no",
            *_mean(one.steady),
            *_mean(one.whole_job),
            one.ideal,
        ]
        for one in chart.bars
    ]
    return head, rows


def _of_efficiencies(chart: EfficiencyLines) -> tuple[list[str], list[Row]]:
    head = ["line", "ranks", *_with_interval("Efficiency", "fraction")]
    rows: list[Row] = [
        [line.name, ranks, *_mean(mean)] for line in chart.lines for ranks, mean in line.points
    ]
    return head, rows


def _of_over_runs(chart: OverRuns) -> tuple[list[str], list[Row]]:
    head = ["number", "run", *_with_interval("Mean", chart.unit), f"Level, {chart.unit}", "Change"]
    changes = dict(chart.marks)
    rows: list[Row] = [
        [number, dot.name, *_mean(dot.mean), _level(chart.levels, number), changes.get(number)]
        for number, dot in enumerate(chart.dots, start=1)
    ]
    return head, rows


def _of_over_time(chart: OverTime) -> tuple[list[str], list[Row]]:
    columns = chart.columns
    head = [
        "since the start, s",
        *(f"{name}, {chart.unit}" for name in ("mean", "least", "greatest")),
    ]
    values = (chart.x, columns.mean, columns.low, columns.high)
    return head, list(zip(*(own.tolist() for own in values), strict=True))


def _level(levels: Sequence[Level], run: int) -> float | None:
    """Find the level at a run, counted from 1; None without levels."""
    for one in levels:
        if one.first <= run <= one.last:
            part = (run - one.first) / max(one.last - one.first, 1)
            return one.begin + part * (one.end - one.begin)
    return None


def _of_heat_map(chart: HeatMap) -> dict[str, Any]:
    who = " (latest rank)" if chart.of_latest else ""
    of_cells = [
        f"late on average{who}, {chart.unit}",
        f"latest, {chart.unit}",
        f"latest at {chart.x_label}",
    ]
    return {
        "head": [
            "ranks",
            "host",
            f"first {chart.x_label}",
            f"last {chart.x_label}",
            *of_cells,
            "latest rank",
        ],
        "rows": [[cell(row.label), cell(row.group)] for row in chart.rows],
    }


_KINDS: dict[type, Callable[[Any], tuple[list[str], list[Row]]]] = {
    StackedBars: _of_bars,
    StackedArea: _of_area,
    Waterfall: _of_waterfall,
    ComparedBars: _of_compared_bars,
    RateBars: _of_rates,
    EfficiencyLines: _of_efficiencies,
    OverRuns: _of_over_runs,
    OverTime: _of_over_time,
}
