"""Compare autotune logs and Timelines with the job's own steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays.pivot import of_generation
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.lists import counted
from stallscope.parsers.formats.autotune import AutotuneLog, Sample

from ..gains.baseline import match_baseline
from ..gains.what_if import Advice
from ..network.tensors import Tensors
from ..result import Analysis
from ..setup import Setup

_ON = "HOROVOD_AUTOTUNE"
# Switches without effect on one host; those of allreduce also need accelerators.
_BETWEEN_HOSTS = ("hierarchical_allgather",)
_BETWEEN_ACCELERATORS = ("hierarchical_allreduce", "torus_allreduce")
# Horovod's constants: samples of a score, and the defaults.
_SAMPLES = 5
_STEPS_PER_SAMPLE, _WARM_UPS = 10, 3

# With a cache, few tensors would be negotiated in full after this many negotiations of each.
_FEWEST_ROUNDS = 5
_MOSTLY = 0.5
# Smaller reductions cost mainly latency.
_SMALL_BYTES = 1e5
_DEFAULT_CAPACITY = 1024


@dataclass(frozen=True)
class AutotuneFile:
    """A log of the autotuner, by its name."""

    name: str
    log: AutotuneLog


@dataclass(frozen=True)
class TimelineFile:
    """An analysed Timeline, by its name."""

    name: str
    tensors: Tensors


@dataclass(frozen=True)
class UntunedRun:
    """A run of the same job without the autotuner."""

    analysis: Analysis
    step_ms: Mean
    #: The time per step that the final setting saves, milliseconds.
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None


@dataclass(frozen=True)
class Tuned:
    """The result of an autotune log, compared with the job's steps."""

    name: str
    log: AutotuneLog
    #: The setting to pin; None before anything was scored.
    setting: Sample | None
    #: Switches of the setting without effect on this job's hosts and devices.
    idle: tuple[str, ...]
    #: The difference between scores of the same setting, as a share of the higher one; None if none was
    #: tried twice.
    noise: float | None
    #: Settings whose score is within that noise of the best, including the best.
    alike: int
    #: The run that wrote the log; None if it was not given.
    run: Analysis | None
    tried: tuple[Tried, ...]
    settled_ms: Mean | None
    compared: tuple[UntunedRun, ...]
    #: Why the gain per step is unknown; empty if it is known.
    insufficient: str

    @property
    def verdict(self) -> str:
        """``fix``, ``leave`` (steps without it are no slower), ``tuning`` or ``insufficient_data``."""
        if self.setting is None:
            return "insufficient_data"
        if self.log.settled is None:
            return "tuning"
        if self.insufficient:
            return "insufficient_data"
        least = [run.saved_ms.ci95[0] for run in self.compared if run.saved_ms.ci95 is not None]
        return "fix" if min(least) > 0 else "leave"


@dataclass(frozen=True)
class Tuning:
    """The results of all logs."""

    tuned: tuple[Tuned, ...]
    timelines: tuple[tuple[str, TimelineAdvice], ...]
    warnings: tuple[str, ...]


def tune(
    autotunes: Sequence[AutotuneFile],
    timelines: Sequence[TimelineFile],
    analyses: Sequence[Analysis],
) -> Tuning:
    """Recommend settings to pin.

    Args:
        autotunes: logs of autotuners.
        timelines: analysed Timelines.
        analyses: runs; those that wrote the logs, and others of the same job without the autotuner.
    """
    torn = [autotune for autotune in autotunes if autotune.log.torn]
    return Tuning(
        tuple(_tuned(autotune, analyses, alone=len(autotunes) == 1) for autotune in autotunes),
        tuple((timeline.name, advise_on_timeline(timeline.tensors)) for timeline in timelines),
        tuple(
            f"{autotune.name}: {counted(autotune.log.torn, 'line')} could not be read"
            for autotune in torn
        ),
    )


