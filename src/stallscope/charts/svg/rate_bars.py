"""Upright bars of rates beside the ideal."""

from __future__ import annotations

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import amount, finite, significant

from ..rates import RateBar, RateBars
from .axis import Axis, axis_over, vertical
from .frame import frame, legend
from .markup import element, line, rectangle, text, text_width, tooltip

_TOP = 22.0
_AXIS = 26.0
_WIDEST_GROUP = 120.0
_LEGEND = (("steps", "steady steps"), ("startup", "whole job"))


def draw_rate_bars(chart: RateBars, key: str, width: float) -> str:
    """The chart as SVG of that width in pixels."""
    highest = max((_highest(bar) for bar in chart.bars), default=0.0)
    y = axis_over(0.0, highest, _TOP + width * 0.22 + 120, _TOP)
    left = text_width(f"{highest:,.0f}0 {chart.unit}") + 8
    group = min((width - left - 8) / max(len(chart.bars), 1), _WIDEST_GROUP)
    parts = [vertical(y, left, width - 8, chart.unit, most=6)]
    for index, bar in enumerate(chart.bars):
        parts.append(_group(bar, left + index * group, group, y, chart.unit))
    parts.append(text("ranks", left - 8, y.start + 18, class_="tick", text_anchor="end"))
    swatches, end = legend(_LEGEND, y.start + _AXIS, width)
    return frame(chart, key, width, end, *parts, swatches)


def _group(bar: RateBar, left: float, width: float, y: Axis, unit: str) -> str:
    thick = width * 0.34
    middle = left + width / 2
    whose = f"{bar.ranks:,} rank{'' if bar.ranks == 1 else 's'}"
    style = "fill-steps paler-2" if bar.projected else "fill-steps"
    kind = "projected" if bar.projected else "steady steps"
    x = middle - thick if bar.whole_job is not None else middle - thick / 2
    parts = [_bar(bar.steady, x, thick, y, style, f"{whose}, {kind}", unit)]
    parts.append(_whisker(bar.steady, x + thick / 2, y))
    if bar.whole_job is not None:
        said = f"{whose}, whole job"
        parts.append(_bar(bar.whole_job, middle, thick, y, "fill-startup", said, unit))
    if finite(bar.ideal) is not None and bar.ideal is not None:
        at = y.at(bar.ideal)
        what = tooltip(f"{whose}, ideal: {amount(bar.ideal, unit)}")
        ends = {"x1": left + width * 0.1, "x2": left + width * 0.9, "y1": at, "y2": at}
        parts.append(element("line", what, class_="ideal", **ends))
    said = significant(bar.steady.value)
    if text_width(said) < width:
        top = bar.steady.value if bar.steady.ci95 is None else bar.steady.ci95[1]
        above = y.at(finite(top) or 0.0) - 6
        parts.append(text(said, middle, above, class_="tick", text_anchor="middle"))
    parts.append(text(f"{bar.ranks:,}", middle, y.start + 18, class_="tick", text_anchor="middle"))
    return element("g", *parts)


def _bar(mean: Mean, x: float, width: float, y: Axis, style: str, said: str, unit: str) -> str:
    top = y.at(finite(mean.value) or 0.0)
    what = tooltip(f"{said}: {amount(mean.value, unit, mean.ci95)}")
    return rectangle(x, top, width - 2, y.start - top, what, class_=style, rx=1.5)


def _whisker(mean: Mean, at: float, y: Axis) -> str:
    if mean.ci95 is None:
        return ""
    low, high = (y.at(finite(end) or 0.0) for end in mean.ci95)
    ends = [line(at - 4, end, at + 4, end, class_="whisker") for end in (low, high)]
    return line(at, low, at, high, class_="whisker") + "".join(ends)


def _highest(bar: RateBar) -> float:
    ends = [bar.steady.value, bar.ideal, None if bar.steady.ci95 is None else bar.steady.ci95[1]]
    return max((value for end in ends if (value := finite(end)) is not None), default=0.0)
