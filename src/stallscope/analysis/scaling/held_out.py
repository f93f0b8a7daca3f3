"""How far projections were off on published curves: fitted to smaller sizes, held against larger ones.

A published curve has no ledger: all that a rank loses against one alone is taken for communication, as
if nothing else grew with the number of ranks. What is projected is what the product projects, with its
interval.
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
from .published import CURVES, Curve

# Curves tell ratios only: one rank's step is the unit.
_ALONE_MS = 1_000.0
#: Projections go no further.
_FURTHEST = 8.0


@dataclass(frozen=True)
class HeldOut:
    """A published size, and what was projected for it from smaller ones; efficiencies are fractions."""

    curve: Curve
    #: The sizes that the model was fitted to, one rank among them.
    sizes: tuple[int, ...]
    ranks: int
    projected: Mean
    published: float

    @property
    def error(self) -> float:
        """Of the projected throughput, as a fraction of the published one; positive: too high."""
        return self.projected.value / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the interval of the projection holds what was published."""
        low, high = self.projected.ci95 or (self.projected.value, self.projected.value)
        return low <= self.published <= high

    @property
    def doublings(self) -> float:
        """How far it was projected."""
        return log2(self.ranks / self.sizes[-1])


@dataclass(frozen=True)
class TrackRecord:
    """How far projections from as many sizes on several ranks were off."""

    projections: tuple[HeldOut, ...]

    @property
    def curves(self) -> int:
        return len({one.curve.name for one in self.projections})

    @property
    def median(self) -> float:
        """Of the errors' sizes."""
        return float(np.median([abs(one.error) for one in self.projections]))

    @property
    def largest(self) -> float:
        """The error furthest from none, with its sign."""
        return max((one.error for one in self.projections), key=abs)

    @property
    def inside(self) -> int:
        """How many intervals held what was published."""
        return sum(one.inside for one in self.projections)


@cache
def held_out() -> tuple[HeldOut, ...]:
    """Sizes of the published curves, projected from every number of smaller ones, up to eight times."""
    return tuple(one for curve in CURVES for one in _of_curve(curve))


def track_record(sizes_on_several: int, doublings: int) -> TrackRecord | None:
    """What is known of projections from one size on several ranks, or from more, over so many doublings.

    None where no published curve has such sizes.
    """
    found = tuple(
        one
        for one in held_out()
        if one.doublings == doublings and (len(one.sizes) > 2) == (sizes_on_several > 1)
    )
    return TrackRecord(found) if found else None


def _of_curve(curve: Curve) -> Iterator[HeldOut]:
    efficiency = dict(zip(curve.processes, curve.efficiency, strict=True))
    # Without one rank, and a size on several, there is nothing to project from.
    for count in range(2, len(curve.processes)) if 1 in efficiency else ():
        sizes = curve.processes[:count]
        for ranks in curve.processes[count:]:
            if ranks <= _FURTHEST * sizes[-1]:
                projected = _projected([(size, efficiency[size]) for size in sizes], ranks)
                yield HeldOut(curve, sizes, ranks, projected, efficiency[ranks])


def _projected(known: Sequence[tuple[int, float]], ranks: int) -> Mean:
    """The efficiency on more ranks than are known."""
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
