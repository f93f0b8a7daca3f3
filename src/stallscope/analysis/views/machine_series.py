"""Sort the measurements of machines by usefulness, and summarise their values over time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.run import Run, Series

_DEVICE = re.compile(r"^gpu_[0-9]+_")
# The quantities that explain most come first.
_FIRST = (
    ("gpu_utilization", "%"),
    ("cpu_utilization", "%"),
    ("gpu_busy", "%"),
    ("process_cpu", "cores"),
    ("gpu_memory_usage", "%"),
    ("system_memory_usage", "%"),
    ("process_waiting_for_cores", "threads"),
    ("host_cpu", "cores"),
)
# A value covers the time since the previous one, unless that is this many times the usual interval.
_LONGEST_DISTANCES = 2.0


@dataclass(frozen=True)
class MachineQuantity:
    """One kind of measurement, of all machines and devices or of one of them."""

    #: Its name in the log; without the device's number if it covers several.
    name: str
    unit: str
    series: tuple[Series, ...]
    #: Whether it covers all machines and devices.
    whole: bool

    @property
    def key(self) -> str:
        """Return a key for addresses that is unique among the quantities of a run."""
        series = self.series[0]
        rank = "" if series.rank is None else f"rank {series.rank}"
        place = () if self.whole else (series.node or "", rank)
        return "/".join(part for part in (*place, self.name, self.unit) if part)

    @property
    def top(self) -> float:
        """Return the end of an axis that starts at zero."""
        highest = max(float(series.value.max()) for series in self.series)
        return max(highest, 100.0) if self.unit == "%" else max(highest, 0.0) or 1.0

    @property
    def devices(self) -> int:
        """Return the number of GPUs that it covers."""
        return sum(_DEVICE.match(series.name) is not None for series in self.series)

    @property
    def ranks(self) -> int:
        """Return the number of ranks that it covers."""
        return len({series.rank for series in self.series} - {None})

    @property
    def nodes(self) -> int:
        return len({series.node for series in self.series})


@dataclass(frozen=True)
class ValueColumns:
    """Values in columns of equal width; NaN where nothing was measured."""

    low: Floats
    mean: Floats
    high: Floats


@dataclass(frozen=True)
class Figures:
    """Values between two moments: their mean, minimum and maximum."""

    mean: float
    low: float
    high: float
    #: The number of values.
    values: int


def quantities(run: Run) -> list[MachineQuantity]:
    """Return the quantities measured, the most useful first: of all machines, then of each."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for series in run.series:
        groups.setdefault((_DEVICE.sub("gpu_", series.name), series.unit), []).append(series)
    ordered = sorted(groups.items(), key=lambda group: _worth(*group[0]))
    together, alone = [], []
    for (name, unit), members in ordered:
        if len(members) == 1:
            together.append(MachineQuantity(members[0].name, unit, tuple(members), False))
        else:
            together.append(MachineQuantity(name, unit, tuple(members), True))
            alone += [MachineQuantity(series.name, unit, (series,), False) for series in members]
    return [*together, *alone]


def over(
    times: Sequence[Ints], values: Sequence[Floats], begin: int, end: int, columns: int
) -> ValueColumns:
    """Bin series into columns of equal width, for one chart.

    A column has the minimum, the mean and the maximum of its values, or the value that covers its time.
    The mean over several series counts each of them once.

    Args:
        times: of the values of each series, ascending, in any nanoseconds.
        values: the values of each series.
        begin: the start of the first column, in the same nanoseconds.
        end: the end of the last column.
        columns: their number.
    """
    edges = np.linspace(begin, end, columns + 1).astype(np.int64)
    low, high = np.full(columns, np.inf), np.full(columns, -np.inf)
    total, members = np.zeros(columns), np.zeros(columns)
    for at, value in zip(times, values, strict=True):
        bins = _columns(at, value, edges)
        known = ~np.isnan(bins.mean)
        low[known] = np.minimum(low[known], bins.low[known])
        high[known] = np.maximum(high[known], bins.high[known])
        total[known] += bins.mean[known]
        members += known
    covered = members > 0
    none = np.full(columns, np.nan)
    return ValueColumns(
        np.where(covered, low, none),
        np.divide(total, members, out=none.copy(), where=covered),
        np.where(covered, high, none),
    )


def between(series: Sequence[Series], begin: int, end: int) -> Figures | None:
    """Summarise the values between two wall times, nanoseconds since 1970; None without values."""
    parts = []
    for source in series:
        first, last = np.searchsorted(source.wall_ns, (begin, end + 1))
        parts.append(source.value[first:last])
    values = np.concatenate(parts) if parts else np.zeros(0)
    return figures_of(values) if len(values) else None


def figures_of(values: Floats) -> Figures:
    """Summarise at least one value."""
    return Figures(float(values.mean()), float(values.min()), float(values.max()), len(values))


def _columns(at: Ints, value: Floats, edges: Ints) -> ValueColumns:
    bounds = np.searchsorted(at, edges, "right")
    counts = np.diff(bounds)
    low, mean, high = (np.full(len(counts), np.nan) for _ in range(3))
    inside = np.flatnonzero(counts)
    if len(inside):
        part, starts = value[bounds[0] : bounds[-1]], bounds[inside] - bounds[0]
        low[inside] = np.minimum.reduceat(part, starts)
        high[inside] = np.maximum.reduceat(part, starts)
        mean[inside] = np.add.reduceat(part, starts) / counts[inside]
    reach = _LONGEST_DISTANCES * float(np.median(np.diff(at))) if len(at) > 1 else 0.0
    empty = np.flatnonzero((counts == 0) & (bounds[1:] < len(at)))
    following = bounds[1:][empty]
    near = at[following] - edges[1:][empty] < reach
    for array in (low, mean, high):
        array[empty[near]] = value[following[near]]
    return ValueColumns(low, mean, high)


def _worth(name: str, unit: str) -> tuple[int, str, str]:
    first = _FIRST.index((name, unit)) if (name, unit) in _FIRST else len(_FIRST)
    return first, name, unit
