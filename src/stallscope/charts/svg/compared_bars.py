"""Groups of bars with whiskers."""

from __future__ import annotations

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import finite, scale_for

from ..compared_bars import ComparedBars
from .axis import Axis, axis_over, horizontal
from .frame import frame, title_of
from .markup import element, line, rectangle, shortened, text, text_width, tooltip

_HEIGHT = 15.0
_ROW = 20.0
_TOP = 4.0
_AXIS = 26.0
_PALEST = 2
# Bold text is wider than plain text.
_BOLD = 1.1


def draw_compared_bars(chart: ComparedBars, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    means = [mean for _, group in chart.groups for mean in group if mean is not None]
    scale = scale_for(max(map(_end, means), default=0.0), chart.unit)
    labels = [*chart.series, *(title_of(name) for name, _ in chart.groups)]
    left = min(max(map(text_width, labels), default=0.0) * _BOLD + 10, width * 0.42)
    amounts = [
        chart.text(at, index)
        for at, (_, group) in enumerate(chart.groups)
        for index in range(len(group))
    ]
    right = max(map(text_width, amounts), default=0.0) + 12
    lowest = min((_begin(mean) for mean in means), default=0.0) * scale.factor
    highest = max(map(_end, means), default=0.0) * scale.factor
    axis = axis_over(lowest, highest, left, width - right)
    rows, parts = 0, []
    for at, (name, group) in enumerate(chart.groups):
        parts.append(_label(title_of(name), axis, rows, "strong"))
        for index, mean in enumerate(group):
            series = chart.series[index]
            row = rows + 1 + index
            parts.append(_label(series, axis, row))
            said = chart.text(at, index)
            parts.append(_bar(mean, (name, series, index), axis, row, said, scale.factor))
        rows += 1 + len(group)
    bottom = _TOP + rows * _ROW
    grid = horizontal(axis, 0.0, bottom, scale.unit, most=int(width / 90))
    return frame(chart, key, width, bottom + _AXIS, grid, *parts)


def _bar(
    mean: Mean | None,
    names: tuple[str, str, int],
    axis: Axis,
    row: int,
    said: str,
    factor: float,
) -> str:
    name, series, index = names
    top = _top(row)
    if mean is None or finite(mean.value) is None:
        return text(said, axis.at(0.0) + 6, top + 12, class_="tick")
    begin, end = sorted((axis.at(0.0), axis.at(mean.value * factor)))
    paler = min(index, _PALEST)
    style = f"fill-{name} paler-{paler}" if paler else f"fill-{name}"
    what = tooltip(f"{title_of(name)}, {series}: {said}")
    box = rectangle(begin, top, end - begin, _HEIGHT, what, class_=style, rx=1.5)
    after = axis.at(_end(mean) * factor) + 7
    return element("g", box, _whisker(mean, axis, top, factor), text(said, after, top + 12))


def _whisker(mean: Mean, axis: Axis, top: float, factor: float) -> str:
    if mean.ci95 is None:
        return ""
    low, high = (axis.at(end * factor) for end in mean.ci95)
    middle = top + _HEIGHT / 2
    ends = [line(at, middle - 3, at, middle + 3, class_="whisker") for at in (low, high)]
    return line(low, middle, high, middle, class_="whisker") + "".join(ends)


def _label(content: str, axis: Axis, row: int, style: str | None = None) -> str:
    x = axis.start - 8
    return text(shortened(content, x), x, _top(row) + 12, text_anchor="end", class_=style)


def _begin(mean: Mean) -> float:
    return min(finite(mean.value) or 0.0, 0.0, (mean.ci95 or (0.0, 0.0))[0])


def _end(mean: Mean) -> float:
    return max(finite(mean.value) or 0.0, 0.0, (mean.ci95 or (0.0, 0.0))[1])


def _top(row: int) -> float:
    return _TOP + row * _ROW