def _tuned(file: AutotuneFile, analyses: Sequence[Analysis], alone: bool) -> Tuned:
    log = file.log
    run = _writer(file.name, analyses, alone)
    setup = None if run is None else Setup.of(run.run)
    noise = _noise(log.samples)
    tried = tuple(
        Tried(number, sample, 0, None) for number, sample in enumerate(log.samples, start=1)
    )
    settled = None
    if run is not None and setup is not None and not log.torn:
        tried, settled = steps_of(log, TuningRounds.of(setup.settings), run)
    compared = () if run is None or settled is None else _compared(run, settled, analyses)
    return Tuned(
        name=file.name,
        log=log,
        setting=log.best,
        idle=() if setup is None else _idle(setup),
        noise=noise,
        alike=_alike(log, noise),
        run=run,
        tried=tried,
        settled_ms=settled,
        compared=compared,
        insufficient=_why_not(log, run, settled, compared),
    )


def _writer(name: str, analyses: Sequence[Analysis], alone: bool) -> Analysis | None:
    """Find the run whose autotuner wrote the file: by the file's name, or the only candidate."""
    setups = [(analysis, Setup.of(analysis.run)) for analysis in analyses]
    tuning = [(analysis, setup) for analysis, setup in setups if setup.is_on(_ON)]
    named = [
        analysis
        for analysis, setup in tuning
        if PurePath(str(setup.settings.get("HOROVOD_AUTOTUNE_LOG", ""))).name == PurePath(name).name
    ]
    in_its_folder = [
        analysis for analysis in named if PurePath(analysis.run.source) == PurePath(name).parent
    ]
    for choice in (in_its_folder, named, [analysis for analysis, _ in tuning] if alone else []):
        if len(choice) == 1:
            return choice[0]
    return None


def _noise(samples: Sequence[Sample]) -> float | None:
    """Return the largest difference between scores of one setting, as a share of the higher one."""
    scores: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for sample in samples:
        scores[_plain(sample)].append(sample.score)
    differences = [
        1 - min(values) / max(values)
        for values in scores.values()
        if len(values) > 1 and max(values) > 0
    ]
    return max(differences, default=None)


def _alike(log: AutotuneLog, noise: float | None) -> int:
    if log.best is None:
        return 0
    least = log.best.score * (1 - (noise or 0.0))
    return len(
        {_plain(sample) for sample in log.samples if sample.score >= least} | {_plain(log.best)}
    )


def _plain(sample: Sample) -> tuple[object, ...]:
    """Return a setting without its score, rounded: the tuner may repeat 10 ms as 9.99993 ms."""
    numbers = (f"{sample.cycle_time_ms:.2g}", f"{sample.fusion_mib:.2g}")
    return (tuple(sorted(sample.switches.items())), *numbers)


def _idle(setup: Setup) -> tuple[str, ...]:
    if len(setup.hosts) == 1:
        return (*_BETWEEN_ACCELERATORS, *_BETWEEN_HOSTS)
    return _BETWEEN_ACCELERATORS if setup.gpu is False else ()


def _compared(run: Analysis, settled: Mean, analyses: Sequence[Analysis]) -> tuple[UntunedRun, ...]:
    """Find the runs of the same job without the autotuner."""
    runs = []
    for analysis in analyses:
        if (
            analysis is run
            or analysis.steady is None
            or analysis.run.synthetic != run.run.synthetic
        ):
            continue
        if Setup.of(analysis.run).is_on(_ON) or match_baseline(run.run, analysis.run).differs:
            continue
        untuned = mean_with_interval(analysis.steady.total).scaled(1e-6)
        runs.append(_untuned_run(analysis, untuned, untuned.minus(settled)))
    return tuple(runs)


def _untuned_run(run: Analysis, step_ms: Mean, saved_ms: Mean) -> UntunedRun:
    """Return the run with the speed-up of the final setting over it."""

    def speedup(saved: float) -> float:
        return step_ms.value / (step_ms.value - saved)

    ends = saved_ms.ci95
    # An interval that reaches the whole step has no end as a speed-up.
    bounded = ends is not None and ends[1] < step_ms.value
    ci95 = (speedup(ends[0]), speedup(ends[1])) if ends is not None and bounded else None
    return UntunedRun(run, step_ms, saved_ms, speedup(saved_ms.value), ci95)


