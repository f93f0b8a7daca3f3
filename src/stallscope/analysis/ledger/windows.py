"""Read windows of steps: the steps that one line of a log is about, or single recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.stats import interrupted, robust_sd, usual_without
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.run import Log, Run

_ALIKE = 2  # Windows whose numbers of steps differ by more than this factor count by their steps.
_WINDOW = "window"  # the kind of rows that hold windows

#: The usual value is taken over this many windows.
AROUND = 25
# Shares: of windows that may follow lines about work, of evaluations that save, and of such work's time.
_MOST_NAMED, _ALL, _LEAST_NAMED = 0.5, 0.9, 0.25
_LONG_OTHER = 3  # times the usual window: lines of other kinds before it tell of other work
# Named work takes so many standard deviations of windows, and a share of one.
_SDS_OF_NAMED, _SHARE_OF_NAMED = 6.0, 0.05
_OF_SOME_STEPS = ("step", "last", "median", "scaled")  # not the time of all steps of a window
# A pause between windows is longer than this share of a window (the second one where an epoch ends),
# and than so many units of timestamps.
_LONG_GAP, _LONG_AFTER_EPOCH, _UNITS_OF_GAP = 0.5, 0.05, 3
# This share of windows overlaps the one before by more than the usual overlap; pauses are so many.
_OVERLAPPING, _OVERLAPS_OF_GAP = 0.05, 3
# A pause of a kind is so many times the usual one at most, or so long.
_STOP, _STOP_NS = 20, 600 * 10**9
_MISSING = 20  # times as many steps as usual are between two lines: some are missing
# The first pause contains the start of the job if it is so many times a usual one.
_LONG_FIRST = 1.5


@dataclass(frozen=True, eq=False)
class RankWindows:
    """The windows of one rank, in their order; arrays have one entry per window."""

    rank: int
    #: The first step of each window, counted from 0 over the job, and its number of steps.
    step: Ints
    steps: Ints
    #: Milliseconds per step, and the wait for data in them; None if lines do not have it.
    ms: Floats
    input_ms: Floats | None
    #: The epoch as printed, counted from 0; None if lines do not have it.
    epoch: Ints | None
    #: The training of the log that it is of, or the start of the program, counted from 0.
    training: Ints

    def __len__(self) -> int:
        return len(self.step)

    @property
    def mean_ms(self) -> float:
        """Return the mean over all steps."""
        return float(np.average(self.ms, weights=self.steps))

    @property
    def mean_input_ms(self) -> float | None:
        """Return the mean wait for data over all steps; None if lines do not have it."""
        if self.input_ms is None:
            return None
        return float(np.average(self.input_ms, weights=self.steps))

    def chosen(self, these: Bools | Ints) -> RankWindows:
        """Return the windows that are marked, or those at these positions."""
        waits, epoch = self.input_ms, self.epoch
        return RankWindows(
            self.rank,
            self.step[these],
            self.steps[these],
            self.ms[these],
            None if waits is None else waits[these],
            None if epoch is None else epoch[these],
            self.training[these],
        )

    def joined(self, most: int) -> RankWindows:
        """Return at most this many windows, with neighbours joined."""
        n = len(self)
        if n <= most:
            return self
        return self._joined_at(np.unique(np.linspace(0, n, most + 1).astype(np.int64))[:-1])

    def in_cycles(self, length: int) -> RankWindows:
        """Return the whole cycles of so many windows, joined."""
        whole = np.arange(len(self) // length * length)
        return self.chosen(whole)._joined_at(whole[::length])

    @property
    def alike(self) -> RankWindows:
        """Return windows of similar numbers of steps: neighbours joined where they differ much."""
        if self.steps.max(initial=1) <= _ALIKE * self.steps.min(initial=1):
            return self
        ends = np.cumsum(self.steps)
        parts = int(ends[-1] // self.steps.max())
        part = np.minimum((ends - 1) * parts // ends[-1], parts - 1)
        return self._joined_at(np.flatnonzero(np.diff(part, prepend=-1)))

    def _joined_at(self, first: Ints) -> RankWindows:
        """Join the windows from each of these on."""
        steps = np.add.reduceat(self.steps, first)

        def mean(values: Floats) -> Floats:
            return np.asarray(np.add.reduceat(values * self.steps, first) / steps)

        waits, epoch = self.input_ms, self.epoch
        return RankWindows(
            self.rank,
            self.step[first],
            steps,
            mean(self.ms),
            None if waits is None else mean(waits),
            None if epoch is None else epoch[first],
            self.training[first],
        )

    def percentiles(self, *shares: float) -> tuple[float, ...]:
        """Return percentiles of milliseconds over steps; over windows if these have similar numbers."""
        if self.alike is self:
            return tuple(float(value) for value in np.percentile(self.ms, shares))
        order = np.argsort(self.ms)
        before = np.cumsum(self.steps[order])
        at = np.searchsorted(before, np.array(shares) / 100 * before[-1])
        return tuple(self.ms[order][np.minimum(at, len(self) - 1)].tolist())

    @property
    def trainings(self) -> list[tuple[int, int]]:
        """Return the first window of each training, and the one after its last."""
        starts = np.flatnonzero(np.diff(self.training, prepend=-1)).tolist()
        return [*pairwise([*starts, len(self)])]

    @property
    def begins_epoch(self) -> Bools:
        """Mark the first window of each epoch except the first."""
        if self.epoch is None:
            return np.zeros(len(self), bool)
        return np.append(False, self.epoch[1:] != self.epoch[:-1])[: len(self)]


# -- Windows of printed lines, without the work that other lines name ------------------------------

#: Work between steps that lines name; ``unnamed`` is time between lines that no line explains.
PauseKind = Literal["validation", "checkpoint", "validation and checkpoint", "unnamed"]


@dataclass(frozen=True)
class Pauses:
    """The pauses of a kind between steps."""

    kind: PauseKind
    number: int
    seconds: float
    #: The share of the time from the first line's steps to the last line's.
    share: float
    #: Whether the first is in the first line, with the job's start, and how many seconds longer it is.
    with_start: bool
    start_s: float
    #: The last step before each pause, or in the line that contains it.
    steps: tuple[int, ...]
    #: Whether most contain what the first steps of an epoch take longer, whose time no line tells.
    with_first_steps: bool = False
    #: Whether most may be longer: steps that may have no line at an epoch's end are no part of them.
    lower_bound: bool = False


@dataclass(frozen=True, eq=False)
class _Printed:
    """The windows of one rank as printed, with the time of pauses; arrays are in nanoseconds."""

    windows: RankWindows
    begin: Ints
    end: Ints
    within: Floats  # The time of pauses within each window, and before it.
    before: Floats
    #: Lines that name validation or checkpoints before the end of each window.
    validates: Bools
    saves: Bools
    #: Whether the program started again before a window, and the time until these starts.
    starts: Bools
    between: float
    #: Epochs of which no line tells the time of the first steps, and those behind one of unknown length.
    untold: Bools
    unknown: Bools

    @property
    def without_pauses(self) -> RankWindows:
        """Return the windows without the time of pauses."""
        windows, cut = self.windows, self.within / self.windows.steps / 1e6
        waits = windows.input_ms
        ms = windows.ms - cut
        return replace(windows, ms=ms, input_ms=None if waits is None else np.minimum(waits, ms))

    @property
    def total(self) -> float:
        """Return the time from the first line's steps to the last line's."""
        trained = float(self.end.max() - self.begin.min()) - self.between
        return max(trained, float((self.end - self.begin).sum()), 1.0)

    @property
    def pauses(self) -> tuple[Pauses, ...]:
        """Return the pauses by kind, the longest first."""
        spent = np.where(self.starts, 0.0, self.within + self.before)
        # Evaluations are of one kind, also if some have checkpoints beside them.
        saved = self.validates & (self.saves[self.validates].sum() > _ALL * self.validates.sum())
        kinds: dict[PauseKind, Bools] = {
            "validation": self.validates & ~saved,
            "checkpoint": self.saves & ~self.validates,
            "validation and checkpoint": saved,
            "unnamed": ~(self.validates | self.saves),
        }
        for kind, marked in [*kinds.items()][:-1]:
            # What takes much longer than others of its kind is something else, or the job's start.
            known = spent[marked & (spent > 0)]
            usual = float(np.median(known)) if len(known) else 0.0
            stops = marked & (spent > max(_STOP * usual, _STOP_NS))
            stops[0] = False
            kinds[kind], kinds["unnamed"] = marked & ~stops, kinds["unnamed"] | stops
        pauses = [
            self._pauses(kind, spent, chosen)
            for kind, marked in kinds.items()
            if (chosen := marked & (spent > 0)).any()
        ]
        return tuple(sorted(pauses, key=lambda pause: -pause.seconds))

    def _pauses(self, kind: PauseKind, spent: Floats, chosen: Bools) -> Pauses:
        usual = float(np.median(spent[chosen]))
        with_start = bool(chosen[0] and self.within[0] > _LONG_FIRST * usual)
        return Pauses(
            kind,
            int(chosen.sum()),
            float(spent[chosen].sum()) / 1e9,
            float(spent[chosen].sum()) / self.total,
            with_start,
            float(spent[0] - usual) / 1e9 if with_start else 0.0,
            self._steps_at(chosen),
            bool(self.untold[chosen].mean() > 1 / 2),
            bool(self.unknown[chosen].mean() > 1 / 2),
        )

    def _steps_at(self, chosen: Bools) -> tuple[int, ...]:
        windows, inside = self.windows, self.within > 0
        step = np.where(inside, windows.step + windows.steps - 1, windows.step)
        return tuple(step[chosen].tolist())


class PrintedWindows(NamedTuple):
    """The windows that lines are about, by rank, and the pauses of the lowest rank."""

    ranks: tuple[RankWindows, ...]
    pauses: tuple[Pauses, ...] = ()
    #: The seconds from the lowest rank's first line to its last; 0 without windows of lines.
    total_s: float = 0.0


def printed_windows(run: Run) -> PrintedWindows:
    """Return the windows that lines are about, without the time of pauses."""
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], _WINDOW))
    ranks = [
        _printed(run, rank, table.filter(arrow.equal(table["rank"], rank)))
        for rank in sorted(pc.unique(table["rank"]).to_pylist())
    ]
    if not ranks:
        return PrintedWindows(())
    windows = tuple(rank.without_pauses for rank in ranks)
    return PrintedWindows(windows, ranks[0].pauses, ranks[0].total / 1e9)


def _printed(run: Run, rank: int, rows: pa.Table) -> _Printed:
    logs = [log for log in run.logs if log.rank == rank]
    steps = np.maximum(arrow.numbers(rows["steps"]), 1)
    begin, end = arrow.numbers(rows["begin"]), arrow.numbers(rows["end"])
    windows = _windows_of(rank, rows, steps, np.zeros_like(steps), begin, end)
    windows = replace(windows, step=windows.step - steps)
    named, windows, restarts = _named_work(logs, windows)
    usual = usual_without(windows.ms, named[0] | named[1], AROUND)
    works = _with_other_work(run, logs, windows)
    long = works | _long_windows(windows, usual, named, restarts)
    usual = usual_without(windows.ms, named[0] | named[1] | works, AROUND)
    gaps = _gaps(logs, windows, np.append(0, begin[1:] - end[:-1]), usual, restarts)
    shown = gaps.ns > gaps.least
    for work in named:
        # What ends most epochs ends all, also where steps varied by more than it takes.
        in_epochs = work & windows.begins_epoch & (gaps.ns > 0)
        if in_epochs.any() and shown[in_epochs].mean() > _MOST_NAMED:
            shown |= in_epochs
    return _Printed(
        windows,
        begin,
        end,
        within=np.where(long, 1e6 * (windows.ms - usual) * windows.steps, 0.0),
        before=np.where(shown, gaps.ns, 0.0),
        validates=named[0],
        saves=named[1],
        starts=restarts,
        between=gaps.away if run.fact("repeated_s") is None else 0.0,
        untold=windows.begins_epoch & (gaps.steps >= np.median(windows.steps)),
        unknown=windows.begins_epoch & (not all(log.facts.get("epoch_steps") for log in logs)),
    )


def _windows_of(
    rank: int, rows: pa.Table, steps: Ints, since: Ints, begin: Ints, end: Ints
) -> RankWindows:
    """Return windows of so many steps each; their waits are from ``since`` on."""
    data, epoch = rows["data"], rows["epoch"]
    return RankWindows(
        rank=rank,
        step=arrow.numbers(rows["step"]),
        steps=steps,
        ms=(end - begin) / steps / 1e6,
        input_ms=None if data.null_count else (arrow.numbers(data) - since) / steps / 1e6,
        epoch=None if epoch.null_count else arrow.numbers(epoch).astype(np.int64),
        training=np.zeros(len(steps), np.int64),
    )


def _named_work(
    logs: Sequence[Log], windows: RankWindows
) -> tuple[tuple[Bools, Bools], RankWindows, Bools]:
    """Return marks of named validation and checkpoints, windows with trainings, and marks of starts."""
    validates, saves, restarts, begins = (
        _after(logs, windows, kind) for kind in ("validation", "checkpoint", "restart", "training")
    )
    windows = replace(windows, training=np.cumsum(begins | restarts))
    # A program that starts prints settings of evaluations, and its first step takes long.
    named = validates & ~restarts, saves & ~restarts
    if ((named[0] | named[1]) & ~windows.begins_epoch).mean() > _MOST_NAMED:
        named = np.zeros(len(windows), bool), np.zeros(len(windows), bool)
    return named, windows, restarts


def _long_windows(
    windows: RankWindows, usual: Floats, named: tuple[Bools, Bools], restarts: Bools
) -> Bools:
    """Mark windows that contain work, by their lines and by their time.

    The first step of a start is its warm-up; the first ones of an epoch wait for its loader.
    """
    excluded, over = named[0] | named[1], windows.ms - usual
    within = excluded & ~windows.begins_epoch
    least = np.maximum(_SDS_OF_NAMED * robust_sd(over[~excluded]), _SHARE_OF_NAMED * usual)
    long: Bools = (within | restarts) & (over > least)
    if long[within].sum() > _MOST_NAMED * within.sum():
        # It takes long in others, too, also where their steps were quick.
        least_ms = _LEAST_NAMED * np.median((over * windows.steps)[long & within])
        long |= within & (over * windows.steps > least_ms)
    return long


def _with_other_work(run: Run, logs: Sequence[Log], windows: RankWindows) -> Bools:
    """Mark windows that contain work that no line names, by their time and no wait for data."""
    marked = interrupted(windows.ms * windows.steps, windows.steps, AROUND) & (windows.steps > 1)
    marked &= run.fact("windows") not in _OF_SOME_STEPS
    marked |= _after(logs, windows, "other_work")
    others = _after(logs, windows, "other") & (windows.ms > _LONG_OTHER * np.median(windows.ms))
    marked |= others & ~windows.begins_epoch
    marked[:1] = False
    if windows.input_ms is not None and marked.any():
        waits = windows.input_ms - usual_without(windows.input_ms, marked, AROUND)
        marked &= waits < (windows.ms - usual_without(windows.ms, marked, AROUND)) / 2
    return np.asarray(marked)


def _after(logs: Sequence[Log], windows: RankWindows, kind: str) -> Bools:
    """Mark the windows before whose end, by a fact of their logs, something happened."""
    at = [step for log in logs for step in log.facts.get(f"steps_after_{kind}") or ()]
    return np.isin(windows.step + windows.steps, at)


class _Gaps(NamedTuple):
    """The time before each window that no step took, in nanoseconds."""

    ns: Floats
    #: What is no pause yet.
    least: Floats
    #: Steps without a line before each window.
    steps: Ints
    #: The time where the program started again, or where many lines are missing.
    away: float


def _gaps(
    logs: Sequence[Log], windows: RankWindows, apart_ns: Ints, usual: Floats, restarts: Bools
) -> _Gaps:
    steps = windows.steps
    # Between two lines there may be steps without a line, also where an epoch of unknown length ends.
    between = np.append(0, windows.step[1:] - (windows.step + steps)[:-1])
    if not all(log.facts.get("epoch_steps") for log in logs):
        between = between + np.where(windows.begins_epoch, np.median(steps) - 1, 0)
    # Where many lines are missing, the time may be that of anything.
    apart = restarts | (between > _MISSING * np.median(steps))
    gap = apart_ns - 1e6 * usual * np.maximum(between, 0)
    resolution = max((float(log.facts.get("stamp_precision_ms") or 0) for log in logs), default=0.0)
    # The time of restarts is that of steps trained twice (``RepeatedSteps``), or of no training.
    away = float(np.maximum(apart_ns[apart], 0).sum())
    gap[apart] = 0
    # Where windows have the time of some of their steps, they overlap as often as they are apart.
    overlap = max(-float(np.quantile(gap[~windows.begins_epoch], _OVERLAPPING)), 0.0)
    share = np.where(windows.begins_epoch, _LONG_AFTER_EPOCH, _LONG_GAP)
    least = np.maximum(share * 1e6 * usual * steps, _UNITS_OF_GAP * 1e6 * resolution)
    return _Gaps(gap, np.maximum(least, _OVERLAPS_OF_GAP * overlap), between, away)


def single_steps(run: Run) -> tuple[RankWindows, ...]:
    """Return a window for each step of the last generation with a known start and end."""
    table = run.steps.filter(
        pc.and_(pc.is_valid(run.steps["begin"]), pc.is_valid(run.steps["end"]))
    )
    if not table.num_rows:
        return ()
    last = pc.max(table["generation"])
    table = table.filter(pc.equal(table["generation"], last)).sort_by(
        [("rank", "ascending"), ("step", "ascending")]
    )
    ranks = arrow.numbers(table["rank"])
    starts = np.flatnonzero(np.diff(ranks, prepend=ranks[0] - 1))
    ends = np.append(starts[1:], len(ranks))
    recorder = run.fact("known_from") is None
    return tuple(
        _steps_of_rank(run, int(ranks[start]), table.slice(start, end - start), recorder)
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    )


def _steps_of_rank(run: Run, rank: int, rows: pa.Table, recorder: bool) -> RankWindows:
    step, begin, end = (arrow.numbers(rows[name]) for name in ("step", "begin", "end"))
    if recorder:
        end = _with_time_between(run, rank, step, begin, end, arrow.numbers(rows["epoch"]))
    return _windows_of(rank, rows, np.ones(len(step), np.int64), begin, begin, end)


def _with_time_between(
    run: Run, rank: int, step: Ints, begin: Ints, end: Ints, epoch: Ints
) -> Ints:
    """Return the ends of steps, extended to the next step if no pause is between them."""
    pauses = run.intervals.filter(arrow.equal(run.intervals["rank"], rank))
    follows = (np.diff(step) == 1) & (np.diff(epoch) == 0)
    follows &= ~np.isin(step[1:], arrow.numbers(pauses["step"]))
    end = end.copy()
    end[:-1][follows] = begin[1:][follows]
    return end
