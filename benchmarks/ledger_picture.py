"""Draw the cost of a ledger over the rows of a run, on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from svg_file import svg_file

from stallscope.charts.chart_kinds import Bar, StackedBars
from stallscope.charts.svg import WIDE
from stallscope.charts.svg.draw import frame, legend
from stallscope.charts.svg.markup import coordinate, element, line, text, tooltip

_LEFT, _TOP, _HEIGHT, _MARGIN = 64.0, 16.0, 240.0, 24.0
# Attribute of the timed result, label, and colour (a stage's, without its meaning here).
_LINES = (
    ("ours", "Stallscope", "compute"),
    ("collected", "Stallscope, from disk", "imbalance"),
    ("pandas", "pandas groupby", "input"),
)


@dataclass(frozen=True)
class Timed:
    """Seconds for a run of so many rows; None where it was not measured."""

    rows: int
    ours: float | None
    pandas: float | None
    #: Ours, starting with the collected run on disk.
    collected: float | None = None


def picture(timed: Sequence[Timed]) -> str:
    """Return an SVG document."""
    bottom, right = _TOP + _HEIGHT, WIDE - _MARGIN
    exponents = [math.log10(seconds) for name, *_ in _LINES for _, seconds in _known(timed, name)]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    first, last = math.log10(timed[0].rows), math.log10(timed[-1].rows)

    def x_of(rows: int) -> float:
        share = (math.log10(rows) - first) / (last - first or 1)
        return _LEFT + _MARGIN + share * (right - _LEFT - 2 * _MARGIN)

    def y_of(seconds: float) -> float:
        return bottom - (math.log10(seconds) - low) / (high - low or 1) * _HEIGHT

    parts = []
    for exponent in range(low, high + 1):
        y = y_of(10.0**exponent)
        parts.append(line(_LEFT, y, right, y, class_="grid"))
        label = f"{10.0**exponent:g} s"
        parts.append(text(label, _LEFT - 8, y + 4, class_="tick", text_anchor="end"))
    for timing in timed:
        x = x_of(timing.rows)
        parts.append(text(f"{timing.rows:,}", x, bottom + 18, class_="tick", text_anchor="middle"))
    lines = [(name, label, colour) for name, label, colour in _LINES if _known(timed, name)]
    for name, label, colour in lines:
        known = _known(timed, name)
        points = [(x_of(rows), y_of(seconds)) for rows, seconds in known]
        path = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in points)
        style = "fill:none;stroke-width:3"
        parts.append(element("polyline", points=path, class_=f"fill-{colour}", style=style))
        for (x, y), (rows, seconds) in zip(points, known, strict=True):
            tip = tooltip(f"{label}, {rows:,} rows: {seconds:.3g} s")
            parts.append(element("circle", tip, cx=x, cy=y, r=4.5, class_=f"fill-{colour}"))
    middle = (_LEFT + right) / 2
    parts.append(
        text("rows (ranks × steps)", middle, bottom + 40, class_="tick", text_anchor="middle")
    )
    swatches, end = legend([(colour, label) for _, label, colour in lines], bottom + 50, WIDE)
    svg = frame(_chart(timed), "ledger-cost", WIDE, end, *parts, swatches)
    return svg_file(svg)


def _known(timed: Sequence[Timed], name: str) -> list[tuple[int, float]]:
    """Return rows and seconds of one line."""
    return [
        (timing.rows, getattr(timing, name))
        for timing in timed
        if getattr(timing, name) is not None
    ]


def _chart(timed: Sequence[Timed]) -> StackedBars:
    """Return the chart's title and description, for screen readers."""
    described = "; ".join(f"{timing.rows:,} rows: {_figures(timing)}" for timing in timed)
    return StackedBars("Seconds for the ledger of a run", f"{described}.", "s", (Bar("", ()),))


def _figures(timing: Timed) -> str:
    figures = (("", timing.ours), ("from disk ", timing.collected), ("pandas ", timing.pandas))
    return ", ".join(f"{name}{value:.3g} s" for name, value in figures if value is not None)
