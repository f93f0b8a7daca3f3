"""What is to be expected on more ranks than were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..communication import CommunicationModel, Measured, fit_communication, project
from ..ledger import Ledger
from ..result import Analysis
from ..stats import Mean
from .points import Point

# Projections go to so many times the largest size, doubling.
_DOUBLINGS = 3


@dataclass(frozen=True)
class Projected:
    """What the model expects on more ranks than were measured."""

    ranks: int
    rate: Mean
    efficiency: Mean | None


def communication_of(analysis: Analysis) -> Measured | None:
    """A run's exposed allreduce, for the model; None on one rank and without stages."""
    entry = analysis.entry("allreduce")
    if entry is None or analysis.run.size < 2:
        return None
    gradient_bytes = int(analysis.run.fact("gradient_bytes") or 1)
    return Measured(analysis.run.size, gradient_bytes, Mean(entry.ms, entry.ci95_ms))


def projection(
    points: Sequence[Point], single: Point | None, model: CommunicationModel | None
) -> tuple[Projected, ...]:
    """The job on two, four and eight times as many ranks as its largest run had.

    Every rank works as on the largest size; imbalance and allreduce grow as the model says.
    """
    largest = points[-1]
    ledger = largest.runs[-1].steady
    if model is None or ledger is None or largest.ranks < 2:
        return ()
    found = []
    for doubling in range(1, _DOUBLINGS + 1):
        ranks = largest.ranks * 2**doubling
        rate = _projected_rate(ranks, points, ledger, model)
        ideal = None if single is None else ranks * single.rate.value
        found.append(Projected(ranks, rate, None if ideal is None else rate.scaled(1 / ideal)))
    return tuple(found)


def _projected_rate(
    ranks: int, points: Sequence[Point], ledger: Ledger, model: CommunicationModel
) -> Mean:
    """With an interval also where runs are too few to say how well the model fits: then it goes from
    all bandwidth to all latency, from the largest size on.
    """
    largest = points[-1]
    sizes = [point.ranks for point in points]
    there = project(ranks, largest.ranks, ledger, model, sizes)
    ci95 = there.ci95
    if ci95 is None:
        of_largest = [one for run in largest.runs if (one := communication_of(run)) is not None]
        bracket = fit_communication(of_largest[-1:])
        wide = None if bracket is None else project(ranks, largest.ranks, ledger, bracket, sizes)
        if wide is not None and wide.ci95 is not None:
            ci95 = (min(wide.ci95[0], there.speedup), max(wide.ci95[1], there.speedup))
    return Mean(there.speedup, ci95).scaled(largest.rate.value)
