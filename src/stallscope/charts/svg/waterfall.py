"""From one total to another, change by change."""

from __future__ import annotations

from itertools import accumulate, pairwise

from stallscope.formatting.numbers import finite, scale_for

from ..charts import Waterfall
from .axis import Axis, axis_over, horizontal
from .frame import frame, title_of
from .markup import element, line, rectangle, shortened, text, text_width, tooltip

_HEIGHT = 24.0
_ROW = 34.0
_TOP = 6.0
_AXIS = 26.0
# Bold text is wider than plain text.
_BOLD = 1.1


def draw_waterfall(chart: Waterfall, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    start, end = (finite(total) or 0.0 for _, total in (chart.start, chart.end))
    changes = [finite(change.value) or 0.0 for change in chart.changes]
    levels = list(accumulate(changes, initial=start))
    scale = scale_for(max(map(abs, [*levels, end])), chart.unit)
    levels = [level * scale.factor for level in levels]
    end *= scale.factor
    axis = _axis(chart, [*levels, end], width)
    printed = chart.printed
    rows = [_whole(chart.start[0], printed.amount(chart.printed_start), levels[0], axis, 0)]
    texts = [f"{printed.signed(part)} {printed.scale.unit}" for part in printed.parts]
    changed = zip(chart.changes, texts, pairwise(levels), strict=True)
    for row, (change, said, span) in enumerate(changed, 1):
        rows.append(_change(change.name, said, span, axis, row))
    rows.append(_whole(chart.end[0], printed.amount(chart.printed_end), end, axis, len(rows)))
    rows += [_connector(level, axis, row) for row, level in enumerate(levels)]
    bottom = _TOP + (len(changes) + 2) * _ROW
    grid = horizontal(axis, 0.0, bottom, scale.unit, most=int(width / 90))
    return frame(chart, key, width, bottom + _AXIS, grid, *rows)


def _axis(chart: Waterfall, levels: list[float], width: float) -> Axis:
    labels = [chart.start[0], chart.end[0], *(title_of(change.name) for change in chart.changes)]
    left = min(max(map(text_width, labels)) * _BOLD + 10, width * 0.42)
    figures = (chart.printed_start, *chart.printed.parts, chart.printed_end)
    right = max(text_width(f"+{chart.printed.amount(one)}") for one in figures) * _BOLD + 10
    return axis_over(min(0.0, *levels), max(0.0, *levels), left, width - right)


def _whole(label: str, what: str, value: float, axis: Axis, row: int) -> str:
    box = _box((0.0, value), axis, row, f"{label}: {what}", "fill-total")
    after = axis.at(max(value, 0.0))
    return element("g", _label(label, axis, row, "strong"), box, _value(what, after, row, "strong"))


def _change(name: str, what: str, span: tuple[float, float], axis: Axis, row: int) -> str:
    value = span[1] - span[0]
    style = f"fill-{name} saved" if value < 0 else f"fill-{name}"
    box = _box(span, axis, row, f"{title_of(name)}: {what}", style) if value else ""
    after = axis.at(max(span))
    return element("g", _label(title_of(name), axis, row), box, _value(what, after, row))


def _box(span: tuple[float, float], axis: Axis, row: int, what: str, style: str) -> str:
    x, far = axis.at(min(span)), axis.at(max(span))
    # What is too small to be seen still leaves a trace.
    width = max(far - x, 1.0)
    return rectangle(x, _top(row), width, _HEIGHT, tooltip(what), class_=style, rx=1.5)


def _label(content: str, axis: Axis, row: int, style: str | None = None) -> str:
    x = axis.start - 8
    return text(shortened(content, x), x, _top(row) + 16.5, text_anchor="end", class_=style)


def _value(content: str, after: float, row: int, style: str | None = None) -> str:
    return text(content, after + 7, _top(row) + 16.5, class_=style)


def _connector(level: float, axis: Axis, row: int) -> str:
    x = axis.at(level)
    return line(x, _top(row) + _HEIGHT, x, _top(row + 1), class_="mark")


def _top(row: int) -> float:
    return _TOP + row * _ROW
