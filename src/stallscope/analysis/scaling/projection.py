"""Project a job to more ranks than were measured, and check that on published curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import log2

import numpy as np

from stallscope.arrays.stats import Mean

from ..ledger.ledger import Ledger
from ..network.communication import (
    CommunicationModel,
    MeasuredAllreduce,
    fit_communication,
    project,
)
from ..result import Analysis
from .points import Point

# Projections go to these multiples of the largest size.
_DOUBLINGS = 3
# Losses may grow faster than a ring's messages, by this factor per doubling, because ranks share
# switches. On published curves the factor is up to 1.15 (VGG-16 with HorovodRunner, from 8 to 16).
_BEYOND_MESSAGES = 1.25
#: Reports mention compute that takes longer by this fraction on more ranks.
CONTENTION = 0.1
# More ranks on the same cores do not get more work done: four ranks on two cores were up to 9 % slower
# together than two (Keras, Horovod).
_LEAST_ON_SHARED_CORES = 0.85

# Curves only have ratios: one rank's step is the unit.
_ALONE_MS = 1_000.0
# Projections go up to this many times the largest size.
_FURTHEST = 8.0


@dataclass(frozen=True)
class Projected:
    """The model's prediction for more ranks than were measured."""

    ranks: int
    rate: Mean
    efficiency: Mean | None


def communication_of(analysis: Analysis) -> MeasuredAllreduce | None:
    """Return a run's exposed allreduce for the model; None on one rank, or if it is unknown."""
    exposed_ms, size = analysis.entry_ms("allreduce"), analysis.run.size
    if exposed_ms is None or size < 2 or analysis.run.times_host_work:
        return None
    return MeasuredAllreduce(size, int(analysis.run.fact("gradient_bytes") or 1), exposed_ms)


def projection(
    points: Sequence[Point], single: Point | None, model: CommunicationModel | None
) -> tuple[Projected, ...]:
    """Project the job to two, four and eight times the ranks of its largest run.

    Every rank works as on the largest size; imbalance and allreduce grow as in the model.
    """
    largest = points[-1]
    ledger = largest.runs[-1].steady
    if model is None or ledger is None or largest.ranks < 2:
        return ()
    projections = []
    for doubling in range(1, _DOUBLINGS + 1):
        ranks = largest.ranks * 2**doubling
        rate = projected_rate(ranks, points, ledger, model)
        ideal = None if single is None else ranks * single.rate.value
        projections.append(
            Projected(ranks, rate, None if ideal is None else rate.scaled(1 / ideal))
        )
    return tuple(projections)


def projected_rate(
    ranks: int, points: Sequence[Point], ledger: Ledger, model: CommunicationModel
) -> Mean:
    """Return the projected rate, with an interval even if there are too few runs to test the model."""
    largest = points[-1]
    sizes = [point.ranks for point in points]
    projected = project(ranks, largest.ranks, ledger, model, sizes)
    of_largest = [
        allreduce for run in largest.runs if (allreduce := communication_of(run)) is not None
    ]
    sure = model_of_interval(model, of_largest[-1], ranks) if of_largest else model
    ci95 = project(ranks, largest.ranks, ledger, sure, sizes).ci95
    if ci95 is not None:
        ci95 = (min(ci95[0], projected.speedup), max(ci95[1], projected.speedup))
        if slower_compute(largest, points[0]) > CONTENTION:
            ci95 = (min(ci95[0], _LEAST_ON_SHARED_CORES), ci95[1])
    return Mean(projected.speedup, ci95).scaled(largest.rate.value)


def model_of_interval(
    model: CommunicationModel, largest: MeasuredAllreduce, ranks: int
) -> CommunicationModel:
    """Return the model that gives the interval.

    With enough sizes to test the fit, that is the fit itself. Otherwise the interval covers everything
    between pure bandwidth and pure latency, and more, from the largest size on.
    """
    if model.covariance is not None:
        return model
    exposed = largest.exposed_ms
    low, high = exposed.ci95 or (exposed.value, exposed.value)
    beyond = _BEYOND_MESSAGES ** log2(ranks / largest.ranks)
    bracket = fit_communication(
        [replace(largest, exposed_ms=Mean(exposed.value, (low, beyond * high)))]
    )
    assert bracket is not None
    return bracket


def slower_compute(point: Point, single: Point) -> float:
    """Return the fraction by which a sample's compute takes longer than on the smaller size."""
    if not point.entries_ms or not single.entries_ms:
        return 0.0
    compute, alone = point.entries_ms["compute"].value, single.entries_ms["compute"].value
    return compute / point.work / (alone / single.work) - 1 if alone > 0 else 0.0


# -- Published scaling curves to compare with, each with its source -------------------------------
#
# Figures are as printed there, from tables and text, not read off charts.


@dataclass(frozen=True)
class PublishedCurve:
    """A published series: per number of processes a rate, or only an efficiency."""

    name: str
    source: str
    #: The unit of ``values``: ``samples/s``, ``efficiency`` (a fraction) or ``seconds`` for the same
    #: work.
    unit: str
    processes: tuple[int, ...]
    values: tuple[float, ...]

    @property
    def efficiency(self) -> tuple[float, ...]:
        """Fractions of ideal scaling from one process."""
        if self.unit == "efficiency":
            return self.values
        rates = [1 / value if self.unit == "seconds" else value for value in self.values]
        pairs = zip(self.processes, rates, strict=True)
        return tuple(rate / rates[0] * self.processes[0] / count for count, rate in pairs)


_HOROVOD = "Horovod's docs/benchmarks: 128 servers with 4 Pascal GPUs each, 25 Gbit/s RoCE"


_RUNNER = "Pan et al. 2020 (arXiv:2005.05510), HorovodRunner on Databricks"


_CALTECH = f"{_RUNNER}: Caltech101 on GPUs, images/s of the whole job"


_MNIST = f"{_RUNNER}: MNIST on CPUs, seconds for the same work"


_SIZES = (1, 8, 16, 32)


CURVES: tuple[PublishedCurve, ...] = (
    PublishedCurve("Inception V3, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.90,)),
    PublishedCurve("ResNet-101, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.90,)),
    PublishedCurve("VGG-16, 512 GPUs", _HOROVOD, "efficiency", (512,), (0.68,)),
    PublishedCurve(
        "VGG-16, HorovodRunner", _CALTECH, "samples/s", _SIZES, (24.6, 96.5, 110.6, 145.5)
    ),
    PublishedCurve(
        "Inception V3, HorovodRunner", _CALTECH, "samples/s", _SIZES, (21.5, 137.3, 217.0, 337.3)
    ),
    PublishedCurve(
        "MNIST, HorovodRunner",
        _MNIST,
        "seconds",
        (1, 2, 4, 8, 16, 32),
        (1631.0, 1113.0, 687.0, 477.0, 400.0, 390.0),
    ),
)

# -- Measure the errors of projections on published curves ----------------------------------------
#
# Fit smaller sizes, predict larger ones.
#
# A published curve has no ledger, so everything that a rank loses against a single one counts as
# communication. The projections and their intervals are those of reports.


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
