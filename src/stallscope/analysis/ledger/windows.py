"""Read windows of steps: the steps that one line of a log is about, or single recorded steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.run import Run

# Windows whose numbers of steps differ by more than this factor count by their steps.
_ALIKE = 2
# The kind of rows that hold windows.
_WINDOW = "window"


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
        )

    def joined(self, most: int) -> RankWindows:
        """Return at most this many windows, with neighbours joined."""
        n = len(self)
        if n <= most:
            return self
        return self._joined_at(np.unique(np.linspace(0, n, most + 1).astype(np.int64))[:-1])

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
    def begins_epoch(self) -> Bools:
        """Mark the first window of each epoch except the first."""
        if self.epoch is None:
            return np.zeros(len(self), bool)
        return np.append(False, self.epoch[1:] != self.epoch[:-1])[: len(self)]


def printed_windows(run: Run) -> tuple[RankWindows, ...]:
    """Return the windows that lines are about, by rank."""
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], _WINDOW))
    windows = []
    for rank in sorted(pc.unique(table["rank"]).to_pylist()):
        rows = table.filter(arrow.equal(table["rank"], rank))
        steps = np.maximum(arrow.numbers(rows["steps"]), 1)
        took = arrow.numbers(rows["end"]) - arrow.numbers(rows["begin"])
        data, epoch = rows["data"], rows["epoch"]
        windows.append(
            RankWindows(
                rank=rank,
                step=arrow.numbers(rows["step"]) - steps,
                steps=steps,
                ms=took / steps / 1e6,
                input_ms=None if data.null_count else arrow.numbers(data) / steps / 1e6,
                epoch=None if epoch.null_count else arrow.numbers(epoch).astype(np.int64),
            )
        )
    return tuple(windows)


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
    data, epoch = rows["data"], rows["epoch"]
    if recorder:
        end = _with_time_between(run, rank, step, begin, end, arrow.numbers(epoch))
    return RankWindows(
        rank=rank,
        step=step,
        steps=np.ones(len(step), np.int64),
        ms=(end - begin) / 1e6,
        input_ms=None if data.null_count else (arrow.numbers(data) - begin) / 1e6,
        epoch=None if epoch.null_count else arrow.numbers(epoch).astype(np.int64),
    )


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


def over_ranks(ranks: Sequence[RankWindows]) -> RankWindows:
    """Return the mean over the ranks that have the lowest rank's windows."""
    first = ranks[0]
    alike = [
        windows
        for windows in ranks
        if len(windows) == len(first) and np.array_equal(windows.step, first.step)
    ]
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
    )
