"""Upright bars of rates, and the ideal rate across them."""

from __future__ import annotations

from ..axis import Axis
from ..rates import BAR_WIDTH, RATE_KINDS, RateBar, RateBars, RateColumn
from .drawing import Drawing
from .theme import Theme, add_text, hover, named_axis, value_axis, whiskers

_HEIGHT = 340
_MOST_TICKS = 24
# Pixels from a mark at the axis' end to the label above it.
_ABOVE_MARK = 4
# The most labels that are readable on a phone.
_MOST_LABELS = 5


def draw_rate_bars(chart: RateBars, drawn: Drawing, theme: Theme) -> None:
    """Draw a trace per kind of bar, and the ideal."""
    columns = [(at, bar, column) for at, bar in enumerate(chart.bars) for column in bar.columns]
    for kind in RATE_KINDS:
        of_kind = [column for column in columns if column[2].kind == kind]
        if of_kind:
            _add_bars(drawn, of_kind, chart.unit, theme)
    ideal = [(at, bar, bar.ideal) for at, bar in enumerate(chart.bars) if bar.ideal is not None]
    drawn.add_trace(
        "scatter",
        name="ideal",
        x=[at for at, _, _ in ideal],
        y=[value for _, _, value in ideal],
        mode="markers",
        marker={"symbol": "line-ew", "size": 38, "line": {"width": 2, "color": theme.of("ink")}},
        hovertext=[hover([bar.hover("ideal", value, chart.unit)]) for _, bar, value in ideal],
        hoverinfo="text",
    )
    beyond = [at for at, _ in chart.beyond]
    if beyond:
        _add_beyond(drawn, chart, theme)
    for at, bar in _labelled(chart):
        level = bar.label_level(chart.axis)
        shift = _ABOVE_MARK if at in beyond else 0
        ink = theme.of("muted")
        add_text(drawn, bar.label, ink, x=at, y=level, yanchor="bottom", yshift=shift)
    drawn.update(height=_HEIGHT, barmode="overlay", margin={"t": 28}, legend={"y": 1.06})
    names = [(float(at), f"{bar.ranks:,}") for at, bar in enumerate(chart.bars)]
    groups = Axis(-0.5, max(len(names), 1) - 0.5, "ranks")
    drawn.update(xaxis=named_axis(groups, names, _MOST_TICKS), yaxis=value_axis(chart.axis))


def _add_beyond(drawn: Drawing, chart: RateBars, theme: Theme) -> None:
    """Mark bars that end beyond the axis."""
    drawn.add_trace(
        "scatter",
        name="beyond the axis",
        x=[at for at, _ in chart.beyond],
        y=[chart.axis.high] * len(chart.beyond),
        mode="markers",
        cliponaxis=False,
        marker={"symbol": "triangle-up", "size": 9, "color": theme.of("ink")},
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
    if len(bars) <= _MOST_LABELS:
        return bars
    measured = [(at, bar) for at, bar in bars if not bar.projected]
    projected = [(at, bar) for at, bar in bars if bar.projected]
    return [*measured[::-2], *projected[::-2]]


def _add_bars(
    drawn: Drawing, bars: list[tuple[int, RateBar, RateColumn]], unit: str, theme: Theme
) -> None:
    kind = bars[0][2]
    means = [column.mean for _, _, column in bars]
    values = [mean.value for mean in means]
    drawn.add_trace(
        "bar",
        name=kind.kind,
        x=[at + column.offset for at, _, column in bars],
        y=values,
        width=BAR_WIDTH - 0.02,
        marker={"color": theme.of(kind.name), "opacity": kind.opacity, "line": {"width": 0}},
        error_y=whiskers(values, [mean.ci95 for mean in means], theme),
        hovertext=[
            hover([bar.hover(column.kind, column.mean.value, unit, column.mean)])
            for _, bar, column in bars
        ],
        hoverinfo="text",
    )
