"""Compare a run with its baselines: the same job on synthetic data, on as many ranks and on one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.lists import as_text
from stallscope.formatting.numbers import amount
from stallscope.run import InputStage, LoaderTrial, MeasuredInput, Run, newest_first
from stallscope.words import CAUSES, STAGES

from ..ledger.ledger import Ledger
from .what_if import WhatIf

#: Facts that must be the same for a valid comparison; other facts may differ.
COMPARED = (
    "model",
    "parameters",
    "batch_size",
    "optimizer",
    "backward_passes_per_step",
    "steps_per_execution",
    "framework",
    "versions",
    "threads",
)
# Facts of the machine that must not differ if both runs recorded them.
_MACHINE = ("devices", "cpu_count", "cpus_allowed")
# Baselines that are slower by up to this fraction of the run's step are as fast: runs differ by chance.
_AS_FAST = 0.05

# Steps up to this many times as long as without waiting count as not waiting.
_KEEPS_UP = 1.03


@dataclass(frozen=True)
class Decomposition:
    """Differences in step time between one rank, N ranks on synthetic data, and N ranks on real data.

    Milliseconds per step, each with its interval. By cause, real − synthetic is exactly the sum of four
    differences: input stall, compute, other and allreduce. Synthetic − single is the cost of scale.
    """

    #: Real − synthetic.
    loss: Mean
    input_stall: Mean
    compute: Mean
    other: Mean
    allreduce: Mean
    #: Imbalance and exposed allreduce of the synthetic run.
    communication: Mean
    #: Synthetic on N ranks − synthetic on one; None without a run on one rank.
    scale: Mean | None


@dataclass(frozen=True)
class BaselineMatch:
    """The facts that are the same in a run and its baseline, and what makes them incomparable."""

    same: tuple[str, ...]
    #: Facts that differ, with both values.
    differs: tuple[str, ...]
    #: What takes longer in the baseline than in the run, ``step`` or a stage, with both times.
    slower: str | None = None
    #: The baseline's own fault in a sentence, if it has one.
    faulty: str | None = None
    #: Whether the baseline is the run itself, or a copy: all steps take the same time.
    itself: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return why the baseline predicts nothing about the run; empty if it does."""
        reasons = list(self.differs)
        if self.itself:
            reasons.append("it is this run itself")
        if self.slower is not None:
            reasons.append(self.slower)
        if self.faulty is not None:
            reasons.append(f"its own fault: {self.faulty}")
        return tuple(reasons)


def match_baseline(run: Run, baseline: Run) -> BaselineMatch:
    """Compare the facts of a run and its baseline; those that differ are given with both values."""
    hosts = ("hosts", len(run.hosts), len(baseline.hosts))
    facts = [("ranks", run.size, baseline.size), hosts, *_facts(run, baseline)]
    machine = [(name, run.fact(name), baseline.fact(name)) for name in _MACHINE]
    facts += [
        (name, in_run, in_baseline)
        for name, in_run, in_baseline in machine
        if None not in (in_run, in_baseline)
    ]
    return _match(facts)


def match_with_steps(
    run: Run,
    ledger: Ledger | None,
    baseline: Run,
    its_ledger: Ledger | None,
    its_fault: str | None,
    shared_cores: bool = False,
) -> BaselineMatch:
    """Compare a run with its baseline: what the baseline is decides what it may predict.

    A baseline with a fault of its own hides the run's fault. A baseline shows the least that a job
    needs, so one that is certainly slower, as a whole or in a stage, has a fault of all ranks or ran on
    slower machines.

    Args:
        run: the run.
        ledger: its steady steps; None without any.
        baseline: the baseline.
        its_ledger: its steady steps, likewise.
        its_fault: the baseline's own fault in a sentence; None without one.
        shared_cores: whether the run's ranks share CPU cores: then compute is faster while others wait.
    """
    match = match_baseline(run, baseline)
    if ledger is None or its_ledger is None:
        return match
    if np.array_equal(ledger.total, its_ledger.total):
        return replace(match, itself=True)
    match = replace(match, faulty=its_fault)
    # Real data may need more than synthetic data.
    if match.differs or (run.synthetic and not baseline.synthetic):
        return match
    stages = [stage for stage in STAGES if not (shared_cores and stage == "compute")]
    return replace(match, slower=_slower(ledger, its_ledger, stages))


def _slower(ledger: Ledger, baseline: Ledger, stages: Sequence[str]) -> str | None:
    """Describe the step or the first of these stages that certainly takes longer in a baseline."""
    step = _step(ledger)
    compared = [("step", step, _step(baseline))]
    compared += [(stage, ledger.mean_ms(stage), baseline.mean_ms(stage)) for stage in stages]
    for name, in_run, in_baseline in compared:
        longer = in_baseline.minus(in_run).ci95
        if longer is not None and longer[0] > _AS_FAST * step.value:
            times = [amount(mean.value, "ms", mean.ci95) for mean in (in_run, in_baseline)]
            return f"{name}: {times[0]} here, {times[1]} in the baseline"
    return None


