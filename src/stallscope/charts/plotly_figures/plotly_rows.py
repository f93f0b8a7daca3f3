"""Rows of boxes, and bars of rates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.text.vocabulary import title_of

from .. import PALETTE, Colour
from ..axis import Axis, text_width
from ..rows import OPACITIES, Box, Rows
from ..scaling_curves import BAR_WIDTH, RATE_KINDS, RateBar, RateBars, RateColumn
from .plotly_parts import (
    AXIS_HEIGHT,
    SMALL,
    Drawing,
    add_across,
    add_text,
    bold,
    hover,
    markup,
    named_axis,
    value_axis,
    whiskers,
)

# Transparent, because the page may have any background.
_BAND = Colour("rgba(213, 94, 0, 0.10)", "rgba(240, 127, 51, 0.16)")
#: With more bars, text would be noise.
_MOST_LABELLED = 4
_TICKS = 4
# Characters of a label that take much of a phone's width, and pixels per row that two lines need.
_LONG_LABEL, _TWO_LINES = 20, 34.0

_HEIGHT = 340
_MOST_TICKS = 24
# Pixels from a mark at the axis' end to the label above it.
_ABOVE_MARK = 4
# Pixels for labels above bars on a phone, and between two of them.
_PHONE, _BETWEEN_LABELS = 200.0, 6.0


def draw_rows(rows: Rows, drawn: Drawing) -> None:
    """Draw rows from the top down."""
    for places, boxes in _traces(rows):
        _add_boxes(drawn, rows, places, boxes)
    for at, row in enumerate(rows.rows):
        if rows.stacked and row.strong:
            look = {"layer": "below", "fillcolor": _BAND, "line": {"width": 0}}
            add_across(drawn, "rect", at - 0.5, at + 0.5, **look)
        if row.text:
            colour = PALETTE["muted" if row.missing else "ink"]
            add_text(drawn, row.text, colour, x=row.end, y=at, xanchor="left", xshift=6)
    half = rows.height / rows.pitch / 2
    for at, level in enumerate(rows.joints):
        line = {"width": 1, "color": PALETTE["muted"]}
        drawn.add_shape("line", x0=level, x1=level, y0=at + half, y1=at + 1 - half, line=line)
    drawn.update(
        barmode="stack" if rows.stacked else "overlay",
        showlegend=None if rows.stacked else False,
        height=round(rows.pitch * len(rows.rows)) + AXIS_HEIGHT,
        # Texts follow the bars, and need the same space on every screen.
        margin={
            "r": 18 + round(max((text_width(row.text, SMALL) for row in rows.rows), default=0))
        },
        xaxis=value_axis(rows.axis, _TICKS),
        # Numbers with texts, not categories: two bars may have the same label.
        yaxis={
            "tickvals": list(range(len(rows.rows))),
            "ticktext": [_label(row.label, row.strong, rows) for row in rows.rows],
            "range": [len(rows.rows) - 0.5, -0.5],
            "fixedrange": True,
            "showgrid": False,
            "showline": False,
            "ticklabelstandoff": 4,
        },
    )


def _label(label: str, strong: bool, rows: Rows) -> str:
    """Write a row's label, in two lines if it is long and rows are high enough."""
    middle = min(
        (at for at, character in enumerate(label) if character == " "),
        key=lambda at: abs(at - len(label) / 2),
        default=0,
    )
    if len(label) < _LONG_LABEL or rows.stacked or rows.pitch < _TWO_LINES or not middle:
        return bold(label, strong)
    two_lines = f"{markup(label[:middle])}<br>{markup(label[middle + 1 :])}"
    return f"<b>{two_lines}</b>" if strong else two_lines


def _traces(rows: Rows) -> Iterator[tuple[list[int], Sequence[Box | None]]]:
    """Yield the boxes of each trace: of one name in all rows if stacked, otherwise each box."""
    if not rows.stacked:
        yield from (([at], [box]) for at, row in enumerate(rows.rows) for box in row.boxes)
        return
    every = list(range(len(rows.rows)))
    by_row = [{box.name: box for box in row.boxes} for row in rows.rows]
    for name in rows.names:
        yield every, [boxes.get(name) for boxes in by_row]


