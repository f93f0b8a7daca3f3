"""Compare autotune logs and Timelines with the job's own steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.lists import counted
from stallscope.parsers.formats.autotune import AutotuneLog, Sample

from ..gains.baseline import match_baseline
from ..network.tensors import Tensors
from ..result import Analysis
from ..settings.setup import Setup
from .during import Tried, TuningRounds, steps_of
from .timelines import TimelineAdvice, advise_on_timeline

_ON = "HOROVOD_AUTOTUNE"
# Switches without effect on one host; those of allreduce also need accelerators.
_BETWEEN_HOSTS = ("hierarchical_allgather",)
_BETWEEN_ACCELERATORS = ("hierarchical_allreduce", "torus_allreduce")


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
