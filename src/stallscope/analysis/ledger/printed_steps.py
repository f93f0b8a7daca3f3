"""Analyse the step times of runs that only have lines about windows of steps.

A line is about one step, or about the steps since the line before: a window. Windows have no stages,
except for the wait for data if lines have it. Traces of other tools that show when batches arrived, but
no gradients, are series of single steps. So are recorded runs in which compute, waiting and allreduce
are one time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.stats import Mean, above_usual, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.run import Run
from stallscope.words import LedgerPart

from .by_generation import settling_length_within
from .change_points import ChangePoint, largest, possible_places, split_points
from .ledger_figures import StepTime
from .windows import RankWindows, over_ranks, printed_windows, single_steps

#: The precision of steps that another tool has recorded.
PRECISION = "single steps, to the microsecond"
# The usual value is taken over this many windows.
_AROUND = 25
_FEWEST_EPOCHS = 3
# If windows are samples, the spread of this many parts of the run gives the precision of its mean.
_SAMPLED_PARTS = 40
_MOST = 2 / 3


@dataclass(frozen=True)
class SlowWindows:
    """Windows that take longer than those around them, and the time that this costs."""

    windows: int
    of: int
    #: How much longer they take, milliseconds per step on average.
    longer_ms: float
    #: The same as a share of all steps' time.
    cost: float


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
    #: How the log counts its steps, as in ``from 1 in each epoch``; None if unknown.
    numbers: str | None = None
    #: What confirms the times of lines that no parser knows; None for others.
    confirmed: str | None = None
    #: Means over single steps of the shortest and the longest wait of any rank, milliseconds; None if
    #: ranks have not recorded the same steps. Without any wait, steps save between these two.
    least_input_ms: Mean | None = None
    most_input_ms: Mean | None = None
    #: Whether the recorder or another tool timed the steps; False for printed lines.
    recorded: bool = False

    @property
    def epochs(self) -> int:
        """Count the epochs that have lines; 0 if lines do not name epochs."""
        epoch = self.whole.epoch
        return 0 if epoch is None else len(np.unique(epoch))

    @property
    def steps(self) -> int:
        """Return the number of steps from the first line's to the last line's."""
        whole = self.whole
        return int(whole.step[-1] + whole.steps[-1] - whole.step[0])

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

    @cached_property
    def whole(self) -> RankWindows:
        """Return the mean over the ranks that have the lowest rank's windows."""
        return over_ranks(self.ranks)


def printed_steps(run: Run) -> PrintedSteps | None:
    """Analyse the windows of a run, or its steps if only input was measured; None without either."""
    recorded = bool(run.rows)
    if recorded and run.fact("known_from") is None and not _input_exposed(run):
        return None
    ranks = single_steps(run) if recorded else printed_windows(run)
    if not ranks:
        return None
    whole = over_ranks(ranks)
    warm_up = settling_length_within(whole.ms)
    is_warm_up = np.arange(len(whole)) < warm_up
    steady = ~is_warm_up if warm_up < len(whole) else is_warm_up
    starts, bursts = _slow(whole, steady)
    input_ms, share = _input(run, whole.chosen(steady))
    least, most = _extreme_waits(ranks, whole.step[steady]) if recorded else (None, None)
    return PrintedSteps(
        ranks=ranks,
        found=str(run.fact("windows") or "step"),
        precision_ms=float(run.fact("window_precision_ms") or 0.0),
        warm_up_steps=int(whole.steps[is_warm_up].sum()),
        is_warm_up=is_warm_up,
        step=_step(run, whole, steady),
        input_ms=input_ms,
        input_share=share,
        changes=_changes(whole, steady),
        epoch_starts=starts,
        bursts=bursts,
        numbers=run.fact("step_numbers"),
        confirmed=run.fact("confirmed"),
        least_input_ms=least,
        most_input_ms=most,
        recorded=recorded,
    )


def _input_exposed(run: Run) -> bool:
    """Whether the recorder knows that nothing computes while a step waits for its batch."""
    return (run.fact("stamps") or {}).get("input_exposed") is True


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


def _step(run: Run, whole: RankWindows, steady: Bools) -> StepTime:
    """Return the mean over steps, with the interval of windows, which have nearly equal lengths.

    If windows have medians, or the times of a few steps, the mean of all steps is used if lines have it.
    Its interval is its rounding, and it includes warm-up.

    Args:
        run: the run.
        whole: the windows.
        steady: those without warm-up.
    """
    half_ms = float(run.fact("step_precision_ms") or 0.0)
    times, weights = whole.ms[steady], whole.steps[steady]
    if run.fact("means_of_all_steps") and run.fact("windows") in ("median", "last"):
        mean = float(np.mean(_means_of_logs(run, "step_ms")))
        windows = Mean(mean, (mean - half_ms, mean + half_ms))
    else:
        mean = float(np.average(times, weights=weights))
        spread = mean_with_interval(_with_known_sums(run, whole.chosen(steady)).ms)
        windows = spread.widened(half_ms)
    p50, p95, p99 = whole.chosen(steady).percentiles(50, 95, 99)
    ci95 = None
    if windows.ci95 is not None:
        ci95 = mean + windows.ci95[0] - windows.value, mean + windows.ci95[1] - windows.value
    return StepTime(mean, p50, p95, p99, ci95)


