"""Lines of efficiency over numbers of ranks."""

from __future__ import annotations

from math import log2

from stallscope.formatting.numbers import percent

from ..rates import EfficiencyLines, Line
from .axis import Axis, axis_over
from .frame import frame
from .markup import coordinate, element, line, shortened, text, text_width, tooltip

_TOP = 14.0
_AXIS = 26.0
_LINE = 15.0
_PERCENTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LONGEST_LABEL = 0.36


def draw_efficiency_lines(chart: EfficiencyLines, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    lines = [one for one in chart.lines if one.points]
    labels = max((text_width(one.name) for one in lines), default=0.0)
    right = min(labels + 16, width * _LONGEST_LABEL)
    highest = max((mean.value for one in lines for _, mean in one.points), default=1.0)
    y = axis_over(0.0, max(1.0, highest), _TOP + width * 0.22 + 140, _TOP)
    most = max((ranks for one in lines for ranks, _ in one.points), default=1)
    x = axis_over(0.0, max(log2(most), 1.0), 48.0, width - right)
    parts = [_grid(x, y, most)]
    parts += [_line(one, x, y) for one in sorted(lines, key=lambda one: not one.others)]
    parts += _names(lines, x, y, right - 12)
    parts.append(text("ranks", x.start - 8, y.start + 18, class_="tick", text_anchor="end"))
    return frame(chart, key, width, y.start + _AXIS, *parts)


def _grid(x: Axis, y: Axis, most: int) -> str:
    parts = []
    for share in _PERCENTS:
        at = y.at(share)
        parts.append(line(x.start, at, x.end, at, class_="zero" if share == 0 else "grid"))
        parts.append(text(percent(share), x.start - 8, at + 4, class_="tick", text_anchor="end"))
    free = float("-inf")
    for power in range(int(log2(most)) + 1):
        at, label = x.at(float(power)), f"{2**power:,}"
        if at - text_width(label) / 2 > free:
            parts.append(text(label, at, y.start + 18, class_="tick", text_anchor="middle"))
            free = at + text_width(label) / 2 + 6
    return "".join(parts)


def _line(one: Line, x: Axis, y: Axis) -> str:
    style = "others" if one.others else "projected" if one.projected else "own"
    spots = [(x.at(log2(ranks)), y.at(mean.value)) for ranks, mean in one.points]
    path = "L".join(f"{coordinate(left)} {coordinate(top)}" for left, top in spots)
    parts = [element("path", d=f"M{path}", class_=f"curve {style}")]
    for (ranks, mean), (left, top) in zip(one.points, spots, strict=True):
        sure = "" if mean.ci95 is None else f" ({percent(mean.ci95[0])} to {percent(mean.ci95[1])})"
        what = tooltip(f"{one.name}, {ranks:,} ranks: {percent(mean.value)}{sure}")
        if mean.ci95 is not None and not one.others:
            low, high = (y.at(end) for end in mean.ci95)
            parts.append(line(left, low, left, high, class_="whisker"))
        size = 3.0 if one.others else 4.5
        parts.append(element("circle", what, cx=left, cy=top, r=size, class_=f"dot {style}"))
    return element("g", *parts)


def _names(lines: list[Line], x: Axis, y: Axis, room: float) -> list[str]:
    """Names behind the lines' last points, moved apart where they would lie on each other."""
    wanted = [(y.at(one.points[-1][1].value), one) for one in lines if not one.projected]
    parts, free = [], float("-inf")
    for at, one in sorted(wanted, key=lambda pair: pair[0]):
        free = max(at + 4, free + _LINE)
        end = x.at(log2(one.points[-1][0]))
        style = "tick" if one.others else "strong"
        if abs(free - at) > _LINE or x.end - end > 2:
            parts.append(line(end + 5, at, x.end + 4, free - 4, class_="leader"))
        parts.append(text(shortened(one.name, room), x.end + 8, free, class_=style))
    return parts
