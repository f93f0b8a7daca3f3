"""A job on one number of ranks, and against one rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..later import scipy_stats
from ..result import ENTRIES, Analysis
from ..stats import Mean

#: From so many runs of one size on, their spread says how sure its mean is.
FEWEST_REPEATS = 2


@dataclass(frozen=True)
class Point:
    """A job on one number of ranks: all its runs of that size."""

    ranks: int
    runs: tuple[Analysis, ...]
    #: Samples that one rank works through in a step; 1 where nobody knows, and all rates are of steps.
    work: float
    #: Milliseconds, over the runs: of several the interval is that of their mean from run to run, of a
    #: single one that of its steps.
    step_ms: Mean
    #: By name of the ledger's entries; empty where stages were not measured.
    entries_ms: Mapping[str, Mean]
    #: Milliseconds of the whole job, start-up included, per step.
    job_step_ms: Mean

    @cached_property
    def rate(self) -> Mean:
        """Samples per second of all ranks together, in steady steps."""
        return _rate(self.ranks * self.work, self.step_ms)

    @cached_property
    def job_rate(self) -> Mean:
        """Samples per second over the whole job, start-up included."""
        return _rate(self.ranks * self.work, self.job_step_ms)


@dataclass(frozen=True)
class Scaled:
    """A point held against one rank; None where there is no run on one rank."""

    point: Point
    efficiency: Mean | None
    efficiency_job: Mean | None
    #: Against the program on one process that no launcher started; None without such a run.
    efficiency_alone: Mean | None
    #: Against the smallest size there is: with several sizes always known.
    relative: Mean
    #: Fractions that add up to 1 − efficiency, by name of the ledger's entries.
    lost: Mapping[str, Mean] | None


def work_of(analysis: Analysis) -> float:
    """Samples per rank and step; 0 where they are not known."""
    if analysis.samples_per_second is None or analysis.step is None:
        return 0.0
    return analysis.samples_per_second * analysis.step.mean / 1e3 / analysis.run.size


def points_of(runs: Sequence[Analysis], counted: bool) -> list[Point]:
    """Runs by their number of ranks, ascending; ``counted`` says whether samples are known."""
    by_size: dict[int, list[Analysis]] = defaultdict(list)
    for run in runs:
        by_size[run.run.size].append(run)
    return [_point(size, by_size[size], counted) for size in sorted(by_size)]


def _point(size: int, runs: Sequence[Analysis], counted: bool) -> Point:
    steps = [Mean(run.step.mean, run.step.ci95) for run in runs if run.step is not None]
    measured = all(run.entries for run in runs)
    entries = {
        name: _across([_entry(run, name) for run in runs]) for name in (ENTRIES if measured else ())
    }
    job = [Mean(run.job.total * 1e3 / max(run.steps, 1), None) for run in runs]
    work = float(np.mean([work_of(run) for run in runs])) if counted else 1.0
    return Point(size, tuple(runs), work, _across(steps), entries, _across(job))


def _entry(analysis: Analysis, name: str) -> Mean:
    entry = analysis.entry(name)
    assert entry is not None
    return Mean(entry.ms, entry.ci95_ms)


def _across(means: Sequence[Mean]) -> Mean:
    """The mean over runs; from two of them on, its interval is what runs differ by."""
    if len(means) < FEWEST_REPEATS:
        return means[0]
    values = np.array([mean.value for mean in means])
    half = scipy_stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    centre = float(values.mean())
    return Mean(centre, (centre - float(half), centre + float(half)))


def _rate(amount: float, ms: Mean) -> Mean:
    """So much in so many milliseconds, per second."""
    value = amount / ms.value * 1e3
    if ms.ci95 is None:
        return Mean(value, None)
    low, high = ms.ci95
    return Mean(value, (amount / high * 1e3, amount / low * 1e3 if low > 0 else float("inf")))


def _ratio(one: Mean, other: Mean) -> Mean:
    """The ratio of two independent means: their relative uncertainties add up as squares."""
    value = one.value / other.value
    if one.ci95 is None or other.ci95 is None:
        return Mean(value, None)
    ends = (one.ci95, one.value), (other.ci95, other.value)
    relative = [(ci95[1] - ci95[0]) / 2 / mean for ci95, mean in ends]
    half = abs(value) * float(np.hypot(relative[0], relative[1]))
    return Mean(value, (value - half, value + half))


def held_against(point: Point, single: Point | None, alone: Point | None, first: Point) -> Scaled:
    """A point against one rank, the program by itself, and the smallest size."""
    return Scaled(
        point,
        None if single is None else _efficiency(point, single, "step_ms"),
        None if single is None else _efficiency(point, single, "job_step_ms"),
        None if alone is None else _efficiency(point, alone, "step_ms"),
        _efficiency(point, first, "step_ms"),
        None if single is None else _lost(point, single),
    )


def _efficiency(point: Point, base: Point, time: str) -> Mean:
    """Throughput per rank against the base's."""
    if point is base:
        return Mean(1.0, (1.0, 1.0))
    return _ratio(getattr(base, time), getattr(point, time)).scaled(point.work / base.work)


def _lost(point: Point, single: Point) -> dict[str, Mean] | None:
    if not point.entries_ms or not single.entries_ms:
        return None
    if point is single:
        return {name: Mean(0.0, (0.0, 0.0)) for name in ENTRIES}
    # As many samples as a rank has here.
    share = 1 / point.step_ms.value
    work = point.work / single.work
    return {
        name: point.entries_ms[name].minus(single.entries_ms[name].scaled(work)).scaled(share)
        for name in ENTRIES
    }