def _input(run: Run, whole: RankWindows) -> tuple[Mean | None, Mean | None]:
    """Return the mean wait for data and its share, over the same steps as the mean step.

    The spread of windows gives the interval. If windows only have the times of a few steps, means of all
    steps count if lines have them, and their rounding gives the interval.
    """
    if whole.input_ms is None:
        return None, None
    of_all = run.fact("means_of_all_steps") and run.fact("windows") in ("median", "last")
    waits, steps = _means_of_logs(run, "data_ms"), _means_of_logs(run, "step_ms")
    of_windows = float(np.average(whole.input_ms, weights=whole.steps))
    wait = float(np.mean(waits)) if of_all and waits else of_windows
    step = float(np.mean(steps)) if of_all and steps else whole.mean_ms
    if step <= 0:
        return None, None
    # Rounding or another clock may make the part longer than the whole.
    wait = min(wait, step)
    parts = _with_known_sums(run, whole).input_ms
    spread = mean_with_interval(whole.input_ms if parts is None else parts)
    if of_all:
        half = float(run.fact("step_precision_ms") or 0.0)
        low, high = -half, half
    elif spread.ci95 is None:
        return Mean(wait, None), Mean(wait / step, None)
    else:
        low, high = (edge - spread.value for edge in spread.ci95)
    ci95 = max(wait + low, 0.0), min(wait + high, step)
    return Mean(wait, ci95), Mean(wait / step, (ci95[0] / step, min(ci95[1] / step, 1.0)))


def _with_known_sums(run: Run, windows: RankWindows) -> RankWindows:
    """Join windows of a few sampled steps, whose sums are only known over many, and unlike windows."""
    return windows.joined(_SAMPLED_PARTS) if run.fact("windows") == "scaled" else windows.alike


def _means_of_logs(run: Run, name: str) -> list[float]:
    return [float(log.facts[name]) for log in run.logs if log.facts.get(name) is not None]


def _changes(whole: RankWindows, steady: Bools) -> tuple[ChangePoint, ...]:
    windows = whole.chosen(steady)
    edges = [0, *split_points(windows.ms, _AROUND // 2), len(windows)]
    return largest(
        _change(windows, begin, at, end)
        for begin, at, end in zip(edges, edges[1:], edges[2:], strict=False)
    )


def _change(windows: RankWindows, begin: int, at: int, end: int) -> ChangePoint:
    before, after = slice(begin, at), slice(at, end)
    was, became = float(windows.ms[before].mean()), float(windows.ms[after].mean())
    entry: LedgerPart | None = None
    by = became - was
    if windows.input_ms is not None:
        waited = float(windows.input_ms[after].mean() - windows.input_ms[before].mean())
        if abs(waited) > abs(by) / 2:
            entry, by = "input", waited
    first, last = possible_places(windows.ms, begin, at, end)
    # The change may have happened within the window before, or at its start.
    between = int(windows.step[max(first - 1, 0)]), int(windows.step[last])
    return ChangePoint(int(windows.step[at]), was, became, entry, by, None, between)


def _slow(whole: RankWindows, steady: Bools) -> tuple[SlowWindows | None, SlowWindows | None]:
    """Return the windows at the start of epochs if most of them are slow, and other slow windows."""
    ms, steps = whole.ms[steady], whole.steps[steady]
    if len(ms) < _AROUND:
        return None, None
    over, slow = above_usual(ms, _AROUND)
    starts = whole.begins_epoch[steady]
    regular = starts.sum() >= _FEWEST_EPOCHS and slow[starts].mean() >= _MOST
    at_start = slow & starts if regular else np.zeros(len(slow), bool)
    masks = (at_start, slow & ~at_start)
    costs = [_cost(over, steps, ms, chosen) for chosen in masks]
    return costs[0], costs[1]


def _cost(over: Floats, steps: Ints, ms: Floats, chosen: Bools) -> SlowWindows | None:
    if not chosen.any():
        return None
    lost = float(over[chosen] @ steps[chosen])
    return SlowWindows(
        windows=int(chosen.sum()),
        of=len(chosen),
        longer_ms=lost / int(steps[chosen].sum()),
        cost=lost / float(ms @ steps),
    )
