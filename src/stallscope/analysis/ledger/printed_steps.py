"""Analyse the step times of runs that only have lines about windows of steps.

A line is about one step, or about the steps since the line before: a window. Windows have no stages,
except for the wait for data if lines have it. Traces of other tools that show when batches arrived, but
no gradients, are series of single steps. So are recorded runs in which compute, waiting and allreduce
are one time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from stallscope.arrays.stats import (
    FEWEST_INDEPENDENT,
    Mean,
    mean_with_interval,
    usual_without,
)
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Run
from stallscope.words import ENTRIES, LedgerPart

from .by_generation import settling_length_within
from .change_points import (
    MOST,
    ChangePoint,
    Growth,
    Level,
    Split,
    growth_in,
    levels_after,
    splits_of,
)
from .ledger_figures import StepTime
from .slow_windows import FEWEST_CYCLES, SlowPeriod, SlowWindows, over_ranks, slow_windows
from .windows import (
    AROUND,
    Pauses,
    PrintedWindows,
    RankWindows,
    printed_windows,
    single_steps,
)

#: The precision of steps that another tool has recorded.
PRECISION = "single steps, to the microsecond"
# If windows are samples, the spread of this many parts of the run gives the precision of its mean.
_SAMPLED_PARTS = 40
# A slow first window is no warm-up if so many later ones take nearly as long.
_LONG, _RECURS, _NEARLY = 0.2, 3, 0.9
# Of fewer windows, first ones that are as fast as the others are no warm-up.
_FEWEST_STEADY = 3


@dataclass(frozen=True)
class RepeatedSteps:
    """Steps that a restarted job trained again."""

    steps: int
    restarts: int
    #: Their time with that of the restarts, by timestamps; without timestamps, at the mean step.
    seconds: float
    #: Whether timestamps tell it.
    with_restarts: bool


@dataclass(frozen=True)
class PrintedStages:
    """The mean stages of a step by printed timers."""

    #: Milliseconds of ``input``, ``compute``, ``allreduce`` and ``other``, as far as they have timers.
    ms: Mapping[LedgerPart, float]
    #: The rest of the mean step.
    rest_ms: float
    #: Whose timers they are: of ``the slowest rank``, of ``rank 0``, of ``the last rank``.
    by: str
    #: The number of tables or lines of timers.
    tables: int
    #: The timer of a rank's own work that differs most between ranks, with its shortest and longest
    #: mean, milliseconds; None if all ranks take as long, or are not known.
    spread: tuple[str, float, float] | None


@dataclass(frozen=True, eq=False)
class PrintedSteps:
    """The steps of a run according to printed lines."""

    #: The windows of each rank that printed lines, by rank.
    ranks: tuple[RankWindows, ...]
    #: How times were found: of each ``step``, the ``last`` step, ``mean`` or ``median`` of a window,
    #: ``differences`` of means so far, one of these ``scaled`` to the sums of means so far, or between
    #: ``stamps``.
    found: str
    #: Half of the unit to which a typical window's time per step is rounded, milliseconds.
    precision_ms: float
    #: The number of warm-up steps, and whether each window is warm-up.
    warm_up_steps: int
    is_warm_up: Bools
    #: Over steps without warm-up: the mean, its interval by the spread of windows, and percentiles.
    step: StepTime
    #: The mean wait for data over all steps, milliseconds and share; None if lines do not have it.
    input_ms: Mean | None
    input_share: Mean | None
    changes: tuple[ChangePoint, ...]
    epoch_starts: SlowWindows | None
    bursts: SlowWindows | None
    period: SlowPeriod | None
    growth: Growth | None
    #: Validation, checkpoints and other pauses between steps; the steps' times are without them.
    pauses: tuple[Pauses, ...]
    #: Steps that a restarted job trained again; None without any.
    repeated: RepeatedSteps | None
    #: Seconds from the first line's steps to the last line's, with pauses; 0 for recorded steps.
    total_s: float
    #: How the log counts its steps, as in ``from 1 in each epoch``; None if unknown.
    numbers: str | None = None
    #: What confirms the times of lines that no parser knows; None for others.
    confirmed: str | None = None
    #: The stages of a step by timers that a log prints; None for others.
    stages: PrintedStages | None = None
    #: Means over single steps of the shortest and the longest wait of any rank, milliseconds; None if
    #: ranks have not recorded the same steps. Without any wait, steps save between these two.
    least_input_ms: Mean | None = None
    most_input_ms: Mean | None = None
    #: The number of last steps that the times of lines are means over; 0 for all of their steps.
    of_last: int = 0
    #: Whether the log has a clock, or the steps were recorded.
    has_clock: bool = True
    #: Whether the recorder or another tool timed the steps; False for printed lines.
    recorded: bool = False
    #: The epochs of all trainings that a log has lines of; None if unknown.
    logged_epochs: int | None = None

    @property
    def epochs(self) -> int:
        """Count the epochs that have lines; 0 if lines do not name epochs."""
        return self.logged_epochs or (0 if self.whole.epoch is None else len({*self.whole.epoch}))

    @property
    def steps(self) -> int:
        """Return the number of steps from the first line's to the last line's, of each training."""
        begin, end = np.array(self.whole.trainings).T
        last = self.whole.step[end - 1] + self.whole.steps[end - 1]
        return int((last - self.whole.step[begin]).sum())

    @property
    def first_steady_step(self) -> int:
        """Return the first step without warm-up; the first of all where nothing settles."""
        steady = np.flatnonzero(~self.is_warm_up)
        return int(self.whole.step[steady[0] if len(steady) else 0])

    @property
    def steady_ranks(self) -> tuple[RankWindows, ...]:
        """Return the windows of each rank without warm-up."""
        first = self.first_steady_step
        return tuple(
            windows.chosen(windows.step >= first)
            for windows in self.ranks
            if windows.step[-1] >= first
        )

    @property
    def steady_s(self) -> float:
        """Return the time of all steps without warm-up, seconds."""
        steady = self.whole.chosen(~self.is_warm_up)
        return float(steady.ms @ steady.steps) / 1e3

    @property
    def job_s(self) -> float:
        """Return the time of the job as far as lines show it, seconds: steps, pauses and restarts."""
        spent = float(self.whole.ms @ self.whole.steps) / 1e3
        spent += sum(pauses.seconds for pauses in self.pauses)
        spent += 0.0 if self.repeated is None else self.repeated.seconds
        return max(self.total_s, spent)

    @property
    def share_of_steps(self) -> float:
        """Return the share of the job's time that steps without warm-up take; 1 for recorded steps."""
        return 1.0 if self.recorded else self.steady_s / self.job_s

    @property
    def slowdown(self) -> float:
        """Return the share of steps' time that they take longer than they usually did before."""
        longer_ms = sum((level.longer_ms or 0.0) * level.steps for level in self.levels)
        return longer_ms / max(1e3 * self.steady_s, 1e-9)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """Return the step times from one change to the next, of each training."""
        steady, levels = self.whole.chosen(~self.is_warm_up), []
        for begin, end in steady.trainings:
            part = slice(begin, end)
            levels += levels_after(self.changes, steady.step[part], steady.steps[part])
        return tuple(levels)

    @cached_property
    def whole(self) -> RankWindows:
        """Return the mean over the ranks that have the lowest rank's windows."""
        return over_ranks(self.ranks)


