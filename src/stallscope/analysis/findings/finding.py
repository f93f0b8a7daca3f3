"""A finding about a run, and the tables that checks share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import LATEST, NULL, Matrix
from stallscope.arrays.pivot import by_parts, of_generation, pivot, without_logs
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Log, Run

from ..gains.what_if import Advice
from ..setup import Setup

Severity = Literal["info", "warning", "error"]


@dataclass(frozen=True)
class Finding:
    """A problem or notable fact of a run, with evidence and advice."""

    code: str
    severity: Severity
    title: str
    evidence: str
    advice: tuple[Advice, ...]


# -- Tables that several checks share: the last generation's steps, epochs and intervals ----------
#
# Checks use the last generation with steps only, like the ledger: it shows every lasting fault, and
# ranks of different generations are not comparable.


@dataclass(frozen=True)
class ReductionTimes:
    """The time at which each rank had reduced each step."""

    ranks: tuple[int, ...]
    #: The name of each rank's clock.
    clocks: tuple[str, ...]
    steps: Ints
    #: S steps × R ranks, nanoseconds on the rank's own clock, NULL if not measured.
    cells: Matrix
    #: The column of ``cells``: ``reduced``, or ``end`` if no rank has timestamps within steps.
    column: str

    @property
    def measured(self) -> bool:
        """Whether completions were measured, and are not only the ends of steps."""
        return self.column == "reduced"


@dataclass(frozen=True)
class LogIntervals:
    """Epochs, validation, checkpoints and ends of logs; nanoseconds on the rank's own clock."""

    log: Ints
    rank: Ints
    kind: npt.NDArray[np.str_]
    #: The step that came next.
    step: Ints
    epoch: Ints
    begin: Ints
    end: Ints

    def take(self, chosen: npt.NDArray[Any]) -> LogIntervals:
        """Select entries by a mask, or reorder them by indices."""
        return LogIntervals(**{name: value[chosen] for name, value in vars(self).items()})


@dataclass(frozen=True)
class CompletedEpochs:
    """Completed epochs, one entry for each epoch and rank; ``part`` numbers the fits."""

    rank: Ints
    part: Ints
    epoch: Ints
    steps: Ints


@dataclass(frozen=True)
class Totals:
    """Totals over the steps of each log; zeros for a log without steps."""

    rows: Ints
    first_step: Ints
    last_step: Ints
    last_end: Ints
    samples: Ints
    #: Steps with a known number of samples, and the fewest and most samples of one of them.
    counted: Ints
    fewest_samples: Ints
    most_samples: Ints