def _why_not(
    log: AutotuneLog,
    run: Analysis | None,
    settled: Mean | None,
    compared: Sequence[UntunedRun],
) -> str:
    if log.best is None:
        return "nothing was scored yet: the first score comes after about two hundred steps"
    if log.settled is None:
        return "it was still trying settings when its log ended"
    if run is None:
        return (
            "the step log of the run that wrote it is missing: record one, and name its folder, too"
        )
    if log.torn:
        return "lines of the log are torn, so its steps cannot be counted"
    if run.steady is None:
        return "the run's steps have no stages on every rank, or there are none"
    if settled is None:
        return "the run ended before a step that certainly ran with the final setting"
    if settled.ci95 is None:
        return "too few independent steps ran with the final setting; train a few hundred more"
    if not compared:
        return (
            "there is no run of the same job without the autotuner to compare with, and the tuner "
            "itself never tries Horovod's own settings"
        )
    if all(untuned.saved_ms.ci95 is None for untuned in compared):
        return "the runs without the autotuner have too few steps"
    return ""


# -- Find the steps that ran with each setting of Horovod's autotuner -----------------------------
#
# The log has no times, but the tuner counts: it scores a setting after the gradients of 5 ×
# HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE steps were reduced, and discards the first
# HOROVOD_AUTOTUNE_WARMUP_SAMPLES rounds. Its counters restart in the middle of a step, so a round
# is T or T + 1 steps: after n rounds the setting has changed between step T·n and step (T + 1)·n +
# n − 1. Steps in that range may have either setting, and are left out.


@dataclass(frozen=True)
class Tried:
    """A setting that was tried, and the steps that certainly ran with it."""

    #: Its line in the log, from 1.
    number: int
    sample: Sample
    steps: int
    #: Milliseconds per step; None without steps.
    step_ms: Mean | None


@dataclass(frozen=True)
class TuningRounds:
    """The length of the tuner's rounds, in steps."""

    #: Steps of a round; a round may have one more.
    steps: int
    warm_ups: int

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> TuningRounds:
        per_sample = _whole(settings.get("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE"), _STEPS_PER_SAMPLE)
        warm_ups = _whole(settings.get("HOROVOD_AUTOTUNE_WARMUP_SAMPLES"), _WARM_UPS)
        return cls(_SAMPLES * max(1, per_sample), warm_ups)

    def surely(self, number: int) -> tuple[int, int]:
        """Return the steps that certainly ran with the setting of this line, which counts from 1."""
        before = self.warm_ups + number - 1
        return (self.steps + 1) * before, self.steps * (before + 1)

    def settled_from(self, lines: int) -> int:
        """Return the first step at which all of these lines had certainly been tried."""
        return (self.steps + 1) * (self.warm_ups + lines)


def steps_of(
    log: AutotuneLog, rounds: TuningRounds, analysis: Analysis
) -> tuple[tuple[Tried, ...], Mean | None]:
    """Return every line of the log with its steps, and milliseconds per step with the final setting.

    The analysis is that of the run that wrote the log. The second result is None without such steps.
    """
    number, total = _steady(analysis)
    tried = []
    for line, sample in enumerate(log.samples, start=1):
        begin, end = rounds.surely(line)
        step_times = total[(number >= begin) & (number < end)]
        tried.append(Tried(line, sample, len(step_times), _mean(step_times)))
    if log.settled is None:
        return tuple(tried), None
    return tuple(tried), _mean(total[number >= rounds.settled_from(len(log.samples))])


def _steady(analysis: Analysis) -> tuple[Ints, Ints]:
    """Return the steady steps, counted from the first of the last generation, and their times."""
    ledger = analysis.steady
    if ledger is None:
        none = np.zeros(0, np.int64)
        return none, none
    steps = analysis.run.steps
    last = of_generation(steps, pc.max(steps["generation"]).as_py())
    return ledger.steps - pc.min(last["step"]).as_py(), ledger.total