def printed_steps(run: Run) -> PrintedSteps | None:
    """Analyse the windows of a run, or its steps if only input was measured; None without either."""
    recorded = bool(run.rows)
    if recorded and run.fact("known_from") is None and not _input_exposed(run):
        return None
    printed = PrintedWindows(single_steps(run)) if recorded else printed_windows(run)
    ranks = printed.ranks
    if not ranks:
        return None
    whole = over_ranks(ranks)
    # A single mean over all steps has no first steps to leave out.
    warm_up = _warm_up(whole) if len(whole) > 1 else 0
    is_warm_up = np.arange(len(whole)) < warm_up
    steady = ~is_warm_up if warm_up < len(whole) else is_warm_up
    precision_ms = float(run.fact("window_precision_ms") or 0.0)
    slow = slow_windows(ranks, steady, precision_ms)
    cycle = None if slow.period is None else slow.period.every_windows
    input_ms, share = _input(run, whole.chosen(steady), cycle)
    least, most = _extreme_waits(ranks, whole.step[steady]) if recorded else (None, None)
    step, epoch = _step(run, whole, steady, cycle), whole.epoch
    return PrintedSteps(
        ranks=ranks,
        found=str(run.fact("windows") or "step"),
        precision_ms=precision_ms,
        warm_up_steps=int(whole.steps[is_warm_up].sum()),
        is_warm_up=is_warm_up,
        step=step,
        input_ms=input_ms,
        input_share=share,
        changes=_changes(whole.chosen(steady), slow.regular),
        epoch_starts=slow.starts,
        bursts=slow.bursts,
        period=slow.period,
        growth=None if epoch is None else growth_in(whole.ms[steady], epoch[steady]),
        pauses=printed.pauses,
        repeated=_repeated(run, whole.mean_ms),
        total_s=printed.total_s,
        numbers=run.fact("step_numbers"),
        confirmed=run.fact("confirmed"),
        stages=_stages(run, step.mean),
        least_input_ms=least,
        most_input_ms=most,
        of_last=int(run.fact("means_of_last") or 0),
        has_clock=recorded or not str(run.fact("clock") or "").startswith("none"),
        recorded=recorded,
        logged_epochs=run.fact("logged_epochs"),
    )


