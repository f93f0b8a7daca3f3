"""Ranks side by side: the table of steps as arrays of step × rank, on one clock."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.run import Run

from .clocks import NULL, Clocks, align_clocks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_STAMPS = ("begin", "data", "ready", "reduced", "end")


@dataclass(frozen=True)
class Intervals:
    """Validation and checkpoints of every rank: one entry each, on the rank's aligned clock."""

    kind: npt.NDArray[np.str_]
    rank_index: Ints
    #: The step that came next.
    step: Ints
    begin: Ints
    end: Ints


@dataclass(frozen=True)
class AlignedSteps:
    """One generation of a run: S steps × R ranks, int64 nanoseconds on one clock, NULL where missing.

    The arrays lie in memory rank by rank, as logs do.
    """

    generation: int
    steps: Ints
    #: Per step, -1 where the recorder did not know.
    epochs: Ints
    ranks: tuple[int, ...]
    hosts: tuple[str, ...]
    begin: Ints
    data: Ints
    ready: Ints
    reduced: Ints
    end: Ints
    #: Samples that a rank worked through, S × R; NULL where not known.
    samples: Ints
    #: S × R: whether the rank has all five stamps.
    measured: Bools
    #: Whether a new training session began with this step (a process, or a further fit).
    session_start: Bools
    intervals: Intervals
    clocks: Clocks


def align(run: Run, generation: int) -> AlignedSteps:
    """One generation's steps, with the hosts' clocks brought together."""
    table = run.steps
    own = table["generation"].to_numpy() == generation
    if not own.all():
        table = table.filter(own)
    steps, row = _positions(table["step"].to_numpy())
    ranks, rank = _positions(table["rank"].to_numpy().astype(np.int64))
    # Rank by rank: the table has the rows in this order, and writing in order is fast.
    position = rank * len(steps) + row

    def dense(name: str) -> Ints:
        column = table[name]
        if column.null_count:
            column = column.cast(pa.int64()).fill_null(NULL)
        array = np.empty(len(ranks) * len(steps), np.int64)
        if len(position) < len(array):
            array.fill(NULL)
        array[position] = column.to_numpy()
        return array.reshape(len(ranks), len(steps)).T

    last_log = {log.rank: log for log in run.logs if log.generation == generation}
    logs = [last_log[int(r)] for r in ranks]
    # Copying waits for memory, and does so without Python.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        stamps = dict(zip(_STAMPS, pool.map(dense, _STAMPS), strict=True))
    measured = np.ones((len(ranks), len(steps)), bool).T
    for array in stamps.values():
        measured &= array != NULL
    intervals = _intervals(run, generation, ranks)
    domains = [log.clock_domain for log in logs]
    clocks = align_clocks(stamps["ready"], stamps["reduced"], domains)
    if len(clocks.names) > 1:
        stamps, intervals = _on_one_clock(stamps, intervals, clocks, steps)
    for jump in clocks.jumps:
        # Within this step the clock was set: its stages hold the jump.
        measured[jump.at, clocks.of_rank == clocks.names.index(jump.clock)] = False
    return AlignedSteps(
        generation=generation,
        steps=steps,
        epochs=_epochs(table["epoch"], row, len(steps)),
        ranks=tuple(int(r) for r in ranks),
        hosts=tuple(log.host for log in logs),
        **stamps,
        samples=dense("samples"),
        measured=measured,
        session_start=_session_starts(_sessions(run, table), rank, row, len(steps)),
        intervals=intervals,
        clocks=clocks,
    )


def _positions(number: Ints) -> tuple[Ints, Ints]:
    """The different numbers, ascending, and the position of each row's number among them."""
    if not len(number):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first, last = int(number.min()), int(number.max())
    if last - first < 2 * len(number) + 1000:
        # Counting is ten times faster than sorting; gaps in the numbers may cost it some memory.
        present = np.zeros(last - first + 1, bool)
        present[number - first] = True
        position = np.cumsum(present) - 1
        return np.flatnonzero(present) + first, position[number - first]
    numbers, row = np.unique(number, return_inverse=True)
    return numbers, row


def _epochs(epoch: pa.ChunkedArray, row: Ints, steps: int) -> Ints:
    """Per step the epoch that a rank put it in, the latest where they differ; -1 where none did."""
    epochs = np.full(steps, -1, np.int64)
    known = epoch.fill_null(-1).to_numpy() if epoch.null_count else epoch.to_numpy()
    np.maximum.at(epochs, row, known.astype(np.int64, copy=False))
    return epochs


def _sessions(run: Run, table: pa.Table) -> Ints:
    """Per row the training session that it was recorded in."""
    log: Ints = table["log"].to_numpy()
    if not any(one.continues for one in run.logs):
        return log
    return np.asarray(np.array(run.sessions, np.int64)[log])


def _session_starts(session: Ints, rank: Ints, row: Ints, steps: int) -> Bools:
    """Per step: whether it is the first of all, or a rank's first one in another session."""
    starts = np.zeros(steps, bool)
    starts[:1] = True
    changes = np.flatnonzero((session[1:] != session[:-1]) & (rank[1:] == rank[:-1])) + 1
    # Within a rank's rows a new session begins here; rows of one session follow each other.
    starts[row[changes]] = True
    return starts


def _intervals(run: Run, generation: int, ranks: Ints) -> Intervals:
    table = run.intervals.filter(run.intervals.column("generation").to_numpy() == generation)
    kind = table["kind"].to_numpy(zero_copy_only=False).astype(str)
    rank = table["rank"].to_numpy().astype(np.int64)
    wanted = np.isin(kind, ("validation", "checkpoint")) & np.isin(rank, ranks)
    return Intervals(
        kind=kind[wanted],
        rank_index=np.searchsorted(ranks, rank[wanted]),
        step=table["step"].to_numpy()[wanted],
        begin=table["begin"].to_numpy()[wanted],
        end=table["end"].to_numpy()[wanted],
    )


def _on_one_clock(
    stamps: dict[str, Ints], intervals: Intervals, clocks: Clocks, steps: Ints
) -> tuple[dict[str, Ints], Intervals]:
    for array in stamps.values():
        for c in range(len(clocks.names)):
            for rank in np.flatnonzero(clocks.of_rank == c):
                column = array[:, rank]
                np.subtract(column, clocks.offset[:, c], out=column, where=column != NULL)
    at = np.clip(np.searchsorted(steps, intervals.step), 0, max(0, len(steps) - 1))
    known = len(steps) > 0
    shift = clocks.offset[at, clocks.of_rank[intervals.rank_index]] if known else 0
    shifted = Intervals(
        intervals.kind,
        intervals.rank_index,
        intervals.step,
        intervals.begin - shift,
        intervals.end - shift,
    )
    return stamps, shifted


def hosts_in_order(hosts: Sequence[str]) -> list[str]:
    """The different hosts, each once, in the order of their lowest ranks."""
    return list(dict.fromkeys(hosts))
