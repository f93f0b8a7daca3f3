"""Show how a job scales: throughput and efficiency over ranks, and the causes of lost efficiency.

Efficiency is the step of one rank, for the same samples, over the step of N ranks. Losses add up
exactly, because both ledgers do: 1 − efficiency = Σ (entry on N ranks − entry on one) / step on N
ranks. Compute that takes longer on more ranks (shared cores, memory and buses) shows as compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from stallscope.arrays.lazy_scipy import scipy_stats

from ..network.communication import CommunicationModel, fit_communication
from ..result import Analysis
from .jobs import alike, jobs_of, value_of
from .pace import FEWEST_REPEATS, Pace, Unit, pace_of
from .points import Point, Scaled, compare_sizes, points_of
from .projection import Projected, communication_of, projection
from .warnings import fault_of, warnings_of

_SIGNIFICANT = 0.05
# Rounding changes the number of steps per epoch of one data set by no more than this.
_SAME_STEPS = 1.5

ScalingKind = Literal["weak", "strong"]


@dataclass(frozen=True)
class SizeTest:
    """A test of whether throughput per rank differs more between sizes than between runs of one size."""

    #: The p of Alexander and Govern's test (1994), which allows unequal variances.
    p: float

    @property
    def found(self) -> bool:
        return self.p < _SIGNIFICANT


@dataclass(frozen=True)
class ScalingSeries:
    """One job on several numbers of ranks, ascending.

    ``weak``: the work per rank is constant; ``strong``: the work of all ranks together is.
    """

    name: str
    kind: ScalingKind
    synthetic: bool
    #: Whether any run recorded that its data is synthetic or real.
    data_known: bool
    #: ``samples``; ``steps`` if batch sizes are unknown; ``epochs`` if only these are known.
    unit: Unit
    #: Whether the batch sizes of all runs are known.
    batches_known: bool
    points: tuple[Scaled, ...]
    alone: Point | None
    model: CommunicationModel | None
    projection: tuple[Projected, ...]
    #: None unless each size ran at least twice.
    difference: SizeTest | None
    warnings: tuple[str, ...]


def scaling(
    analyses: Iterable[Analysis], by: str | None = None, *, one_per_size: bool = False
) -> list[ScalingSeries]:
    """Group runs by job, and show how each job scales; the largest job first.

    Runs without times or without a known number of processes are left out; ``untimed`` lists them.

    Args:
        by: group runs by this one of ``FACTS`` only.
        one_per_size: use the newest clean run of each size (the newest if none is clean) instead of
            the mean of all.
    """
    jobs = jobs_of([pace for analysis in analyses if (pace := pace_of(analysis)) is not None], by)
    if one_per_size:
        jobs = [_one_per_size(job) for job in jobs]
    series = [curve for job in jobs for curve in _series_of(job, by)]
    return sorted(
        series, key=lambda curve: (-curve.points[-1].point.ranks, curve.synthetic, curve.name)
    )


def _one_per_size(job: Sequence[Pace]) -> list[Pace]:
    """Choose the run that represents each size: a clean one first, then the newest."""
    by_size: dict[tuple[int, bool], list[Pace]] = defaultdict(list)
    for run in job:
        by_size[run.size, _without_launcher(run)].append(run)
    return [max(runs, key=_preference) for runs in by_size.values()]


def _preference(pace: Pace) -> tuple[bool, str]:
    began = pace.run.started_at
    when = pace.fact("began_local") if began is None else began.isoformat(" ")
    return fault_of(pace.analysis) is None, str(when or "")


def _series_of(job: Sequence[Pace], by: str | None) -> list[ScalingSeries]:
    """Make the job's series; runs without a common unit become separate series."""
    unit = _unit(job)
    if unit is not None:
        return [_series(job, unit, by)]
    return [curve for run in job for curve in _series_of([run], by)]


def _unit(runs: Sequence[Pace]) -> Unit | None:
    """Return the unit of work that all runs have; None without one."""
    only_steps = all(run.from_steps for run in runs)
    order: tuple[Unit, ...] = ("samples", "epochs", "steps")
    if only_steps or not _one_data_set(runs):
        order = ("samples", "steps", "epochs")
    return next((unit for unit in order if all(run.unit_ms(unit) for run in runs)), None)