def _repeated(run: Run, mean_ms: float) -> RepeatedSteps | None:
    """Return the steps that a restarted job trained again; None without any."""
    steps, seconds = int(run.fact("repeated_steps") or 0), run.fact("repeated_s")
    if not steps:
        return None
    spent = steps * mean_ms / 1e3 if seconds is None else float(seconds)
    return RepeatedSteps(steps, int(run.fact("restarts") or 1), spent, seconds is not None)


def _warm_up(whole: RankWindows) -> int:
    """Return how many of the first windows are warm-up.

    Slow ones are none if others take nearly as long later: such a wait is part of training.
    """
    length = settling_length_within(whole.ms)
    first, rest = whole.ms[:length], whole.ms[length:]
    if not len(rest):
        return length
    slow = first > (1 + _LONG) * np.median(rest)
    recurs = (rest >= _NEARLY * first[:, None]).sum(axis=1) >= _RECURS
    settles = np.flatnonzero(slow & ~recurs)
    if not len(settles):
        return 0 if slow.any() or len(rest) < _FEWEST_STEADY else length
    return int(settles[-1]) + 1


def _input_exposed(run: Run) -> bool:
    """Whether the recorder knows that nothing computes while a step waits for its batch."""
    return (run.fact("stamps") or {}).get("input_exposed") is True


def _stages(run: Run, step_ms: float) -> PrintedStages | None:
    """Return the stages that timers print."""
    known = run.fact("stages")
    if known is None:
        return None
    spread = known["spread"]
    return PrintedStages(
        ms={name: known["ms"][name] for name in ENTRIES if name in known["ms"]},
        rest_ms=max(step_ms - sum(known["ms"].values()), 0.0),
        by=known["by"],
        tables=known["tables"],
        spread=spread and (spread["timer"], spread["least_ms"], spread["most_ms"]),
    )


def _extreme_waits(ranks: Sequence[RankWindows], steps: Ints) -> tuple[Mean | None, Mean | None]:
    """Return the means over these steps of the shortest and the longest wait of any rank."""
    known = []
    for windows in ranks:
        chosen = windows.chosen(np.isin(windows.step, steps))
        if chosen.input_ms is None or len(chosen) < len(steps):
            return None, None
        known.append(chosen.input_ms)
    least, most = np.min(known, axis=0), np.max(known, axis=0)
    return mean_with_interval(least), mean_with_interval(most)


def _step(run: Run, whole: RankWindows, steady: Bools, cycle: int | None) -> StepTime:
    """Return the mean over steps, with the interval of windows, which have nearly equal lengths.

    If windows have medians, or the times of a few steps, the mean of all steps is used if lines have it.
    Its interval is its rounding, and it includes warm-up.

    Args:
        run: the run.
        whole: the windows.
        steady: those without warm-up.
        cycle: the number of windows in a cycle of slow ones; None without a period.
    """
    half_ms = float(run.fact("step_precision_ms") or 0.0)
    times, weights = whole.ms[steady], whole.steps[steady]
    if run.fact("means_of_all_steps") and run.fact("windows") in ("median", "last"):
        mean = float(np.mean(_means_of_logs(run, "step_ms")))
        windows = Mean(mean, (mean - half_ms, mean + half_ms))
    else:
        mean = float(np.average(times, weights=weights))
        spread = mean_with_interval(
            _with_known_sums(run, whole.chosen(steady), cycle).ms, _fewest(cycle)
        )
        windows = spread.widened(half_ms)
    p50, p95, p99 = whole.chosen(steady).percentiles(50, 95, 99)
    ci95 = None
    if windows.ci95 is not None:
        ci95 = mean + windows.ci95[0] - windows.value, mean + windows.ci95[1] - windows.value
    return StepTime(mean, p50, p95, p99, ci95)


