"""Draw the scorecard's chart: how often each reading is right, by size of the fault."""

from __future__ import annotations

from collections.abc import Sequence

from page_tables import WHO, Cell, run_share
from svg_file import svg_file

from stallscope.charts.axis import Axis
from stallscope.charts.chart_kinds import Bar, StackedBars
from stallscope.charts.svg import WIDE
from stallscope.charts.svg.draw import frame, legend
from stallscope.charts.svg.markup import (
    PixelAxis,
    coordinate,
    element,
    line,
    text,
    tooltip,
    vertical,
)

#: The chart shows faults in compute, where noise is largest.
RANKS, CV, STAGE = 64, 0.1, "compute"

# Figure, label, colour (a stage's, without its meaning here), width and dashes: all lines must show
# where they coincide.
_READINGS = (
    ("right", "Stallscope", "compute", 5.0, "none"),
    ("latest_right", "latest arrival", "imbalance", 2.5, "9 6"),
    ("own_log_right", "own log, cause only", "input", 2.5, "2 6"),
)
_LEFT, _GAP, _TOP, _HEIGHT, _MARGIN = 52.0, 26.0, 30.0, 190.0, 16.0


def picture(power: Sequence[Cell]) -> str:
    """Return an SVG document."""
    cells = [
        cell
        for cell in power
        if (cell["ranks"], cell["cv"], cell["stage"], cell["steps"], cell["phi"])
        == (RANKS, CV, STAGE, 500, 0.5)
    ]
    sizes = sorted({cell["percent"] for cell in cells})
    width = (WIDE - _LEFT - 2 * _GAP) / len(WHO)
    parts = []
    for index, (who, title) in enumerate(WHO.items()):
        left = _LEFT + index * (width + _GAP)
        group = [cell for cell in cells if cell["who"] == who]
        parts.append(_panel(title, group, sizes, left, left + width, labelled=index == 0))
    bottom = _TOP + _HEIGHT
    parts.append(
        text(
            "size of the fault, % of the step",
            WIDE / 2,
            bottom + 40,
            class_="tick",
            text_anchor="middle",
        )
    )
    swatches, end = legend(
        [(colour, label) for _, label, colour, *_ in _READINGS], bottom + 50, WIDE
    )
    svg = frame(_chart(cells, sizes), "power", WIDE, end, *parts, swatches)
    return svg_file(svg)


def _chart(cells: Sequence[Cell], sizes: Sequence[float]) -> StackedBars:
    """Return the chart's title and description, for screen readers."""
    described = []
    for who, title in WHO.items():
        for figure, label, *_ in _READINGS:
            group = [cell for cell in cells if cell["who"] == who]
            shares = [run_share([c for c in group if c["percent"] == s], figure) for s in sizes]
            shown = ", ".join("none" if share is None else f"{share:.0%}" for share in shares)
            described.append(f"{title}, {label}: {shown}")
    at = ", ".join(f"{size:g} %" for size in sizes)
    title = f"Runs with the cause and the rank right, {RANKS} ranks, noise {CV * 100:g} %"
    return StackedBars(title, f"At sizes {at}. {'; '.join(described)}.", "%", (Bar("", ()),))


def _panel(
    title: str,
    cells: Sequence[Cell],
    sizes: Sequence[float],
    left: float,
    right: float,
    labelled: bool,
) -> str:
    bottom = _TOP + _HEIGHT
    axis = PixelAxis(Axis.over(0.0, 100.0, "%"), bottom, _TOP)
    if labelled:
        parts = [vertical(axis, left, right, most=4)]
    else:
        levels = [axis.at(tick) for tick in axis.axis.ticks(4)]
        parts = [line(left, level, right, level, class_="grid") for level in levels]
    parts.append(text(title, (left + right) / 2, _TOP - 12, class_="strong", text_anchor="middle"))
    spacing = (right - left - 2 * _MARGIN) / max(1, len(sizes) - 1)
    at = {size: left + _MARGIN + index * spacing for index, size in enumerate(sizes)}
    for size, x in at.items():
        parts.append(text(f"{size:g}", x, bottom + 18, class_="tick", text_anchor="middle"))
    for figure, label, colour, thick, dashes in _READINGS:
        points = [
            (at[cell["percent"]], axis.at(cell[figure] * 100), cell)
            for cell in sorted(cells, key=lambda cell: cell["percent"])
            if figure in cell
        ]
        path = " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y, _ in points)
        style = f"fill:none;stroke-width:{thick};stroke-dasharray:{dashes}"
        parts.append(element("polyline", points=path, class_=f"fill-{colour}", style=style))
        for x, y, cell in points:
            label_text = f"{title}, {cell['percent']:g} %, {label}: {cell[figure]:.1%}"
            parts.append(
                element(
                    "circle",
                    tooltip(label_text),
                    cx=x,
                    cy=y,
                    r=1.5 + thick,
                    class_=f"fill-{colour}",
                )
            )
    return "".join(parts)
