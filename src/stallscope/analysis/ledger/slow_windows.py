"""Find windows of steps that are slow: at the start of epochs, with a period, or in bursts.

A period is found by the place of the longest value within each cycle: without a period, each place is
equally likely.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stallscope.arrays.stats import above_usual, robust_sd, tail_sd, unusual, usual_without
from stallscope.arrays.types import Bools, Floats, Ints

from .windows import AROUND, RankWindows

# The fewest epochs that show how epochs start.
_FEWEST_EPOCHS = 3
# Nearly all windows have the same number of steps.
_NEARLY = 0.9
#: A period needs this many cycles.
FEWEST_CYCLES = 5
# Longer periods are not looked for, and only the last values are searched.
_LONGEST_PERIOD, _MOST_SEARCHED = 256, 1 << 13
# The slow value has the same place in this share of cycles.
_MOST = 2 / 3
# The share of healthy series that have a period by chance.
_CHANCE = 1e-3
# Smaller differences are not reported, as a share of the usual value.
_WORTH = 0.05
_LEAST = 1e-9
# A rank waits alone if its wait explains most of a window's excess, and no other rank's much of it.
_MOST_OF_EXCESS, _LITTLE_OF_EXCESS = 0.5, 0.25
# So few bursts count if their cost is large.
_FEW_BURSTS, _LARGE = 3, 0.05


@dataclass(frozen=True)
class WaitingAlone:
    """A rank that alone waits for data in some windows, while the others wait for it."""

    rank: int
    windows: int


@dataclass(frozen=True)
class SlowWindows:
    """Windows that take longer than those around them, and the time that this costs."""

    windows: int
    of: int
    #: How much longer they take, milliseconds per step on average.
    longer_ms: float
    #: The same as a share of all steps' time.
    cost: float
    #: The share of the longer time that is waiting for data; None if lines do not have it.
    waiting_share: float | None = None
    #: The ranks that alone wait for data in some of these windows, most first.
    alone: tuple[WaitingAlone, ...] = ()


@dataclass(frozen=True)
class SlowPeriod(SlowWindows):
    """Windows that take longer at the same place of each cycle."""

    #: The number of steps in a cycle, and the number of windows.
    every: int = 0
    every_windows: int = 0


class Slow(NamedTuple):
    """The slow windows of a run; None without any."""

    #: First windows of epochs, if most of them are slow.
    starts: SlowWindows | None
    period: SlowPeriod | None
    #: All others.
    bursts: SlowWindows | None
    #: Marks the windows of the first two kinds.
    regular: Bools


def slow_windows(ranks: Sequence[RankWindows], steady: Bools, precision_ms: float) -> Slow:
    """Find slow windows.

    Args:
        ranks: the windows of each rank.
        steady: marks those without warm-up.
        precision_ms: half of the unit that times are rounded to.
    """
    whole = over_ranks(ranks)
    windows = whole.chosen(steady)
    costs = _Costs(windows, [rank.chosen(steady) for rank in alike_ranks(ranks)])
    ms, starts = windows.ms, whole.begins_epoch[steady]
    starts[:1] = windows.epoch is not None and steady[0]
    usual = usual_without(ms, starts, AROUND)
    over = ms - usual
    at_start = starts & unusual(over, usual, robust_sd(over[~starts]))
    few = starts.sum() < _FEWEST_EPOCHS or at_start.sum() < _MOST * starts.sum()
    if few or starts.sum() > (~starts).sum():
        at_start &= False
    slow_starts = costs.of(over, at_start)
    period = _period(windows, at_start, precision_ms)
    known, slow_period = at_start, None
    if period is not None:
        known = at_start | period.regular
        over[period.regular] = period.over
        cost = costs.of(over, period.regular)
        assert cost is not None
        every = int(np.median(windows.steps))
        slow_period = SlowPeriod(
            **vars(cost), every=period.every * every, every_windows=period.every
        )
    in_burst, rest = np.zeros(len(ms), bool), np.flatnonzero(~known)
    if len(rest) >= AROUND:
        over[rest], in_burst[rest] = _far_above(ms[rest])
    bursts = costs.of(over, in_burst)
    if bursts is not None and bursts.windows < _FEW_BURSTS and bursts.cost < _LARGE:
        bursts = None
    return Slow(slow_starts, slow_period, bursts, known)


def alike_ranks(ranks: Sequence[RankWindows]) -> list[RankWindows]:
    """Return the ranks that have the lowest rank's windows."""
    first = ranks[0]
    return [
        windows
        for windows in ranks
        if len(windows) == len(first) and np.array_equal(windows.step, first.step)
    ]