def _one_data_set(runs: Sequence[Pace]) -> bool:
    """Whether epochs may be passes of all ranks together over one data set, by the number of steps."""
    known = [(run.size, run.steps_per_epoch) for run in runs if run.steps_per_epoch]
    if not known:
        return True
    totals = [size * steps for size, steps in known]
    # The last step of a rank may be short of samples, or contain some of the next epoch.
    least = max(size * (steps - 1) for size, steps in known)
    most = min(size * (steps + 1) for size, steps in known)
    return least < most and max(totals) < _SAME_STEPS * min(totals)


def _series(runs: Sequence[Pace], unit: Unit, by: str | None) -> ScalingSeries:
    alone = [run for run in runs if _without_launcher(run)]
    launched = [run for run in runs if not _without_launcher(run)]
    # Without a run of the launcher on one rank, use the program without a launcher.
    if not any(run.size == 1 for run in launched):
        launched, alone = list(runs), []
    points = points_of(launched, unit)
    by_itself = points_of(alone, unit)[0] if alone else None
    kind = _kind(launched, points, unit)
    single = points[0] if points[0].ranks == 1 else None
    model = fit_communication(
        [allreduce for run in launched if (allreduce := communication_of(run.analysis)) is not None]
    )
    # A projection starts from steady steps, and is compared with those of one rank.
    from_steps = points[-1].from_steps and (single is None or single.from_steps)
    first = runs[0].analysis
    return ScalingSeries(
        name=_name(first) if by is None else value_of(first.run, by),
        kind=kind,
        synthetic=first.run.synthetic,
        data_known=any(run.from_steps for run in runs),
        unit=unit,
        batches_known=all(run.samples_per_step for run in runs),
        points=tuple(compare_sizes(point, single, by_itself, points[0]) for point in points),
        alone=by_itself,
        model=model,
        projection=projection(points, single, model) if kind == "weak" and from_steps else (),
        difference=_difference(launched, points, unit),
        warnings=tuple(warnings_of(runs, points, unit, _shares_no_batch(launched, kind), single)),
    )


def _kind(runs: Sequence[Pace], points: Sequence[Point], unit: Unit) -> ScalingKind:
    """Return whether scaling is ``weak`` or ``strong``, by the work of a rank per step."""
    if unit == "samples" and all(run.samples_per_step for run in runs):
        return "weak" if alike(points[0].work, points[-1].work) else "strong"
    return "weak" if unit == "steps" else "strong"


def _shares_no_batch(runs: Sequence[Pace], kind: ScalingKind) -> bool:
    """Whether both the batch per rank and the global batch differ between the runs."""
    works = [(run.size, run.samples_per_step) for run in runs]
    totals = [size * work for size, work in works if work is not None]
    known = len(totals) == len(works)
    return kind == "strong" and known and not all(alike(*pair) for pair in pairwise(totals))


def _without_launcher(pace: Pace) -> bool:
    if not pace.from_steps:
        return pace.size == 1 and pace.fact("launcher") == "none"
    return pace.size == 1 and pace.fact("launch") is None


def _name(analysis: Analysis) -> str:
    run = analysis.run
    name = str(run.fact("model") or run.fact("framework") or run.name)
    dataset = run.fact("dataset")
    name += f" on {dataset}" if dataset else ""
    return f"{name}, processes on the driver" if run.fact("placement") == "driver" else name


def _difference(runs: Sequence[Pace], points: Sequence[Point], unit: Unit) -> SizeTest | None:
    if len(points) < 2 or any(len(point.runs) < FEWEST_REPEATS for point in points):
        return None
    per_rank = [
        [
            1 / ms.value
            for run in runs
            if run.size == point.ranks and (ms := run.unit_ms(unit)) is not None
        ]
        for point in points
    ]
    if any(np.ptp(values) == 0 for values in per_rank):
        # Copies of one run do not show how much runs differ.
        return None
    return SizeTest(float(scipy_stats.alexandergovern(*per_rank).pvalue))