def _mean(total: Ints) -> Mean | None:
    return mean_with_interval(total).scaled(1e-6) if len(total) else None


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if isinstance(text, str) and text.strip().isdigit() else otherwise


# -- Derive Horovod settings from a Timeline ------------------------------------------------------


@dataclass(frozen=True)
class TimelineAdvice:
    """Figures of a Timeline, and recommendations; None if it does not show them."""

    #: Allreduces, where fused tensors count once, and the mean number of tensors in each.
    reductions: int
    tensors_each: float | None
    #: The number of steps; None if unknown, with the reason.
    steps: int | None
    no_steps: str
    #: The share of reductions below 100 kB, among those with known bytes.
    small_share: float | None
    #: Milliseconds per cycle; None if cycles were not marked.
    cycle_ms: float | None
    #: The share of negotiations that rank 0 handled in full, without the cache.
    in_full: float | None
    #: Milliseconds per step in which any gradient is negotiated, waits for data, is copied, and is
    #: transferred: medians over steps. None without steps or allreduces.
    negotiation_ms: float | None
    wait_ms: float | None
    copy_ms: float | None
    transfer_ms: float | None
    #: Why it does not show late ranks, and how to record them; empty if it shows them.
    cannot_name: str
    advice: tuple[Advice, ...]


def advise_on_timeline(tensors: Tensors) -> TimelineAdvice:
    """Evaluate fusion, cycles and the response cache of a Timeline."""
    steps = len(tensors.steps) or None
    fused = tensors.fusion.tensors
    sizes = tensors.fusion.bytes[tensors.fusion.bytes > 0]
    in_full = tensors.ticked / tensors.negotiations if tensors.negotiations else None
    small = float(np.mean(sizes < _SMALL_BYTES)) if len(sizes) else None
    return TimelineAdvice(
        reductions=len(fused),
        tensors_each=float(fused.mean()) if len(fused) else None,
        steps=steps,
        no_steps=tensors.no_steps,
        small_share=small,
        cycle_ms=None if tensors.cycles is None else tensors.cycles.median_ms,
        in_full=in_full,
        negotiation_ms=_median(tensors, tensors.steps.negotiation_ms),
        wait_ms=_median(tensors, tensors.steps.wait_ms),
        copy_ms=_median(tensors, tensors.steps.copy_ms),
        transfer_ms=_median(tensors, tensors.steps.transfer_ms),
        cannot_name=tensors.cannot_name,
        advice=tuple(_advice(tensors, steps, small)),
    )


def _median(tensors: Tensors, values: Floats) -> float | None:
    # Steps without allreduces have no such times.
    return float(np.median(values)) if len(values) and len(tensors.fusion.tensors) else None


def _advice(tensors: Tensors, steps: int | None, small: float | None) -> Iterator[Advice]:
    if steps is None or steps < _FEWEST_ROUNDS:
        return
    names, negotiations = len(tensors.tensors), tensors.negotiations
    reductions = len(tensors.fusion.tensors)
    in_full = tensors.ticked >= _MOSTLY * negotiations
    if in_full and negotiations < _FEWEST_ROUNDS * names:
        yield Advice(
            "Name the tensors that are reduced",
            "hvd.allreduce(gradient, name='layer1')",
            detail=f": most of their {names:,} names occur once, so the response cache cannot answer "
            "them",
        )
    elif in_full:
        yield Advice(
            f"Let Horovod cache its {counted(names, 'tensor')}",
            f"HOROVOD_CACHE_CAPACITY={max(_DEFAULT_CAPACITY, 1 << (2 * names - 1).bit_length())}",
            detail=f": {tensors.ticked:,} of {negotiations:,} negotiations went through rank 0 in full",
            unless="Not if it was off for this Timeline only, to see which rank was late.",
        )
    if small is not None and small >= _MOSTLY and reductions >= 2 * steps:
        yield Advice(
            "Let the autotuner look for a longer cycle",
            "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv",
            detail=f": {reductions / steps:.1f} reductions in every step, {small:.0%} of them below 100 "
            "kB, each with its own latency",
            unless="Not if backward hides them: the step logs show what is exposed.",
        )