@dataclass(frozen=True)
class Records:
    """A run and the runs that it is compared with, as tables for the checks."""

    run: Run
    has_baseline: bool = False
    #: A run of the same job on one rank.
    single: Run | None = None
    #: Whether an input probe has measured what faster input saves.
    has_probe: bool = False

    @cached_property
    def setup(self) -> Setup:
        return Setup.of(self.run)

    @cached_property
    def generation(self) -> int:
        """Return the last generation with steps, or else the last one."""
        logs = zip(self.run.logs, self.totals.rows.tolist(), strict=True)
        with_steps = [log.generation for log, rows in logs if rows]
        return max(with_steps or [log.generation for log in self.run.logs])

    @cached_property
    def logs(self) -> dict[int, Log]:
        """Return the generation's logs by their index in ``Run.logs``, sorted by rank and part."""
        logs = [
            (i, log) for i, log in enumerate(self.run.logs) if log.generation == self.generation
        ]
        return dict(sorted(logs, key=lambda pair: (pair[1].rank, pair[1].part)))

    @cached_property
    def last_log(self) -> dict[int, Log]:
        """Return each rank's last log."""
        return {log.rank: log for log in self.logs.values()}

    @cached_property
    def ranks(self) -> list[int]:
        return sorted(self.last_log)

    @cached_property
    def intervals(self) -> LogIntervals:
        table = self.run.intervals
        table = table.filter(arrow.equal(table["generation"], self.generation))
        names = ("log", "rank", "step", "epoch", "begin", "end")
        kind = arrow.words(table["kind"])
        return LogIntervals(kind=kind, **{name: _numbers(table[name]) for name in names})

    @cached_property
    def totals(self) -> Totals:
        logs = len(self.run.logs)
        columns = ("log", "step", "end", "samples")
        parts = by_parts(self.run.steps, columns, _totals_of, logs)
        parts = parts or [np.zeros((8, logs), np.int64)]
        rows, first, last, end, samples, counted, fewest, most = np.stack(parts, axis=1)
        return Totals(
            rows.sum(axis=0),
            np.where(rows.any(axis=0), first.min(axis=0), 0),
            last.max(axis=0),
            end.max(axis=0),
            samples.sum(axis=0),
            counted.sum(axis=0),
            fewest.min(axis=0),
            most.max(axis=0),
        )

    @cached_property
    def sessions(self) -> Ints:
        """Return per log the index of its session's first log."""
        return np.array(self.run.sessions, np.int64)

    @cached_property
    def starts(self) -> tuple[Ints, Bools]:
        """Return per log its session's first step, and whether it is known.

        Rows may be lost, so the log's header counts. Without it, a session starts with its first row,
        unless a peer's starts earlier.
        """
        logs, first = self.run.logs, self.totals.first_step
        earliest: dict[tuple[int, int], int] = {}
        for log, step, rows in zip(logs, first.tolist(), self.totals.rows.tolist(), strict=True):
            if rows:
                fit = log.generation, log.part
                earliest[fit] = min(step, earliest.get(fit, step))
        starts, known = first.copy(), np.zeros(len(logs), bool)
        for index, log in enumerate(logs):
            header = log.facts.get("first_step")
            if isinstance(header, int) and 0 <= header <= first[index]:
                starts[index], known[index] = header, True
            else:
                known[index] = first[index] == earliest.get((log.generation, log.part))
            # A log that continues a file which is not here starts in the middle of an epoch.
            known[index] &= not log.continues
        return starts[self.sessions], known[self.sessions]

    @cached_property
    def ranks_with_holes(self) -> set[int]:
        """Return the ranks that lost rows before their last one: they may also have lost other lines."""
        totals, sessions, (starts, known) = self.totals, self.sessions, self.starts
        rows = np.bincount(sessions, totals.rows)[sessions]
        last = np.zeros(len(sessions), np.int64)
        np.maximum.at(last, sessions, totals.last_step)
        whole = (rows == 0) | (known & (rows > last[sessions] - starts))
        sampled = np.array([bool(log.facts.get("sampling")) for log in self.run.logs])
        return {
            log.rank
            for index, log in self.logs.items()
            if log.torn or not (whole[index] or (sampled[index] and known[index]))
        }

    @cached_property
    def epochs(self) -> CompletedEpochs:
        """Compute completed epochs from the steps at which they ended; lost rows do not shorten them.

        Epochs of which the first step is unknown are left out.
        """
        ends = self.intervals.take(self.intervals.kind == "epoch")
        ends = ends.take((self.totals.rows[ends.log] > 0) & (ends.epoch != NULL))
        # A log that continues another file belongs to the same fit.
        session = self.sessions[ends.log]
        order = np.lexsort((ends.step, session))
        session, step, epoch = session[order], ends.step[order], ends.epoch[order]
        part = np.array([log.part for log in self.run.logs], np.int64)[session]
        starts, known = self.starts
        start, whole = starts[session], known[session]
        same = np.flatnonzero(session[1:] == session[:-1]) + 1
        start[same] = step[same - 1]
        # The end of the epoch before may be lost.
        whole[same] = epoch[same] == epoch[same - 1] + 1
        first = np.ones(len(session), bool)
        first[same] = False
        for fit in np.unique(part):
            whole[first & (part == fit)] &= epoch[first & (part == fit)] == epoch[part == fit].min()
        entries = ends.rank[order], part, epoch, step - start
        return CompletedEpochs(*(values[whole] for values in entries))

    @cached_property
    def reductions(self) -> ReductionTimes:
        """Return when each rank had reduced each step."""
        # A rank that moved to another host has two clocks; its last one counts.
        moved = [
            index
            for index, log in self.logs.items()
            if log.clock_domain != self.last_log[log.rank].clock_domain
        ]
        table = without_logs(of_generation(self.run.steps, self.generation), moved)
        column = "reduced" if any(by_parts(table, ("reduced",), _has_reduced)) else "end"
        dense = pivot(table, [column], self.run.allocate)
        clocks = tuple(self.last_log[rank].clock_domain for rank in dense.ranks)
        return ReductionTimes(dense.ranks, clocks, dense.steps, dense.cells, column)

    def completions_of(self, rank: int) -> Ints:
        """Return when one rank (given by position) had reduced each step."""
        return self.reductions.cells.columns(self.reductions.column, [rank])[:, 0]

    @cached_property
    def seconds(self) -> float:
        """Return the seconds from the generation's first log to its end, on the lowest rank's clock."""
        clock = self.last_log[self.ranks[0]].clock_domain
        indices = [index for index, log in self.logs.items() if log.clock_domain == clock]
        began = min(self.run.logs[index].anchor for index in indices)
        ends = self.intervals.end[np.isin(self.intervals.log, indices)]
        ended = max(int(self.totals.last_end[indices].max()), int(ends.max(initial=began)))
        return max(0, ended - began) / 1e9


def _numbers(column: pa.ChunkedArray) -> Ints:
    return np.asarray(arrow.numbers(arrow.filled(column.cast(pa.int64()), NULL)))


def _has_reduced(part: pa.Table) -> bool:
    return bool(part["reduced"].null_count < part.num_rows)


def _totals_of(part: pa.Table, logs: int) -> Ints:
    """Return the entries of ``Totals`` per log of this part."""
    # Rows are ordered by log: summing over each log's rows first is much cheaper.
    log = arrow.numbers(part["log"])
    starts = np.append(0, np.flatnonzero(log[1:] != log[:-1]) + 1)
    of = log[starts]

    def summed(values: Ints) -> Ints:
        return np.bincount(of, np.add.reduceat(values, starts), logs).astype(np.int64)

    rows = np.bincount(of, np.diff(starts, append=len(log)), logs).astype(np.int64)

    def extreme(join: np.ufunc, values: Ints, without: int) -> Ints:
        extremes = np.full(logs, without)
        join.at(extremes, of, join.reduceat(values, starts))
        return extremes

    step, samples = _numbers(part["step"]), part["samples"]
    counted = (
        summed(arrow.numbers(pc.is_valid(samples).cast(pa.int64()))) if samples.null_count else rows
    )
    return np.stack(
        [
            rows,
            extreme(np.minimum, step, LATEST),
            extreme(np.maximum, step, 0),
            extreme(np.maximum, _numbers(part["end"]), 0),
            summed(arrow.numbers(arrow.filled(samples, 0))),
            counted,
            extreme(np.minimum, arrow.numbers(arrow.filled(samples, LATEST)), LATEST),
            extreme(np.maximum, arrow.numbers(arrow.filled(samples, 0)), 0),
        ]
    )