def over_ranks(ranks: Sequence[RankWindows]) -> RankWindows:
    """Return the mean over the ranks that have the lowest rank's windows."""
    first, alike = ranks[0], alike_ranks(ranks)
    if len(alike) == 1:
        return first
    waits = [windows.input_ms for windows in alike if windows.input_ms is not None]
    return RankWindows(
        rank=first.rank,
        step=first.step,
        steps=first.steps,
        ms=np.mean([windows.ms for windows in alike], axis=0),
        input_ms=np.mean(waits, axis=0) if len(waits) == len(alike) else None,
        epoch=first.epoch,
        training=first.training,
    )


def _far_above(ms: Floats) -> tuple[Floats, Bools]:
    """Return how far values are above the usual one, and which do not belong to a heavy tail."""
    over, _ = above_usual(ms, AROUND)
    return over, unusual(over, ms - over, tail_sd(over))


def _period(windows: RankWindows, at_start: Bools, precision_ms: float) -> Period | None:
    """Return the cycle of slow windows; None without one, or with unequal windows.

    Cycles count over the job, or begin again with each epoch as a loader does.
    """
    every = int(np.median(windows.steps))
    if (windows.steps != every).mean() > 1 - _NEARLY:
        return None
    ms = windows.ms.copy()
    ms[at_start] = np.median(windows.ms)
    number = (windows.step + windows.steps - 1) // every
    epoch = windows.epoch
    countings = [(number, np.zeros(len(ms), np.int64), 0)]
    lengths: set[int] = set()
    if epoch is not None and len(np.unique(epoch)) > 1:
        first = np.flatnonzero(np.diff(epoch, prepend=epoch[:1] - 1))
        of_epoch = np.searchsorted(first, np.arange(len(ms)), side="right") - 1
        # What comes once in an epoch is no period.
        lines = int(np.median(np.bincount(of_epoch)))
        countings.append((number - number[first][of_epoch], epoch, lines))
        lengths = set(np.diff(number[first]).tolist())
    # Times are rounded by half a unit, and their differences by two.
    least = 4 * precision_ms
    periods = [
        period_of(ms, place, part, least, lengths | {*range(lines // 2 + 1, lines + 1)})
        for place, part, lines in countings
    ]
    known = [period for period in periods if period is not None]
    return max(known, key=lambda period: float(period.over.sum()), default=None)


class _Costs(NamedTuple):
    """Computes what slow windows cost."""

    windows: RankWindows
    #: The same windows of each rank.
    ranks: Sequence[RankWindows]

    def of(self, over: Floats, chosen: Bools) -> SlowWindows | None:
        """Return the cost of marked windows, given how far all are above the usual; None without any."""
        if not chosen.any():
            return None
        steps, longer = self.windows.steps[chosen], over[chosen]
        lost = float(longer @ steps)
        waits = [rank.input_ms for rank in self.ranks if rank.input_ms is not None]
        waiting: float | None = None
        alone: tuple[WaitingAlone, ...] = ()
        if len(waits) == len(self.ranks) and lost > 0:
            # How much longer each rank waits for data than usual.
            excess = np.array(
                [(wait - usual_without(wait, chosen, AROUND))[chosen] for wait in waits]
            )
            waiting = (
                float(np.clip(excess.max(axis=0), 0.0, np.maximum(longer, 0.0)) @ steps) / lost
            )
            alone = self._alone(excess, longer)
        return SlowWindows(
            windows=int(chosen.sum()),
            of=len(chosen),
            longer_ms=lost / int(steps.sum()),
            cost=lost / float(self.windows.ms @ self.windows.steps),
            waiting_share=None if waiting is None else min(waiting, 1.0),
            alone=alone,
        )

    def _alone(self, excess: Floats, longer: Floats) -> tuple[WaitingAlone, ...]:
        """Count the windows in which one rank waits for data, and no other."""
        if len(excess) < 2:
            return ()
        second, first = np.sort(excess, axis=0)[-2:]
        alone = (first > _MOST_OF_EXCESS * longer) & (second < _LITTLE_OF_EXCESS * longer)
        counts = np.bincount(excess.argmax(axis=0)[alone], minlength=len(excess))
        named = [
            WaitingAlone(rank.rank, int(count))
            for rank, count in zip(self.ranks, counts, strict=True)
            if count
        ]
        return tuple(sorted(named, key=lambda rank: -rank.windows))


class Period(NamedTuple):
    """A place within cycles at which values are longer than the others."""

    #: The number of values in a cycle.
    every: int
    #: Marks the values at that place.
    regular: Bools
    #: How much longer they are than the other values of their cycles: each, in the values' unit.
    over: Floats


def period_of(
    values: Floats,
    position: Ints,
    segment: Ints,
    least: float = 0.0,
    without: Collection[int] = (),
) -> Period | None:
    """Return the period of a series that chance does not explain; None without one.

    Cycles are compared without what changes slowly. Chernoff's bound on the binomial distribution counts
    the cycles whose longest value is at the same place, over all periods and places that are tried.

    Args:
        values: the series.
        position: the number of each value within its segment; numbers may be missing.
        segment: the number of its segment, as of its epoch.
        least: the least difference that values show, because they are rounded.
        without: periods that have another explanation.
    """
    searched = slice(max(len(values) - _MOST_SEARCHED, 0), None)
    series, longest = values[searched], min(len(values[searched]) // FEWEST_CYCLES, _LONGEST_PERIOD)
    if longest < 2:
        return None
    padded = np.pad(series, 1, mode="reflect")
    bump = series - (padded[:-2] + padded[2:]) / 2
    # Equal values are in random order.
    bump += np.random.default_rng(0).uniform(
        0, _LEAST * np.abs(bump).max(initial=_LEAST), len(bump)
    )
    usual, needed = float(np.median(series)), float(np.log(longest**2 / _CHANCE))
    candidates = []
    for every in sorted({*range(2, longest + 1)} - {*without}):
        begin = _cycles(position[searched], segment[searched], every)
        if len(begin) < FEWEST_CYCLES or len(begin) * np.log(every) <= needed:
            continue
        cycles = begin[:, None] + np.arange(every)
        counts = np.bincount(bump[cycles].argmax(axis=1), minlength=every)
        place, share = int(counts.argmax()), float(counts.max()) / len(begin)
        unlikely = len(begin) * _divergence(share, 1 / every)
        if share < _MOST or unlikely <= needed:
            continue
        others = np.median(np.delete(series[cycles], place, axis=1), axis=1)
        longer = float(np.median(series[cycles[:, place]] - others))
        if longer > max(_WORTH * usual, least):
            candidates.append(_Candidate(every, place, unlikely, longer))
    if not candidates:
        return None
    best = _best(candidates)
    regular = position % best.every == best.place
    return Period(
        best.every, regular, values[regular] - usual_without(values, regular, AROUND)[regular]
    )


class _Candidate(NamedTuple):
    """A period that chance does not explain."""

    every: int
    place: int
    #: The logarithm of how unlikely chance is, and how much longer values are.
    unlikely: float
    longer: float


def _best(candidates: Sequence[_Candidate]) -> _Candidate:
    """Return the least likely period, or a multiple of it that is as unlikely and of longer values.

    Where every fourth value is long, each second one exceeds the one before it, beside a long one.
    """
    best = max(candidates, key=lambda candidate: candidate.unlikely)
    multiples = [
        candidate
        for candidate in candidates
        if candidate.every % best.every == 0 and candidate.unlikely >= _NEARLY * best.unlikely
    ]
    return max(multiples, key=lambda candidate: candidate.longer)


def _cycles(position: Ints, segment: Ints, every: int) -> Ints:
    """Return where whole cycles begin."""
    begin = np.flatnonzero(position % every == 0)
    begin = begin[begin + every <= len(position)]
    end = begin + every - 1
    whole = (position[end] - position[begin] == every - 1) & (segment[end] == segment[begin])
    return np.asarray(begin[whole])


def _divergence(share: float, expected: float) -> float:
    """Return the Kullback-Leibler divergence of a share from the expected one."""
    rest = (1 - share) * np.log((1 - share) / (1 - expected)) if share < 1 else 0.0
    return float(share * np.log(share / expected) + rest)