def _add_boxes(drawn: Drawing, rows: Rows, places: list[int], boxes: Sequence[Box | None]) -> None:
    first = next(box for box in boxes if box is not None)
    sizes = [None if box is None else box.end - box.start for box in boxes]
    labelled = rows.stacked and len(rows.rows) <= _MOST_LABELLED
    drawn.add_trace(
        "bar",
        name=markup(title_of(first.name)),
        orientation="h",
        y=places,
        x=sizes,
        base=None if rows.stacked else [first.start],
        width=rows.height / rows.pitch,
        marker={
            "color": PALETTE[first.name],
            "opacity": OPACITIES[first.shade],
            "line": {"width": 0},
            # Savings are hatched, because their length does not show the direction.
            "pattern": {"shape": "/" if first.saved else ""},
        },
        error_x=None if rows.stacked else whiskers([first.end], [rows.rows[places[0]].whisker]),
        text=["" if box is None else box.figure for box in boxes] if labelled else None,
        textposition="inside" if labelled else "none",
        insidetextanchor="middle",
        textangle=0,
        hovertext=["" if box is None else hover(box.hover) for box in boxes],
        hoverinfo="text",
    )


# -- Upright bars of rates, and the ideal rate across them ----------------------------------------


def draw_rate_bars(chart: RateBars, drawn: Drawing) -> None:
    """Draw a trace per kind of bar, and the ideal."""
    columns = [(at, bar, column) for at, bar in enumerate(chart.bars) for column in bar.columns]
    for kind in RATE_KINDS:
        of_kind = [column for column in columns if column[2].kind == kind]
        if of_kind:
            _add_bars(drawn, of_kind, chart.unit)
    ideal = [(at, bar, bar.ideal) for at, bar in enumerate(chart.bars) if bar.ideal is not None]
    drawn.add_trace(
        "scatter",
        name="ideal",
        x=[at for at, _, _ in ideal],
        y=[value for _, _, value in ideal],
        mode="markers",
        marker={"symbol": "line-ew", "size": 38, "line": {"width": 2, "color": PALETTE["ink"]}},
        hovertext=[hover([bar.hover("ideal", value, chart.unit)]) for _, bar, value in ideal],
        hoverinfo="text",
    )
    beyond = [at for at, _ in chart.beyond]
    if beyond:
        _add_beyond(drawn, chart)
    for at, bar in _labelled(chart):
        level = bar.label_level(chart.axis)
        shift = _ABOVE_MARK if at in beyond else 0
        ink = PALETTE["muted"]
        add_text(drawn, bar.label, ink, x=at, y=level, yanchor="bottom", yshift=shift)
    drawn.update(height=_HEIGHT, barmode="overlay", margin={"t": 28}, legend={"y": 1.06})
    names = [(float(at), f"{bar.ranks:,}") for at, bar in enumerate(chart.bars)]
    groups = Axis(-0.5, max(len(names), 1) - 0.5, "ranks")
    drawn.update(xaxis=named_axis(groups, names, _MOST_TICKS), yaxis=value_axis(chart.axis))


def _add_beyond(drawn: Drawing, chart: RateBars) -> None:
    """Mark bars that end beyond the axis."""
    drawn.add_trace(
        "scatter",
        name="beyond the axis",
        x=[at for at, _ in chart.beyond],
        y=[chart.axis.high] * len(chart.beyond),
        mode="markers",
        cliponaxis=False,
        marker={"symbol": "triangle-up", "size": 9, "color": PALETTE["ink"]},
        hovertext=[
            hover([bar.hover(column.kind, column.mean.value, chart.unit, column.mean)])
            for _, bar in chart.beyond
            for column in bar.columns[:1]
        ],
        hoverinfo="text",
    )


def _labelled(chart: RateBars) -> list[tuple[int, RateBar]]:
    """Choose the bars with a label: of many, every other one, counted from the last ones."""
    bars = [*enumerate(chart.bars)]
    if sum(text_width(bar.label, SMALL) + _BETWEEN_LABELS for _, bar in bars) <= _PHONE:
        return bars
    measured = [(at, bar) for at, bar in bars if not bar.projected]
    projected = [(at, bar) for at, bar in bars if bar.projected]
    return [*measured[::-2], *projected[::-2]]


def _add_bars(drawn: Drawing, bars: list[tuple[int, RateBar, RateColumn]], unit: str) -> None:
    kind = bars[0][2]
    means = [column.mean for _, _, column in bars]
    values = [mean.value for mean in means]
    drawn.add_trace(
        "bar",
        name=kind.kind,
        x=[at + column.offset for at, _, column in bars],
        y=values,
        width=BAR_WIDTH - 0.02,
        marker={"color": PALETTE[kind.name], "opacity": kind.opacity, "line": {"width": 0}},
        error_y=whiskers(values, [mean.ci95 for mean in means]),
        hovertext=[
            hover([bar.hover(column.kind, column.mean.value, unit, column.mean)])
            for _, bar, column in bars
        ],
        hoverinfo="text",
    )
