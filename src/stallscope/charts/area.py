"""Stacked areas over the run: the layout that both drawings share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.numbers import significant

from .axis import Axis
from .kinds import StackedArea

# Peaks this many times above nearly all points would flatten all the rest: they are cut and marked.
_PEAK = 2.0
_NEARLY_ALL = 98
_REACH = 0.75
# Nearly half a step: it rounds to the step itself.
_HALF = 0.49


@dataclass(frozen=True)
class Areas:
    """A chart's layers to draw, in the unit of the vertical axis."""

    chart: StackedArea
    x: Floats
    y: Axis
    #: Layers × points; negative and missing values are 0.
    layers: Floats
    #: Points beyond the axis, with tooltips.
    peaks: tuple[tuple[float, str], ...]
    #: Pauses between steps, with tooltips.
    pauses: tuple[tuple[float, str], ...]


def areas_of(chart: StackedArea) -> Areas:
    """Lay out the layers, cut at the axis' end."""
    layers = np.zeros((len(chart.layers), len(chart.x)))
    for at, (_, values) in enumerate(chart.layers):
        layers[at] = np.maximum(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), 0.0)
    totals = layers.sum(axis=0)
    high = 0.0 if chart.windows is None else float(chart.windows.p95.max())
    y = Axis.over(0.0, max(_limit(totals), min(high, _limit(totals) * _PEAK)), chart.unit)
    x = chart.x
    if len(x) == 1:
        # A single step gets a width, too.
        x, layers = np.array([x[0] - _HALF, x[0] + _HALF]), np.repeat(layers, 2, axis=1)
    return Areas(
        chart,
        x,
        y,
        layers * y.factor,
        tuple(_peaks(chart.x, totals * y.factor, y)),
        tuple((at, f"before step {at:,.0f}: {label}") for at, label in chart.pauses),
    )


def _limit(totals: Floats) -> float:
    """Find how high the axis reaches."""
    if not len(totals):
        return 0.0
    usual, highest = float(np.percentile(totals, _NEARLY_ALL)), float(totals.max())
    return usual * _PEAK * _REACH if usual and highest > usual * _PEAK else highest


def _peaks(x: Floats, totals: Floats, y: Axis) -> Iterator[tuple[float, str]]:
    for index in np.flatnonzero(totals > y.high * (1 + 1e-9)).tolist():
        at = float(x[index])
        yield at, f"step {at:,.0f}: {significant(totals[index])} {y.unit}"
