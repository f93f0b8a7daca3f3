"""Place machine metrics on the timeline's axis; one of them is shown below the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.gains.bottleneck import Reason
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.machines import MachineQuantity, over, quantities
from stallscope.arrays.types import Ints
from stallscope.text.machines import label, of_whom, scale, title

from ..store.page_cache import cached
from .axis import TimeAxis

# More are too many to choose from. Metrics of all machines together come first.
_MOST_GAUGES = 200


@dataclass(frozen=True)
class Gauge:
    """A quantity, and the positions of its values on the axis."""

    quantity: MachineQuantity
    at: tuple[Ints, ...]


def gauges(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """Return the quantities with values on the axis, the most important first."""
    run = analysis.run
    axis = TimeAxis.of(run, lanes)
    if axis is None:
        return []
    at = {id(series): axis.place(series.wall_ns) for series in run.series}
    placed = (
        Gauge(quantity, tuple(at[id(series)] for series in quantity.series))
        for quantity in quantities(run)
    )
    found = [gauge for gauge in placed if _is_on_axis(gauge, lanes.span)]
    if analysis.bottleneck.why:
        reason = analysis.bottleneck.why[0]
        found.sort(key=lambda gauge: _order(gauge.quantity, reason))
    return found[:_MOST_GAUGES]


def _order(quantity: MachineQuantity, reason: Reason) -> int:
    """Put the metric that explains the verdict first: of a slow rank, or else of all ranks."""
    if quantity.name != reason.series:
        return 2
    return int(quantity.whole or quantity.series[0].rank not in reason.ranks)


def gauges_of(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """Return ``gauges`` of an analysis, computed once."""
    return cached(analysis, "gauges", lambda: gauges(analysis, lanes))


def gauges_head(found: Sequence[Gauge]) -> list[dict[str, Any]]:
    """Return the names and units of gauges for the script."""
    return [_head(gauge.quantity) for gauge in found]


def columns_of(
    gauge: Gauge, start: int, end: int, columns: int
) -> dict[str, npt.NDArray[np.float32]]:
    """Return minimum, mean and maximum per column of a part of the axis; NaN without a value."""
    values = [series.value for series in gauge.quantity.series]
    found = over(gauge.at, values, start, end, columns)
    arrays = {"low": found.low, "mean": found.mean, "high": found.high}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def _is_on_axis(gauge: Gauge, span: int) -> bool:
    return any(bool(((at >= 0) & (at <= span)).any()) for at in gauge.at)


def _head(quantity: MachineQuantity) -> dict[str, Any]:
    unit = scale(quantity)
    return {
        "key": quantity.key,
        "label": label(quantity),
        "title": title(quantity),
        "of": of_whom(quantity),
        # Shown values are logged values times the factor.
        "loggedUnit": quantity.unit,
        "unit": unit.unit,
        "factor": unit.factor,
        "top": quantity.top,
    }