def _input(run: Run, whole: RankWindows, cycle: int | None) -> tuple[Mean | None, Mean | None]:
    """Return the mean wait for data and its share, over the same steps as the mean step.

    The spread of windows gives the interval. If windows only have the times of a few steps, means of all
    steps count if lines have them, and their rounding gives the interval.
    """
    if whole.input_ms is None:
        return _input_of_timers(run, whole.mean_ms)
    of_all = run.fact("means_of_all_steps") and run.fact("windows") in ("median", "last")
    waits, steps = _means_of_logs(run, "data_ms"), _means_of_logs(run, "step_ms")
    of_windows = float(np.average(whole.input_ms, weights=whole.steps))
    wait = float(np.mean(waits)) if of_all and waits else of_windows
    step = float(np.mean(steps)) if of_all and steps else whole.mean_ms
    if step <= 0:
        return None, None
    # Rounding or another clock may make the part longer than the whole.
    wait = min(wait, step)
    parts = _with_known_sums(run, whole, cycle).input_ms
    spread = mean_with_interval(whole.input_ms if parts is None else parts, _fewest(cycle))
    if of_all:
        half = float(run.fact("step_precision_ms") or 0.0)
        low, high = -half, half
    elif spread.ci95 is None:
        return Mean(wait, None), Mean(wait / step, None)
    else:
        half = float(run.fact("step_precision_ms") or 0.0)
        low, high = (edge - spread.value for edge in spread.widened(half).ci95 or spread.ci95)
    ci95 = max(wait + low, 0.0), min(wait + high, step)
    return Mean(wait, ci95), Mean(wait / step, (ci95[0] / step, min(ci95[1] / step, 1.0)))


def _input_of_timers(run: Run, step_ms: float) -> tuple[Mean | None, Mean | None]:
    """Return the mean wait for data by printed timers and its share; None without one."""
    stages = _stages(run, step_ms)
    if stages is None or "input" not in stages.ms:
        return None, None
    ci95 = run.fact("stages").get("input_ci95_ms")
    # Means that all lines print alike are rounded, not certain.
    known = ci95 is not None and ci95[0] < ci95[1]
    wait = Mean(stages.ms["input"], (ci95[0], ci95[1]) if known else None)
    return wait, wait.scaled(1 / step_ms)


def _with_known_sums(run: Run, windows: RankWindows, cycle: int | None) -> RankWindows:
    """Join windows whose times vary for a known reason.

    These are the windows of a cycle, those of a few sampled steps, whose sums are only known over many,
    and windows of unlike lengths.
    """
    if cycle is not None:
        return windows.in_cycles(cycle)
    return windows.joined(_SAMPLED_PARTS) if run.fact("windows") == "scaled" else windows.alike


def _fewest(cycle: int | None) -> float:
    """Return the fewest independent values for an interval: sums of cycles vary little."""
    return FEWEST_INDEPENDENT if cycle is None else FEWEST_CYCLES


def _means_of_logs(run: Run, name: str) -> list[float]:
    return [float(log.facts[name]) for log in run.logs if log.facts.get(name) is not None]


def _changes(windows: RankWindows, regular: Bools) -> tuple[ChangePoint, ...]:
    """Return changes within trainings; windows that are slow for another reason are no sign of them."""
    ms = np.where(regular, usual_without(windows.ms, regular, AROUND), windows.ms)
    windows = replace(windows, ms=ms)
    changes: list[ChangePoint] = []
    trainings = windows.trainings
    most = max(MOST // max(len(trainings), 1), 1)
    for start, end in trainings:
        training = windows.chosen(np.arange(start, end))
        splits = splits_of(training.ms, AROUND // 2, most)
        changes += (_change(training, split) for split in splits)
    return tuple(changes)


def _change(windows: RankWindows, split: Split) -> ChangePoint:
    before, after = slice(split.begin, split.at), slice(split.at, split.end)
    was, became = float(windows.ms[before].mean()), float(windows.ms[after].mean())
    entry: LedgerPart | None = None
    by = became - was
    if windows.input_ms is not None:
        waited = float(windows.input_ms[after].mean() - windows.input_ms[before].mean())
        # Lines with the wait of one of their steps may tell of any other change.
        if by and 1 / 2 < waited / by < 3 / 2:
            entry, by = "input", waited
    # The change may have happened within the window before, or at its start.
    between = int(windows.step[max(split.first - 1, 0)]), int(windows.step[split.last])
    return ChangePoint(int(windows.step[split.at]), was, became, entry, by, None, between)
