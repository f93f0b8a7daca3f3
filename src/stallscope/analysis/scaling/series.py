"""How a job scales: throughput and efficiency over ranks, and where the lost efficiency went.

The step of N ranks is held against the step of one: efficiency is what one rank's step for as many
samples takes, over N ranks' step. What is lost adds up exactly, because both steps' ledgers do:
1 − efficiency = Σ (entry on N ranks − entry on one) / step on N ranks. Compute that takes longer on more
ranks (cores, memory and buses that are shared) shows as compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from ..communication import CommunicationModel, fit_communication
from ..later import scipy_stats
from ..result import Analysis
from .points import FEWEST_REPEATS, Point, Scaled, held_against, points_of, work_of
from .projection import CONTENTION, Projected, communication_of, projection, slower_compute

# What makes two runs the same job, whatever their number of ranks.
_SAME_JOB = ("framework", "model", "parameters", "optimizer", "backward_passes_per_step")
# What may differ within a job and makes its sizes less comparable.
_BETTER_THE_SAME = ("versions", "threads")
# Samples per step are counted; what is left of differences comes from uneven last batches.
_SAME_WORK = 0.02
_SIGNIFICANT = 0.05

Kind = Literal["weak", "strong"]


@dataclass(frozen=True)
class Difference:
    """Whether throughput per rank differs between sizes by more than between runs of one size."""

    #: Of the test of Alexander and Govern (1994), which allows sizes that scatter differently.
    p: float

    @property
    def found(self) -> bool:
        return self.p < _SIGNIFICANT


@dataclass(frozen=True)
class Series:
    """One job on several numbers of ranks, ascending.

    ``weak``: every rank has the same work whatever their number; ``strong``: all ranks together have.
    """

    name: str
    kind: Kind
    synthetic: bool
    #: ``samples``, or ``steps`` where batch sizes are not known.
    unit: str
    points: tuple[Scaled, ...]
    alone: Point | None
    model: CommunicationModel | None
    projection: tuple[Projected, ...]
    #: None where sizes were not run at least twice each.
    difference: Difference | None
    warnings: tuple[str, ...]


def scaling(analyses: Iterable[Analysis]) -> list[Series]:
    """Bring runs of the same jobs together, and say how each job scales; the largest job first.

    Runs whose steps could not be timed are left out.
    """
    jobs: dict[tuple[str, ...], list[Analysis]] = defaultdict(list)
    for analysis in analyses:
        if analysis.step is not None and analysis.step.mean > 0:
            jobs[_job(analysis)].append(analysis)
    series = [_series(runs) for found in jobs.values() for runs in _by_work(found)]
    return sorted(series, key=lambda one: (-one.points[-1].point.ranks, one.synthetic, one.name))


def _job(analysis: Analysis) -> tuple[str, ...]:
    run = analysis.run
    return (*(str(run.fact(name)) for name in _SAME_JOB), str(run.synthetic))


def _by_work(runs: Sequence[Analysis]) -> list[list[Analysis]]:
    """A job's runs, apart by batch size where each of them has several sizes of its own."""
    groups: list[list[Analysis]] = []
    for run in sorted(runs, key=work_of):
        if groups and _alike(work_of(groups[-1][0]), work_of(run)):
            groups[-1].append(run)
        else:
            groups.append([run])
    several = any(len({run.run.size for run in group}) > 1 for group in groups)
    return groups if several else [list(runs)]


def _alike(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_WORK * max(one, other)


def _series(runs: Sequence[Analysis]) -> Series:
    counted = all(work_of(run) > 0 for run in runs)
    alone = [run for run in runs if _without_launcher(run)]
    launched = [run for run in runs if not _without_launcher(run)]
    # Without a run of the launcher on one rank, the program by itself is the best there is.
    if not any(run.run.size == 1 for run in launched):
        launched, alone = list(runs), []
    points = points_of(launched, counted)
    by_itself = points_of(alone, counted)[0] if alone else None
    kind: Kind = "weak" if _alike(points[0].work, points[-1].work) else "strong"
    single = points[0] if points[0].ranks == 1 else None
    model = fit_communication(
        [one for run in launched if (one := communication_of(run)) is not None]
    )
    return Series(
        name=_name(runs[0]),
        kind=kind,
        synthetic=runs[0].run.synthetic,
        unit="samples" if counted else "steps",
        points=tuple(held_against(point, single, by_itself, points[0]) for point in points),
        alone=by_itself,
        model=model,
        projection=projection(points, single, model) if kind == "weak" else (),
        difference=_difference(points),
        warnings=tuple(_warnings(runs, points, kind, counted, single)),
    )


def _without_launcher(analysis: Analysis) -> bool:
    return analysis.run.size == 1 and analysis.run.fact("launch") is None


def _name(analysis: Analysis) -> str:
    run = analysis.run
    return str(run.fact("model") or run.fact("framework") or run.name)


def _difference(points: Sequence[Point]) -> Difference | None:
    if len(points) < 2 or any(len(point.runs) < FEWEST_REPEATS for point in points):
        return None
    per_rank = [
        [point.work / run.step.mean for run in point.runs if run.step is not None]
        for point in points
    ]
    if any(np.ptp(values) == 0 for values in per_rank):
        # Runs that are copies of each other know nothing of how runs differ.
        return None
    return Difference(float(scipy_stats.alexandergovern(*per_rank).pvalue))


def _warnings(
    runs: Sequence[Analysis],
    points: Sequence[Point],
    kind: Kind,
    counted: bool,
    single: Point | None,
) -> Iterable[str]:
    if len(points) == 1:
        yield f"all runs are on {_ranks(points[0].ranks)}: scaling needs runs on other numbers"
    if single is None:
        yield "there is no run on one rank: efficiency is only known against the smallest size"
    if not counted:
        yield "batch sizes are not known: every rank's step is taken for the same work"
    if kind == "strong" and not _same_in_total(points):
        yield "neither the batch per rank nor that of all ranks together is the same in all runs"
    if single is not None and slower_compute(points[-1], single) > CONTENTION:
        yield (
            f"compute takes {slower_compute(points[-1], single):.0%} longer on "
            f"{_ranks(points[-1].ranks)} than on one: ranks share cores, memory or buses; the "
            "projection takes it as it is on the largest size, and its interval begins where more "
            "ranks on the same machines get nothing more done"
        )
    for name in _BETTER_THE_SAME:
        if len({str(run.run.fact(name)) for run in runs}) > 1:
            yield f"{name} are not the same in all runs"
    for run in runs:
        if run.run.missing_ranks:
            yield f"{run.run.name}: {len(run.run.missing_ranks)} of {run.run.size} ranks left no log"


def _same_in_total(points: Sequence[Point]) -> bool:
    totals = [point.ranks * point.work for point in points]
    return all(_alike(one, other) for one, other in pairwise(totals))


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"
