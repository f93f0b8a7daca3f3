"""A chart's numbers as CSV: units in the header, one line per bar or point.

Missing values are empty cells; text from logs is never a formula.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stallscope.arrays.stats import Mean
from stallscope.charts.chart_kinds import Segment, StackedArea, StackedBars, Waterfall
from stallscope.charts.charts import Chart
from stallscope.charts.compared_bars import ComparedBars
from stallscope.charts.curves import EfficiencyLines, Level, OverRuns
from stallscope.charts.heat_map import HeatMap
from stallscope.charts.rows import GainBars
from stallscope.charts.scaling_curves import RateBars
from stallscope.charts.step_time import OverTime
from stallscope.formatting.numbers import finite
from stallscope.reports.formats.machine_formats import cell
from stallscope.text.vocabulary import TITLES

Value = str | int | float | None
Row = Sequence[Value]
Columns = list[tuple[str, Sequence[Value]]]


def csv_text(head: Sequence[str], rows: Iterable[Row]) -> str:
    """Write a table as CSV (RFC 4180)."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(map(cell, head))
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def chart_csv(chart: Chart) -> str | dict[str, Any]:
    """Write a chart's numbers; for a heat map only the labels, because the browser has the cells."""
    if isinstance(chart, HeatMap):
        return _of_heat_map(chart)
    columns = _KINDS[type(chart)](chart)
    rows = zip(*(values for _, values in columns), strict=True)
    return csv_text([title for title, _ in columns], rows)


def _cell(value: Value) -> str | int | float:
    if isinstance(value, str):
        return cell(value)
    if isinstance(value, float):
        known = finite(value)
        return "" if known is None else float(f"{known:.6g}")
    return "" if value is None else value


def _means(title: str, unit: str, means: Iterable[Mean | Segment | None]) -> Columns:
    """Return a column of figures, and two with the ends of their intervals."""
    titles = (f"{title}, {unit}", f"{title} 95% low, {unit}", f"{title} 95% high, {unit}")
    rows = [
        (None,) * 3 if mean is None else (mean.value, *(mean.ci95 or (None, None)))
        for mean in means
    ]
    return [(title, [row[at] for row in rows]) for at, title in enumerate(titles)]


def _of_bars(chart: StackedBars) -> Columns:
    unsure = any(segment.ci95 is not None for bar in chart.bars for segment in bar.segments)
    by_name = [{segment.name: segment for segment in bar.segments} for bar in chart.bars]
    columns: Columns = [("bar", [bar.label for bar in chart.bars])]
    for name in chart.names:
        segments = [segments.get(name) for segments in by_name]
        columns += _means(TITLES[name], chart.unit, segments)[: 3 if unsure else 1]
    return [*columns, (f"Total, {chart.unit}", [bar.total for bar in chart.bars])]


def _of_area(chart: StackedArea) -> Columns:
    columns: Columns = [(chart.x_label, [int(position) for position in chart.x.tolist()])]
    columns += [(f"{TITLES[name]}, {chart.unit}", layer.tolist()) for name, layer in chart.layers]
    if chart.rates is not None:
        columns.append(("Throughput, samples/s", chart.rates.tolist()))
    return columns


def _of_waterfall(chart: Waterfall) -> Columns:
    (first, start), (last, end) = chart.start, chart.end
    nothing = [None] * len(chart.changes)
    return [
        ("entry", [first, *(TITLES[change.name] for change in chart.changes), last]),
        (f"Total, {chart.unit}", [start, *nothing, end]),
        *_means("Adds", chart.unit, [None, *chart.changes, None]),
    ]


def _of_compared_bars(chart: ComparedBars) -> Columns:
    columns: Columns = [("entry", [TITLES[name] for name, _ in chart.groups])]
    for at, name in enumerate(chart.series):
        columns += _means(name, chart.unit, [means[at] for _, means in chart.groups])
    return columns


def _of_gains(chart: GainBars) -> Columns:
    return [
        ("fix", [bar.title for bar in chart.bars]),
        ("bound", ["yes" if bar.bound else "no" for bar in chart.bars]),
        *_means("Saved per step", chart.unit, [bar.saved_ms for bar in chart.bars]),
        ("Speed-up", [bar.speedup for bar in chart.bars]),
    ]


def _of_rates(chart: RateBars) -> Columns:
    return [
        ("ranks", [bar.ranks for bar in chart.bars]),
        ("projected", ["yes" if bar.projected else "no" for bar in chart.bars]),
        *_means("Steady steps", chart.unit, [bar.steady for bar in chart.bars]),
        *_means("Whole job", chart.unit, [bar.whole_job for bar in chart.bars]),
        (f"Ideal, {chart.unit}", [bar.ideal for bar in chart.bars]),
    ]


def _of_efficiencies(chart: EfficiencyLines) -> Columns:
    points = [(line.name, ranks, mean) for line in chart.lines for ranks, mean in line.points]
    return [
        ("line", [name for name, _, _ in points]),
        ("ranks", [ranks for _, ranks, _ in points]),
        *_means("Efficiency", "fraction", [mean for _, _, mean in points]),
    ]


def _of_over_runs(chart: OverRuns) -> Columns:
    numbers = range(1, len(chart.dots) + 1)
    changes = dict(chart.marks)
    return [
        ("number", numbers),
        ("run", [dot.name for dot in chart.dots]),
        *_means("Mean", chart.unit, [dot.mean for dot in chart.dots]),
        (f"Level, {chart.unit}", [_level(chart.levels, number) for number in numbers]),
        ("Change", [changes.get(number) for number in numbers]),
    ]


def _of_over_time(chart: OverTime) -> Columns:
    columns = chart.columns
    return [
        ("since the start, s", chart.x.tolist()),
        (f"mean, {chart.unit}", columns.mean.tolist()),
        (f"least, {chart.unit}", columns.low.tolist()),
        (f"greatest, {chart.unit}", columns.high.tolist()),
    ]


def _level(levels: Sequence[Level], run: int) -> float | None:
    """Find the level at a run, counted from 1; None without levels."""
    for level in levels:
        if level.first <= run <= level.last:
            part = (run - level.first) / max(level.last - level.first, 1)
            return level.begin + part * (level.end - level.begin)
    return None


def _of_heat_map(chart: HeatMap) -> dict[str, Any]:
    mean, most = chart.words.mean, chart.words.most
    who = f" ({most} rank)" if chart.of_latest else ""
    head = [
        "ranks",
        "host",
        f"first {chart.x_label}",
        f"last {chart.x_label}",
        f"{mean}{who}, {chart.unit}",
        f"{most}, {chart.unit}",
        f"{most} at {chart.x_label}",
        f"{most} rank",
    ]
    return {"head": head, "rows": [[cell(row.label), cell(row.group)] for row in chart.rows]}


_KINDS: dict[type, Callable[[Any], Columns]] = {
    StackedBars: _of_bars,
    StackedArea: _of_area,
    Waterfall: _of_waterfall,
    ComparedBars: _of_compared_bars,
    GainBars: _of_gains,
    RateBars: _of_rates,
    EfficiencyLines: _of_efficiencies,
    OverRuns: _of_over_runs,
    OverTime: _of_over_time,
}
