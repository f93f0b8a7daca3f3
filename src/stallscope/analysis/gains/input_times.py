"""Compare three rates of one rank: its loader run alone, training on synthetic data, and on real data.

If the loader run alone is slower than a rank needs, the loader itself is too slow. If it is fast enough
alone, it is slow only during training: both compete for CPU cores, disk or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.arrays.stats import Mean
from stallscope.run import InputStage, LoaderTrial, MeasuredInput, Run

from .what_if import WhatIf

# Steps up to this many times as long as without waiting count as not waiting.
_KEEPS_UP = 1.03


@dataclass(frozen=True)
class InputRates:
    """Samples per second of one rank; None if unknown."""

    #: The last measurement of each rank that measured its loader, by rank.
    ranks: tuple[MeasuredInput, ...]
    #: The measurement of the slowest loader, for which all other ranks wait.
    slowest: MeasuredInput
    #: The rate of the slowest rank's loader, run alone.
    alone: Mean | None
    #: The rates of training on synthetic data and in this run.
    synthetic: float | None
    real: float | None
    #: The rate of training if input cost nothing.
    needed: float | None
    #: Whether the loader alone reaches the needed rate; None if its interval contains that rate.
    enough: bool | None
    #: The smallest setting of the slowest loader that keeps up with the needed rate; None if none was
    #: tried, or none keeps up for certain.
    proposed: LoaderTrial | None
    #: Whether all ranks measured at the same time, so that their loaders shared cores, disk and memory.
    at_once: bool

    @property
    def longest(self) -> InputStage | None:
        """Return the longest stage of the slowest rank's loader."""
        return max(self.slowest.stages, key=lambda stage: stage.ms, default=None)


def input_rates(
    run: Run,
    samples_per_second: float | None,
    synthetic: float | None,
    gains: Sequence[WhatIf],
) -> InputRates | None:
    """Compute the rates of a run; None if no loader was measured for long enough.

    Args:
        run: the run.
        samples_per_second: the rate of all ranks together.
        synthetic: the same rate of a baseline on as many ranks; None without one.
        gains: the gains of fixes of this run; without a baseline the gain of input gives the needed
            rate.
    """
    last = {
        measurement.rank: measurement
        for measurement in sorted(run.input_times, key=lambda measurement: measurement.began)
        if measurement.ms
    }
    if not last:
        return None
    ranks = tuple(last[rank] for rank in sorted(last))
    slowest = max(ranks, key=lambda measurement: measurement.ms or 0.0)
    real, base = (
        None if rate is None else rate / run.size for rate in (samples_per_second, synthetic)
    )
    alone, needed = loader_rate(slowest), base
    faster = next((gain.speedup for gain in gains if gain.fix == "input"), None)
    if needed is None and real is not None and faster is not None:
        needed = real * faster
    together = max(measurement.began for measurement in ranks) < min(
        measurement.ended for measurement in ranks
    )
    at_once = len(ranks) == run.size and together
    enough, proposed = _enough(alone, needed), _proposed(slowest, needed)
    return InputRates(ranks, slowest, alone, base, real, needed, enough, proposed, at_once)


def loader_rate(measured: MeasuredInput) -> Mean | None:
    """Return the samples per second of a loader run alone; None if the batch size is unknown."""
    if not measured.ms or not measured.samples_per_batch:
        return None
    samples = measured.samples_per_batch * 1e3
    ci95 = measured.ci95_ms
    if ci95 is None or ci95[0] <= 0:
        return Mean(samples / measured.ms, None)
    return Mean(samples / measured.ms, (samples / ci95[1], samples / ci95[0]))


def _enough(alone: Mean | None, needed: float | None) -> bool | None:
    if alone is None or alone.ci95 is None or needed is None:
        return None
    if alone.ci95[0] <= needed <= alone.ci95[1]:
        return None
    return alone.value > needed


def _proposed(measured: MeasuredInput, needed: float | None) -> LoaderTrial | None:
    """Return the smallest setting that keeps up with the needed rate, samples per second.

    Its interval lies above that rate, and its queue bridges batches that take long.
    """
    if needed is None or not measured.samples_per_batch:
        return None
    most_ms = measured.samples_per_batch / needed * 1e3
    fast = [
        trial
        for trial in measured.trials
        if trial.ci95_ms is not None and trial.ci95_ms[1] <= most_ms
    ]
    fast = [trial for trial in fast if step_with(trial, most_ms) <= _KEEPS_UP * most_ms]
    return min(fast, key=lambda trial: (trial.workers, trial.prefetch), default=None)


def step_with(trial: LoaderTrial, step_ms: float) -> float:
    """Return how long a step takes if batches come as in a trial, milliseconds.

    In the trial each batch was taken as soon as it was ready. In training the workers continue during a
    step, until they have prefetched as many batches as they may. So a slow batch delays the step only if
    no other one is ready.

    Args:
        trial: the setting; without times of its batches, steps do not wait.
        step_ms: a step without waiting for input.
    """
    capacity, count = trial.workers * trial.prefetch, len(trial.batches_ms)
    ready, taken = 0.0, [0.0]
    # The first time fills the queue.
    for at, ms in enumerate(2 * trial.batches_ms):
        # A worker starts a batch when the batch that makes room for it is taken.
        ready = max(ready, taken[max(at + 1 - capacity, 0)]) + ms
        taken.append(max(taken[-1] + step_ms, ready))
    return (taken[-1] - taken[count]) / count if count else step_ms
