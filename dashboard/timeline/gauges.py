"""Gauges: what machines measured, on the timeline's axis; one of them is shown below the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.machines import Quantity, over, quantities
from stallscope.arrays.types import Ints
from stallscope.run import Run
from stallscope.text.machines import label, of_whom, scale, title

from .axis import Axis

# More are too many to choose from; the first ones are of all machines together.
_MOST_GAUGES = 200


@dataclass(frozen=True)
class Gauge:
    """A quantity, and where the values of its series lie on the axis."""

    quantity: Quantity
    at: tuple[Ints, ...]


def gauges(run: Run, lanes: Lanes) -> list[Gauge]:
    """The quantities of which something lies on the axis, the most telling first."""
    axis = Axis.of(run, lanes)
    if axis is None:
        return []
    at = {id(series): axis.place(series.wall_ns) for series in run.series}
    placed = (
        Gauge(quantity, tuple(at[id(series)] for series in quantity.series))
        for quantity in quantities(run)
    )
    return [gauge for gauge in placed if _is_on_axis(gauge, lanes.span)][:_MOST_GAUGES]


def as_head(found: Sequence[Gauge]) -> list[dict[str, Any]]:
    """What the script knows of each from the start."""
    return [_head(gauge.quantity) for gauge in found]


def columns_of(
    gauge: Gauge, begin: int, end: int, columns: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Least, mean and greatest value per column of a part of the axis; NaN where there is none."""
    values = [series.value for series in gauge.quantity.series]
    found = over(gauge.at, values, begin, end, columns)
    arrays = {"low": found.low, "mean": found.mean, "high": found.high}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _is_on_axis(gauge: Gauge, span: int) -> bool:
    return any(bool(((at >= 0) & (at <= span)).any()) for at in gauge.at)


def _head(quantity: Quantity) -> dict[str, Any]:
    unit = scale(quantity)
    return {
        "key": quantity.key,
        "label": label(quantity),
        "title": title(quantity),
        "of": of_whom(quantity),
        # As it was logged, and as it reads well: the latter is so many times the former.
        "loggedUnit": quantity.unit,
        "unit": unit.unit,
        "factor": unit.factor,
        "top": quantity.top,
    }