def baseline_warnings(
    baseline: Run | None, match: BaselineMatch | None, single: BaselineMatch | None
) -> Iterator[str]:
    """Warn about baselines that predict nothing, or too little.

    Args:
        baseline: the baseline; None without one.
        match: how it compares with the run.
        single: how the run on one rank does; None without one.
    """
    if match is not None and match.differs:
        yield f"the baseline is another kind of run: {'; '.join(match.differs)}"
    if match is not None and match.itself:
        yield "the baseline is this run itself, so it predicts nothing; name another run"
    if match is not None and match.faulty is not None:
        yield (
            f"the baseline has a fault of its own: {match.faulty} Gains are predicted without it; "
            "mend it, and record the baseline again"
        )
    if match is not None and match.slower is not None:
        yield (
            f"the baseline is slower than this run ({match.slower}), so gains are predicted without it; "
            "record it again on synthetic data, where this run ran"
        )
    unfit = match is not None and (match.itself or match.faulty is not None)
    if baseline is not None and not baseline.synthetic and not unfit:
        yield (
            "the baseline ran on real data: the differences show what changed between two runs, not "
            "what real data costs; a baseline is recorded with synthetic=True"
        )
    if single is not None and single.differs:
        yield f"the run on one rank is another kind of run: {'; '.join(single.differs)}"


def match_single(run: Run, single: Run) -> BaselineMatch:
    """Compare the facts of a run and a run on one rank, except the numbers of ranks and hosts."""
    return _match(_facts(run, single))


def find_baseline(run: Run, candidates: Iterable[Run]) -> Run | None:
    """Find the newest synthetic run of the same job; None if there is none."""
    synthetic = (
        candidate
        for candidate in newest_first(candidates)
        if candidate.synthetic and not run.synthetic
    )
    return next(
        (candidate for candidate in synthetic if not match_baseline(run, candidate).differs), None
    )


def find_single(run: Run, candidates: Iterable[Run]) -> Run | None:
    """Find the newest synthetic run of the same job on one rank; None if there is none."""
    singles = (
        candidate
        for candidate in newest_first(candidates)
        if candidate.synthetic and run.size > candidate.size == 1
    )
    return next(
        (candidate for candidate in singles if not match_single(run, candidate).differs), None
    )


def split_baselines(run: Run, baselines: Sequence[Run]) -> tuple[Run | None, Run | None]:
    """Split the given baselines into the one on as many ranks and the one on a single rank."""
    single = next((baseline for baseline in baselines if baseline.size == 1 and run.size > 1), None)
    rest = [baseline for baseline in baselines if baseline is not single]
    return min(rest, key=lambda baseline: baseline.size != run.size, default=None), single


def decompose(real: Ledger, synthetic: Ledger, single: Ledger | None) -> Decomposition:
    """Decompose the differences in step time between the steady steps of three runs."""
    base = _step(synthetic)
    input_stall, compute, between_steps, allreduce = (
        real.mean_ms(name, by_cause=True).minus(synthetic.mean_ms(name, by_cause=True))
        for name in CAUSES
    )
    waiting = mean_with_interval(synthetic.imbalance + synthetic.allreduce).scaled(1e-6)
    scale = None if single is None else base.minus(_step(single))
    loss = _step(real).minus(base)
    return Decomposition(loss, input_stall, compute, between_steps, allreduce, waiting, scale)


def _step(ledger: Ledger) -> Mean:
    return mean_with_interval(ledger.total).scaled(1e-6)


def _facts(run: Run, baseline: Run) -> list[tuple[str, object, object]]:
    return [(name, run.fact(name), baseline.fact(name)) for name in COMPARED]


def _match(pairs: Sequence[tuple[str, object, object]]) -> BaselineMatch:
    same = tuple(
        name for name, in_run, in_baseline in pairs if in_run == in_baseline and in_run is not None
    )
    differs = tuple(
        f"{name}: {_fact(in_run)} here, {_fact(in_baseline)} in the baseline"
        for name, in_run, in_baseline in pairs
        if in_run != in_baseline
    )
    return BaselineMatch(same, differs)


def _fact(value: object) -> str:
    return as_text(value) or "not recorded"


# -- Compare three rates of one rank --------------------------------------------------------------
#
# Its loader run alone, training on synthetic data, and on real data.
#
# If the loader run alone is slower than a rank needs, the loader itself is too slow. If it is fast
# enough alone, it is slow only during training: both compete for CPU cores, disk or memory.


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
    faster = next((gain.speedup for gain in gains if gain.fix.kind == "input"), None)
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
