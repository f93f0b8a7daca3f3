"""Project a job to more ranks than were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

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


@dataclass(frozen=True)
class Projected:
    """The model's prediction for more ranks than were measured."""

    ranks: int
    rate: Mean
    efficiency: Mean | None


def communication_of(analysis: Analysis) -> MeasuredAllreduce | None:
    """Return a run's exposed allreduce for the model; None on one rank or without stages."""
    exposed_ms, size = analysis.entry_ms("allreduce"), analysis.run.size
    if exposed_ms is None or size < 2:
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
