"""What several checks look at, worked out once: the last generation's steps, epochs and intervals.

Only the last generation that has steps is looked at, as for the ledger: a fault that is there to
stay shows in it, and ranks of different worlds are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import LATEST, NULL, Matrix
from stallscope.arrays.pivot import by_parts, of_generation, pivot, without_logs
from stallscope.arrays.types import Ints
from stallscope.run import Log, Run

from ..settings.setup import Setup


@dataclass(frozen=True)
class Reductions:
    """When each rank had reduced each step."""

    ranks: tuple[int, ...]
    #: Per rank, the name of its clock.
    clocks: tuple[str, ...]
    steps: Ints
    #: S steps × R ranks, nanoseconds on the rank's own clock, NULL where not measured.
    cells: Matrix
    #: What it is called there: ``reduced``, or ``end``, as the hosts saw it, where no rank has
    #: timestamps.
    stamp: str

    @property
    def stamped(self) -> bool:
        return self.stamp == "reduced"


@dataclass(frozen=True)
class Intervals:
    """Epochs, validation, checkpoints and ends of logs; nanoseconds on the rank's own clock."""

    log: Ints
    rank: Ints
    kind: npt.NDArray[np.str_]
    #: The step that came next.
    step: Ints
    epoch: Ints
    begin: Ints
    end: Ints

    def take(self, chosen: npt.NDArray[Any]) -> Intervals:
        """Some of them, by a mask or in an order."""
        return Intervals(**{name: value[chosen] for name, value in vars(self).items()})


@dataclass(frozen=True)
class Epochs:
    """One entry per completed epoch of a rank. ``part`` tells a further fit's epochs apart."""

    rank: Ints
    part: Ints
    epoch: Ints
    steps: Ints


@dataclass(frozen=True)
class Totals:
    """Per log of the run, over its steps; nothing but zeros for a log without any."""

    rows: Ints
    first_step: Ints
    last_end: Ints
    samples: Ints
    #: Steps whose samples are known.
    counted: Ints


@dataclass(frozen=True)
class Records:
    """A run as the checks see it, and what it can be held against."""

    run: Run
    has_baseline: bool = False
    #: A run of the same job on one rank.
    single: Run | None = None

    @cached_property
    def setup(self) -> Setup:
        return Setup.of(self.run)

    @cached_property
    def generation(self) -> int:
        logs = zip(self.run.logs, self.totals.rows.tolist(), strict=True)
        with_steps = [log.generation for log, rows in logs if rows]
        return max(with_steps or [log.generation for log in self.run.logs])

    @cached_property
    def logs(self) -> dict[int, Log]:
        """The generation's logs, by their index in ``Run.logs``, later parts later."""
        own = [(i, log) for i, log in enumerate(self.run.logs) if log.generation == self.generation]
        return dict(sorted(own, key=lambda pair: (pair[1].rank, pair[1].part)))

    @cached_property
    def last_log(self) -> dict[int, Log]:
        """Per rank, its last log."""
        return {log.rank: log for log in self.logs.values()}

    @cached_property
    def ranks(self) -> list[int]:
        return sorted(self.last_log)

    @cached_property
    def intervals(self) -> Intervals:
        table = self.run.intervals
        table = table.filter(pc.equal(table["generation"], self.generation))
        numbers = {
            name: _numbers(table[name]) for name in ("log", "rank", "step", "epoch", "begin", "end")
        }
        kind = table["kind"].to_numpy(zero_copy_only=False).astype(str)
        return Intervals(kind=kind, **numbers)

    @cached_property
    def totals(self) -> Totals:
        logs = len(self.run.logs)
        found = by_parts(self.run.steps, _totals_of, logs)
        none = np.zeros(logs, np.int64)
        parts = zip(*(found or [(none,) * 5]), strict=True)
        rows, first, last, samples, counted = (np.stack(part) for part in parts)
        return Totals(
            rows.sum(axis=0),
            np.where(rows.any(axis=0), first.min(axis=0), 0),
            last.max(axis=0),
            samples.sum(axis=0),
            counted.sum(axis=0),
        )

    @cached_property
    def epochs(self) -> Epochs:
        """Completed epochs, from the steps at which they ended: lost rows do not shorten them."""
        ends = self.intervals.take(self.intervals.kind == "epoch")
        ends = ends.take((self.totals.rows[ends.log] > 0) & (ends.epoch != NULL))
        # A log that goes on in another file is one of one fit.
        session = np.array(self.run.sessions, np.int64)[ends.log]
        order = np.lexsort((ends.step, session))
        session, step = session[order], ends.step[order]
        begin = self.totals.first_step[session]
        same = np.flatnonzero(session[1:] == session[:-1]) + 1
        begin[same] = step[same - 1]
        part = np.array([log.part for log in self.run.logs], np.int64)
        return Epochs(ends.rank[order], part[session], ends.epoch[order], step - begin)

    @cached_property
    def reductions(self) -> Reductions:
        # A rank that moved to another host has two clocks; its last one counts.
        moved = [
            index
            for index, log in self.logs.items()
            if log.clock_domain != self.last_log[log.rank].clock_domain
        ]
        table = without_logs(of_generation(self.run.steps, self.generation), moved)
        stamp = "reduced" if any(by_parts(table, _has_reduced)) else "end"
        dense = pivot(table, [stamp], self.run.allocate)
        clocks = tuple(self.last_log[rank].clock_domain for rank in dense.ranks)
        return Reductions(dense.ranks, clocks, dense.steps, dense.cells, stamp)

    def reduced_by(self, rank: int) -> Ints:
        """Of one rank (its position): per step, when it had reduced it."""
        return self.reductions.cells.columns(self.reductions.stamp, [rank])[:, 0]

    @cached_property
    def seconds(self) -> float:
        """From the start of the generation's first log to its last end, on the lowest rank's clock."""
        clock = self.last_log[self.ranks[0]].clock_domain
        own = [index for index, log in self.logs.items() if log.clock_domain == clock]
        began = min(self.run.logs[index].anchor for index in own)
        ends = self.intervals.end[np.isin(self.intervals.log, own)]
        ended = max(int(self.totals.last_end[own].max()), int(ends.max(initial=began)))
        return max(0, ended - began) / 1e9


def _numbers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(pc.fill_null(column.cast(pa.int64()), NULL).to_numpy())


def _has_reduced(part: pa.Table) -> bool:
    return bool(part["reduced"].null_count < part.num_rows)


def _totals_of(part: pa.Table, logs: int) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Per log: its rows in this part, the first step, the last end, samples, and how many are known."""
    # Rows come log by log: sums over stretches of one log are far cheaper than over rows.
    log = part["log"].to_numpy()
    starts = np.flatnonzero(np.diff(log, prepend=-1))
    of = log[starts]

    def summed(values: Ints) -> Ints:
        return np.bincount(of, np.add.reduceat(values, starts), logs).astype(np.int64)

    rows = np.bincount(of, np.diff(starts, append=len(log)), logs).astype(np.int64)
    first, last = np.full(logs, LATEST), np.zeros(logs, np.int64)
    np.minimum.at(first, of, np.minimum.reduceat(_numbers(part["step"]), starts))
    np.maximum.at(last, of, np.maximum.reduceat(_numbers(part["end"]), starts))
    samples = part["samples"]
    counted = rows
    if samples.null_count:
        counted = summed(pc.is_valid(samples).cast(pa.int64()).to_numpy())
    return rows, first, last, summed(pc.fill_null(samples, 0).to_numpy()), counted
