"""Show how a job scales: throughput and efficiency over ranks, and the causes of lost efficiency.

Efficiency is the step of one rank, for the same samples, over the step of N ranks. Losses add up
exactly, because both ledgers do: 1 − efficiency = Σ (entry on N ranks − entry on one) / step on N
ranks. Compute that takes longer on more ranks (shared cores, memory and buses) shows as compute.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from stallscope.arrays.distributions import scipy_stats
from stallscope.formatting.lists import counted, listed
from stallscope.words import LOST_TIME

from ..network.communication import CommunicationModel, fit_communication
from ..result import Analysis, differ
from .pace import (
    FEWEST_REPEATS,
    PARTS_OF_SAMPLES,
    Pace,
    PartOfSample,
    Unit,
    alike,
    jobs_of,
    pace_of,
    value_of,
)
from .points import Point, Scaled, compare_sizes, points_of
from .projection import CONTENTION, Projected, communication_of, projection, slower_compute

_SIGNIFICANT = 0.05
# Rounding changes the number of steps per epoch of one data set by no more than this.
_SAME_STEPS = 1.5
ScalingKind = Literal["weak", "strong"]

# Facts that may differ within a job and make its sizes less comparable.
_BETTER_THE_SAME = ("versions", "threads")


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
    #: ``samples``, or ``tokens`` or ``elements`` if samples of the runs have different numbers of them;
    #: ``steps`` if batch sizes are unknown; ``epochs`` if only these are known.
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

    ``left_out`` lists the runs that are in no curve: those without times or a known number of
    processes, and lines of which nothing says that they are the same job.

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
    if only_steps:
        order = (*(unit for unit in PARTS_OF_SAMPLES if _samples_differ(runs, unit)), *order)
    return next((unit for unit in order if all(run.unit_ms(unit) for run in runs)), None)


def _samples_differ(runs: Sequence[Pace], unit: PartOfSample) -> bool:
    """Whether samples of the runs hold different numbers of tokens or elements."""
    each = [
        parts.scaled(1 / run.samples_per_step)
        for run in runs
        if (parts := run.parts_per_step.get(unit)) is not None and run.samples_per_step
    ]
    return len(each) == len(runs) and differ(each)


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
        warnings=tuple(
            warnings_of(runs, points, unit, _shares_no_batch(launched, unit, kind), single)
        ),
    )


def _kind(runs: Sequence[Pace], points: Sequence[Point], unit: Unit) -> ScalingKind:
    """Return whether scaling is ``weak`` or ``strong``, by the work of a rank per step."""
    of_samples = unit == "samples" or unit in PARTS_OF_SAMPLES
    if of_samples and all(run.work_of_step(unit) for run in runs):
        return "weak" if alike(points[0].work, points[-1].work) else "strong"
    return "weak" if unit == "steps" else "strong"


def _shares_no_batch(runs: Sequence[Pace], unit: Unit, kind: ScalingKind) -> bool:
    """Whether both the batch per rank and the global batch differ between the runs."""
    counted_in: Unit = unit if unit in PARTS_OF_SAMPLES else "samples"
    works = [(run.size, run.work_of_step(counted_in)) for run in runs]
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


# -- Warn about the limits of a series ------------------------------------------------------------


def warnings_of(
    runs: Sequence[Pace],
    points: Sequence[Point],
    unit: Unit,
    shares_no_batch: bool,
    single: Point | None,
) -> Iterator[str]:
    """Return warnings, as sentences without a capital and a full stop.

    Args:
        shares_no_batch: whether both the batch per rank and the global batch differ.
        single: the point on one rank.
    """
    if len(points) == 1:
        which = "all runs are" if len(points[0].runs) > 1 else "the only run is"
        yield f"{which} on {counted(points[0].ranks, 'rank')}: scaling needs runs on other numbers"
    if single is None:
        yield "there is no run on one rank: efficiency is only known against the smallest size"
    yield from _of_the_unit(unit)
    if shares_no_batch:
        yield "neither the batch per rank nor that of all ranks together is the same in all runs"
    if single is not None and slower_compute(points[-1], single) > CONTENTION:
        yield (
            f"compute takes {slower_compute(points[-1], single):.0%} longer on "
            f"{counted(points[-1].ranks, 'rank')} than on one: ranks share cores, memory or buses. The "
            "projection assumes compute as on the largest size; its interval also covers still slower "
            "compute"
        )
    yield from _of_epochs(runs)
    faulty = [point for point in points if all(fault_of(run) for run in point.runs)]
    for point in points:
        # If every size has the fault, it is a property of the job.
        yield from _of_faults(point, compare=len(faulty) < len(points))
    for name in _BETTER_THE_SAME:
        known = {str(run.fact(name)) for run in runs if run.from_steps}
        if len(known) > 1:
            yield f"{name} are not the same in all runs"
    for run in runs:
        missing = run.run.missing_ranks
        if missing and run.from_steps:
            yield f"{run.run.name}: {len(missing)} of {run.size} ranks left no log"


def _of_the_unit(unit: Unit) -> Iterator[str]:
    if unit == "steps":
        yield "batch sizes are unknown: every rank's step is assumed to be the same work"
    if unit == "epochs":
        yield (
            "samples per epoch are unknown: an epoch is assumed to be one pass of all ranks together "
            "over the same data, so efficiency is time on one rank / (N × time on N ranks)"
        )


def _of_epochs(runs: Sequence[Pace]) -> Iterator[str]:
    """Describe the sources of figures if steps were not recorded."""
    others = [run for run in runs if not run.from_steps]
    if not others:
        return
    yield (
        "where steps were not recorded, steady figures are means of epochs without the first one, with "
        f"validation, or of printed steps: {'; '.join(_sources(others))}"
    )
    if any("TimeHistory" in str(run.fact("known_from")) for run in others):
        yield "examples per second that TimeHistory logged are assumed to be those of all ranks together"
    partly = [run for run in others if not run.fact("whole_job")]
    if partly:
        sizes = sorted({run.size for run in partly})
        yield (
            f"the start of the job on {', '.join(map(str, sizes))} "
            f"{'rank' if sizes == [1] else 'ranks'} is unknown: it counts from its first epoch or step"
        )
    if len(others) < len(runs):
        yield (
            "some runs recorded their steps, others their epochs: efficiency compares epochs with "
            "epochs if both runs have them"
        )


def _sources(runs: Sequence[Pace]) -> list[str]:
    """Name the sources of epochs, each with its worst precision."""
    sources: dict[str, tuple[float, str]] = {}
    for run in runs:
        known = run.analysis.epoch_times
        if known is not None:
            half = float(run.fact("epoch_precision_ms") or 0.0)
            worst = max(sources.get(known.known_from, (-1.0, "")), (half, known.precision))
            sources[known.known_from] = worst
    return [f"{known_from} ({precision})" for known_from, (_, precision) in sources.items()]


def _of_faults(point: Point, *, compare: bool) -> Iterator[str]:
    """Warn about sizes at which only some runs have a fault, and about sizes without a clean run."""
    faults = [(run.run.name, fault_of(run)) for run in point.runs]
    faulty = [f"{name} ({fault})" for name, fault in faults if fault is not None]
    if faulty and len(faulty) < len(faults):
        yield (
            f"runs on {counted(point.ranks, 'rank')} are averaged though they differ by a fault: "
            f"{', '.join(faulty)}"
        )
    elif faulty and compare:
        yield f"every run on {counted(point.ranks, 'rank')} has a fault: {', '.join(faulty)}"


def fault_of(analysis: Analysis) -> str | None:
    """Describe the fault in a few words (``slow rank 3``); None for a clean run."""
    verdict = analysis.bottleneck
    if verdict.fault:
        if verdict.loss is not None:
            return LOST_TIME[verdict.loss.cause]
        if not verdict.ranks:
            return "slow ranks" if verdict.kind == "imbalance" else verdict.kind
        ranks = listed("rank", verdict.ranks)
        return f"slow {ranks}" if verdict.kind == "imbalance" else f"{verdict.kind} of {ranks}"
    return next(
        (finding.title for finding in analysis.findings if finding.severity == "error"), None
    )
