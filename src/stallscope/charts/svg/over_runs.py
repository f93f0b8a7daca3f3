"""A figure over the runs of a job."""

from __future__ import annotations

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import NOT_MEASURED, amount, finite, scale_for

from ..over_runs import Level, OverRuns, RunDot
from .axis import Axis, axis_over, vertical
from .frame import frame
from .markup import element, line, shortened, text, text_width, tooltip

_TOP = 26.0
_AXIS = 26.0
_ROOM = 0.08


def draw_over_runs(chart: OverRuns, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    low, high = limits(chart)
    scale = scale_for(max(abs(low), abs(high)), chart.unit)
    y = axis_over(low * scale.factor, high * scale.factor, _TOP + width * 0.15 + 110, _TOP)
    left = text_width(f"{high * scale.factor:,.1f}0 {scale.unit}") + 8
    x = axis_over(0.5, len(chart.dots) + 0.5, left, width - 12)
    parts = [vertical(y, left, width - 12, scale.unit, most=6)]
    parts += [_mark(run, said, x, y, width) for run, said in chart.marks]
    parts += [_level(one, x, y, scale.factor) for one in chart.levels]
    for number, dot in enumerate(chart.dots, start=1):
        parts.append(_dot(number, dot, x, y, scale.factor, chart.unit))
    parts.append(_numbers(len(chart.dots), x, y))
    return frame(chart, key, width, y.start + _AXIS, *parts)


def limits(chart: OverRuns) -> tuple[float, float]:
    """The least and the greatest that is drawn, with some room."""
    means = [dot.mean for dot in chart.dots if dot.mean is not None]
    ends = [end for mean in means for end in (mean.value, *(mean.ci95 or ()))]
    ends += [end for level in chart.levels for end in (level.begin, level.end)]
    known = [end for value in ends if (end := finite(value)) is not None] or [0.0, 1.0]
    low, high = min(known), max(known)
    room = _ROOM * ((high - low) or abs(high) or 1.0)
    return low - room, high + room


def _mark(run: int, said: str, x: Axis, y: Axis, width: float) -> str:
    at = x.at(run - 0.5)
    label = shortened(said, width - 24)
    # To the side on which there is room.
    back = at + text_width(label) > width
    anchor = {"text_anchor": "end"} if back else {}
    return line(at, y.end - 6, at, y.start, class_="change") + text(
        label, at - 5 if back else at + 5, y.end - 10, class_="strong", **anchor
    )


def _level(level: Level, x: Axis, y: Axis, factor: float) -> str:
    begin, end = x.at(level.first - 0.4), x.at(level.last + 0.4)
    return line(
        begin, y.at(level.begin * factor), end, y.at(level.end * factor), class_="projected"
    )


def _dot(number: int, dot: RunDot, x: Axis, y: Axis, factor: float, unit: str) -> str:
    at = x.at(float(number))
    value = None if dot.mean is None else finite(dot.mean.value)
    if dot.mean is None or value is None:
        what = tooltip(f"{number}. {dot.name}: {NOT_MEASURED}")
        return text("–", at, y.start - 4, class_="tick", text_anchor="middle") + what
    what = tooltip(f"{number}. {dot.name}: {amount(value, unit, dot.mean.ci95)}")
    middle = y.at(value * factor)
    circle = element("circle", what, cx=at, cy=middle, r=4.5, class_="dot own")
    return element("g", _whisker(dot.mean, at, y, factor), circle)


def _whisker(mean: Mean, at: float, y: Axis, factor: float) -> str:
    if mean.ci95 is None:
        return ""
    low, high = (y.at((finite(end) or 0.0) * factor) for end in mean.ci95)
    return line(at, low, at, high, class_="whisker")


def _numbers(runs: int, x: Axis, y: Axis) -> str:
    parts = [text("run", x.start - 8, y.start + 18, class_="tick", text_anchor="end")]
    free = float("-inf")
    for number in range(1, runs + 1):
        at, wide = x.at(float(number)), text_width(f"{number}")
        if at - wide / 2 > free:
            parts.append(text(f"{number}", at, y.start + 18, class_="tick", text_anchor="middle"))
            free = at + wide / 2 + 6
    return "".join(parts)
