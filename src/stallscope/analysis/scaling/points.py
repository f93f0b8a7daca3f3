"""A job on one number of ranks, and compared with one rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.words import ENTRIES

from ..result import Analysis
from .pace import PARTS_OF_SAMPLES, Pace, Unit, mean_over


@dataclass(frozen=True)
class Point:
    """A job on one number of ranks: all its runs of this size."""

    ranks: int
    runs: tuple[Analysis, ...]
    #: Samples of one rank per step, or what they hold; 1 if unknown: then all rates are of steps.
    work: float
    #: Whether every step of every run was recorded.
    from_steps: bool
    #: Milliseconds over the runs. The interval comes from the spread of several runs, or from the
    #: steps of a single one. None if runs have no steps.
    step_ms: Mean | None
    #: By name of the ledger's entries; empty if stages were not measured.
    entries_ms: Mapping[str, Mean]
    #: Milliseconds of one rank per unit of work: in steady steps, or in steady epochs if steps were not
    #: recorded.
    unit_ms: Mean
    #: The same in steady epochs, including validation; None if epochs are unknown.
    unit_epochs_ms: Mean | None
    #: The same over the whole job.
    unit_job_ms: Mean | None

    @cached_property
    def rate(self) -> Mean:
        """Units of work per second of all ranks together, in steady steps or epochs."""
        return _rate(self.ranks, self.unit_ms)

    @cached_property
    def job_rate(self) -> Mean | None:
        """Units of work per second over the whole job."""
        return None if self.unit_job_ms is None else _rate(self.ranks, self.unit_job_ms)


@dataclass(frozen=True)
class Scaled:
    """A point compared with one rank; None without a run on one rank."""

    point: Point
    efficiency: Mean | None
    efficiency_job: Mean | None
    #: Relative to one process without a launcher; None without such a run.
    efficiency_alone: Mean | None
    #: Relative to the smallest size, always known with several sizes.
    relative: Mean
    #: Fractions that add up to 1 − efficiency, by name of the ledger's entries.
    lost: Mapping[str, Mean] | None


def points_of(runs: Sequence[Pace], unit: Unit) -> list[Point]:
    """Group runs by their number of ranks, ascending; all of them have the unit."""
    by_size: dict[int, list[Pace]] = defaultdict(list)
    for run in runs:
        by_size[run.size].append(run)
    return [_point(size, by_size[size], unit) for size in sorted(by_size)]


def _point(size: int, runs: Sequence[Pace], unit: Unit) -> Point:
    from_steps = all(run.from_steps for run in runs)
    step_ms = _over_all([run.step_ms for run in runs])
    work = 1.0
    if unit == "samples" or unit in PARTS_OF_SAMPLES:
        work = float(np.mean([run.work_of_step(unit) or 1.0 for run in runs]))
    unit_ms = _over_all([run.unit_ms(unit) for run in runs])
    if from_steps and unit != "epochs" and step_ms is not None:
        # Means of steps come first, because the lost parts then add up exactly.
        unit_ms = step_ms.scaled(1 / work)
        parts = _over_all([run.parts_per_step.get(unit) for run in runs])
        if parts is not None:
            # Batches vary, so that their parts have an error of their own.
            unit_ms = step_ms.over(parts)
    assert unit_ms is not None
    entries = {name: _over_all([run.analysis.entry_ms(name) for run in runs]) for name in ENTRIES}
    known: dict[str, Mean] = {name: mean for name, mean in entries.items() if mean is not None}
    return Point(
        ranks=size,
        runs=tuple(run.analysis for run in runs),
        work=work,
        from_steps=from_steps,
        step_ms=step_ms,
        entries_ms=known if "imbalance" in known else {},
        unit_ms=unit_ms,
        unit_epochs_ms=_over_all([run.epochs_ms(unit) for run in runs]),
        unit_job_ms=_over_all([run.job_unit_ms(unit) for run in runs]),
    )


def _over_all(means: Sequence[Mean | None]) -> Mean | None:
    """Return the mean over runs; None if a run does not have it."""
    known = [mean for mean in means if mean is not None]
    return mean_over(known) if len(known) == len(means) else None


def _rate(amount: float, ms: Mean) -> Mean:
    """Convert an amount per milliseconds to a rate per second."""
    value = amount / ms.value * 1e3
    if ms.ci95 is None or ms.ci95[0] <= 0:
        return Mean(value, None)
    low, high = ms.ci95
    return Mean(value, (amount / high * 1e3, amount / low * 1e3))


def _ratio_of_rounded(numerator: Mean, denominator: Mean) -> Mean:
    """Return the ratio of two rounded means, with the worst case of both as interval."""
    value = numerator.value / denominator.value
    if numerator.ci95 is None or denominator.ci95 is None or denominator.ci95[0] <= 0:
        return Mean(value, None)
    return Mean(
        value, (numerator.ci95[0] / denominator.ci95[1], numerator.ci95[1] / denominator.ci95[0])
    )


def compare_sizes(point: Point, single: Point | None, alone: Point | None, first: Point) -> Scaled:
    """Compare a point with one rank, the program without a launcher, and the smallest size."""
    return Scaled(
        point,
        None if single is None else _efficiency(point, single),
        None if single is None else _efficiency_job(point, single),
        None if alone is None else _efficiency(point, alone),
        _efficiency(point, first),
        None if single is None else _lost(point, single),
    )


def _efficiency(point: Point, base: Point) -> Mean:
    """Return the throughput per rank relative to the base's."""
    if point is base:
        return Mean(1.0, (1.0, 1.0))
    if point.from_steps and base.from_steps:
        return base.unit_ms.over(point.unit_ms)
    # Epochs include validation, so they are compared with epochs if both runs have them.
    if point.unit_epochs_ms is None or base.unit_epochs_ms is None:
        return _ratio_of_rounded(base.unit_ms, point.unit_ms)
    return _ratio_of_rounded(base.unit_epochs_ms, point.unit_epochs_ms)


def _efficiency_job(point: Point, base: Point) -> Mean | None:
    if point is base:
        return Mean(1.0, (1.0, 1.0))
    if point.unit_job_ms is None or base.unit_job_ms is None:
        return None
    if point.from_steps and base.from_steps:
        return base.unit_job_ms.over(point.unit_job_ms)
    return _ratio_of_rounded(base.unit_job_ms, point.unit_job_ms)


def _lost(point: Point, single: Point) -> dict[str, Mean] | None:
    if point.step_ms is None or not point.entries_ms or not single.entries_ms:
        return None
    if point is single:
        return {name: Mean(0.0, (0.0, 0.0)) for name in ENTRIES}
    # Scale the single rank's entries to the samples of a rank here.
    share = 1 / point.step_ms.value
    work = point.work / single.work
    return {
        name: point.entries_ms[name].minus(single.entries_ms[name].scaled(work)).scaled(share)
        for name in ENTRIES
    }
