"""What a chart's colours mean."""

from __future__ import annotations

from stallscope.formatting.numbers import NOT_MEASURED, finite

from .charts import Chart, StackedArea, StackedBars, title_of
from .rates import RATE_LEGEND, RateBars


def legend_of(chart: Chart) -> list[tuple[str, str]]:
    """List names of the palette with their labels; a single bar's with their figures."""
    if isinstance(chart, RateBars):
        return list(RATE_LEGEND)
    if isinstance(chart, StackedArea):
        return [(name, title_of(name)) for name, _ in chart.layers]
    if isinstance(chart, StackedBars):
        return _figures(chart) if len(chart.bars) == 1 else _names(chart)
    return []


def _names(chart: StackedBars) -> list[tuple[str, str]]:
    names = dict.fromkeys(segment.name for bar in chart.bars for segment in bar.segments)
    return [(name, title_of(name)) for name in names]


def _figures(chart: StackedBars) -> list[tuple[str, str]]:
    (bar,), (printed,) = chart.bars, chart.printed
    entries = []
    for segment, part in zip(bar.segments, printed.parts, strict=True):
        measured = finite(segment.value) is not None
        figure = printed.amount(part, segment.ci95) if measured else NOT_MEASURED
        entries.append((segment.name, f"{title_of(segment.name)} {figure}"))
    return entries
