"""Chart machine metrics over a run's time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.views.machines import MachineQuantity, ValueColumns, over, quantities
from stallscope.arrays.types import Floats
from stallscope.formatting.lists import joined
from stallscope.formatting.numbers import Scale, amount, scale_for
from stallscope.text.machines import of_whom, reading, scale, title

from .axis import Axis

#: Columns next to each other; a screen cannot show more.
_COLUMNS = 400


@dataclass(frozen=True)
class OverTime:
    """A mean within the range of single values; NaN was not measured."""

    title: str
    sentence: str
    unit: str
    #: The end of the axis of values, which starts at zero.
    top: float
    #: Seconds since the run's start: the middle of each column.
    x: Floats
    columns: ValueColumns

    @property
    def y(self) -> Axis:
        """The axis of values."""
        return Axis(0.0, self.top, self.unit)

    @property
    def times(self) -> Scale:
        """A readable unit for the times."""
        return scale_for(float(self.x[-1]), "s")


def machine_chart(analysis: Analysis) -> OverTime | None:
    """Chart how busy machines were: GPUs, or else CPU cores. None if it was not measured."""
    measured = quantities(analysis.run)
    began = analysis.run.started_at
    if not measured or began is None:
        return None
    quantity = measured[0]
    zero = round(began.timestamp() * 1e9)
    start = min(zero, min(int(series.wall_ns[0]) for series in quantity.series))
    end = max(int(series.wall_ns[-1]) for series in quantity.series) + 1
    columns = over(
        [series.wall_ns for series in quantity.series],
        [series.value for series in quantity.series],
        start,
        end,
        _COLUMNS,
    )
    unit = scale(quantity)
    middles = (
        start - zero + (end - start) * (np.arange(_COLUMNS, dtype=np.float64) + 0.5) / _COLUMNS
    )
    return OverTime(
        f"{title(quantity)} over the run",
        _sentence(quantity, columns),
        unit.unit,
        quantity.top * unit.factor,
        middles * 1e-9,
        ValueColumns(*(part * unit.factor for part in (columns.low, columns.mean, columns.high))),
    )


def _sentence(quantity: MachineQuantity, columns: ValueColumns) -> str:
    of, unit = of_whom(quantity), scale(quantity)
    apart = [np.diff(series.wall_ns) for series in quantity.series if len(series.wall_ns) > 1]
    often = (
        f", every {amount(float(np.median(np.concatenate(apart))) / 1e6, 'ms')}" if apart else ""
    )
    low, high = np.nanmin(columns.low), np.nanmax(columns.high)
    where = joined(list(dict.fromkeys(series.where for series in quantity.series)))
    return (
        f"{f'Of {of}: the' if of else 'The'} mean, and the range of single values, "
        f"{reading(low, unit)} to {reading(high, unit)} in all. Measured by the machines themselves"
        f"{often} ({where})."
    )
