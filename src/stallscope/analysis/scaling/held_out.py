"""Measure the errors of projections on published curves: fit smaller sizes, predict larger ones.

A published curve has no ledger, so everything that a rank loses against a single one counts as
communication. The projections and their intervals are those of reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2

import numpy as np

from stallscope.arrays.stats import Mean

from ..network.communication import MeasuredAllreduce, fit_communication
from .projection import model_of_interval
from .published import CURVES, PublishedCurve

# Curves only have ratios: one rank's step is the unit.
_ALONE_MS = 1_000.0
# Projections go up to this many times the largest size.
_FURTHEST = 8.0


@dataclass(frozen=True)
class HeldOut:
    """A published size and its projection from smaller ones; efficiencies are fractions."""

    curve: PublishedCurve
    #: The sizes that the model was fitted to, including one rank.
    sizes: tuple[int, ...]
    ranks: int
    projected: Mean
    published: float

    @property
    def error(self) -> float:
        """The error of the projected throughput relative to the published one; positive: too high."""
        return self.projected.value / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the interval of the projection contains the published value."""
        low, high = self.projected.ci95 or (self.projected.value, self.projected.value)
        return low <= self.published <= high

    @property
    def doublings(self) -> float:
        """The distance of the projection, in doublings."""
        return log2(self.ranks / self.sizes[-1])


@dataclass(frozen=True)
class TrackRecord:
    """The errors of projections from one size on several ranks, or from more."""

    projections: tuple[HeldOut, ...]

    @property
    def median(self) -> float:
        """The median of the errors' sizes."""
        return float(np.median([abs(projection.error) for projection in self.projections]))

    @property
    def largest(self) -> float:
        """The largest error, with its sign."""
        return max((projection.error for projection in self.projections), key=abs)

    @property
    def inside(self) -> int:
        """The number of intervals that contain the published value."""
        return sum(projection.inside for projection in self.projections)


@cache
def held_out() -> tuple[HeldOut, ...]:
    """Project sizes of the published curves from every number of smaller ones, up to eight times."""
    return tuple(projection for curve in CURVES for projection in _of_curve(curve))


def track_record(sizes_on_several: int, doublings: int) -> TrackRecord | None:
    """Summarise the errors of projections from one size on several ranks, or more, by doublings.

    None if no published curve has such sizes.
    """
    projections = tuple(
        projection
        for projection in held_out()
        if projection.doublings == doublings
        and (len(projection.sizes) > 2) == (sizes_on_several > 1)
    )
    return TrackRecord(projections) if projections else None


def _of_curve(curve: PublishedCurve) -> Iterator[HeldOut]:
    efficiency = dict(zip(curve.processes, curve.efficiency, strict=True))
    # A projection needs one rank and a size on several.
    for count in range(2, len(curve.processes)) if 1 in efficiency else ():
        sizes = curve.processes[:count]
        for ranks in curve.processes[count:]:
            if ranks <= _FURTHEST * sizes[-1]:
                projected = _projected([(size, efficiency[size]) for size in sizes], ranks)
                yield HeldOut(curve, sizes, ranks, projected, efficiency[ranks])


def _projected(known: Sequence[tuple[int, float]], ranks: int) -> Mean:
    """Project the efficiency on more ranks than the known ones."""
    runs = [
        MeasuredAllreduce(size, 1, Mean(_ALONE_MS * (1 / efficiency - 1), None))
        for size, efficiency in known
        if size > 1
    ]
    model = fit_communication(runs)
    assert model is not None
    value = model.at(ranks).value
    low, high = model_of_interval(model, runs[-1], ranks).at(ranks).ci95 or (value, value)
    return Mean(_efficiency(value), (_efficiency(max(high, value)), _efficiency(min(low, value))))


def _efficiency(exposed_ms: float) -> float:
    return _ALONE_MS / (_ALONE_MS + exposed_ms)
