"""Groups of bars with whiskers."""

from __future__ import annotations

from html import escape
from itertools import count

import plotly.graph_objects as go

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import interval

from ..charts import TITLES
from ..compared_bars import ComparedBars
from .look import AXIS_HEIGHT, TEXT, Look, rows_axis, suffix

_ROW = 22
# Bars of later series are paler; their labels tell them apart, too.
_OPACITIES = (1.0, 0.6, 0.35)


def draw_compared_bars(chart: ComparedBars, drawn: go.Figure, look: Look) -> None:
    row = count()
    labels = []
    for group, (name, means) in enumerate(chart.groups):
        labels.append(f"<b>{TITLES[name]}</b>")
        next(row)
        for index, (label, mean) in enumerate(zip(chart.series, means, strict=True)):
            labels.append(escape(label, quote=False))
            said = chart.text(group, index)
            _bar(drawn, next(row), mean, (name, label, index), chart.unit, said, look)
    drawn.update_layout(
        barmode="overlay",
        showlegend=False,
        uniformtext=None,
        height=_ROW * len(labels) + AXIS_HEIGHT,
        # The amounts stand beyond the bars, and need the same room on every screen.
        margin_r=116,
    )
    rows_axis(drawn, labels)
    drawn.update_xaxes(
        ticksuffix=suffix(chart.unit), fixedrange=True, range=_range(chart), nticks=4, tickangle=0
    )


def _bar(
    drawn: go.Figure,
    row: int,
    mean: Mean | None,
    names: tuple[str, str, int],
    unit: str,
    text: str,
    look: Look,
) -> None:
    name, label, index = names
    end = 0.0 if mean is None else _end(mean)
    if mean is not None:
        sure = f"<br>95% interval: {interval(mean.ci95, unit)}"
        drawn.add_bar(
            orientation="h",
            y=[row],
            x=[mean.value],
            width=0.72,
            marker={
                "color": look.of(name),
                "opacity": _OPACITIES[min(index, len(_OPACITIES) - 1)],
                "line": {"width": 0},
            },
            error_x=_whiskers(mean, look),
            hovertext=[
                f"<b>{TITLES[name]}</b><br>{escape(label, quote=False)}: {text}"
                f"{sure if mean.ci95 else ''}"
            ],
            hoverinfo="text",
        )
    drawn.add_annotation(
        x=end, y=row, text=text, showarrow=False, xanchor="left", xshift=6, font={"size": 12}
    )


def _whiskers(mean: Mean, look: Look) -> dict[str, object]:
    if mean.ci95 is None:
        return {"visible": False}
    low, high = mean.ci95
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - mean.value],
        "arrayminus": [mean.value - low],
        "color": look(TEXT),
        "thickness": 1.5,
        "width": 4,
    }


def _range(chart: ComparedBars) -> list[float]:
    means = [mean for _, group in chart.groups for mean in group if mean is not None]
    lowest = min((mean.ci95[0] if mean.ci95 else mean.value for mean in means), default=0.0)
    highest = max(map(_end, means), default=0.0)
    return [min(lowest, 0.0), highest or 1.0]


def _end(mean: Mean) -> float:
    return max(mean.value, 0.0 if mean.ci95 is None else mean.ci95[1])
