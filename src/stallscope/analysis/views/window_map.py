"""Map the step time of every rank over the run, by the windows of its lines.

Ranks may print at different steps. A cell is the mean over its steps, which may be in several windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.run import Run

from ..ledger.ledger import Ledger
from ..ledger.windows import RankWindows
from ..result import Analysis

#: The most rows that can be distinguished.
MOST_ROWS = 128
_MOST_COLUMNS = 200
# Many rows get fewer columns, so that one chart does not make a report much larger.
_MOST_CELLS = 12_800


class WindowMap(NamedTuple):
    """Rows of ranks × columns of steps; milliseconds per step, NaN where no rank of the row printed."""

    #: The steps at which columns start, and one after the last step.
    edges: Ints
    #: The mean of each row's slowest rank.
    mean: Floats
    #: The time of each cell's longest window, the first step of that, and the position of its rank.
    most: Floats
    most_step: Ints
    most_rank: Ints


def window_map(
    ranks: Sequence[RankWindows], rows: Sequence[Sequence[int]], first_step: int
) -> WindowMap:
    """Compute the step time of rows of ranks in columns of steps.

    Args:
        ranks: the windows of each rank.
        rows: positions of ranks, row by row.
        first_step: where columns start; windows that begin before it are left out.
    """
    steady = [_from(windows, first_step) for windows in ranks]
    edges = _edges(steady, min(_MOST_COLUMNS, max(_MOST_CELLS // len(rows), 1)))
    cells = [_cells(windows, edges) for windows in steady]
    mean, most, step = (np.array(part) for part in zip(*cells, strict=True))
    longest = np.array([_longest(most, row) for row in rows])
    columns = np.arange(len(edges) - 1)
    return WindowMap(
        edges,
        np.array([np.fmax.reduce(mean[list(row)]) for row in rows]),
        most[longest, columns],
        step[longest, columns],
        longest,
    )


def _from(windows: RankWindows, first_step: int) -> RankWindows:
    """Return the windows that begin at a step or later, in the order of their steps."""
    order = np.argsort(windows.step, kind="stable")
    return windows.chosen(order[windows.step[order] >= first_step])


def _edges(ranks: Sequence[RankWindows], most: int) -> Ints:
    """Choose edges among the starts of windows on the rank with most windows; end with the last step."""
    starts = np.unique(max(ranks, key=len).step)
    chosen = np.unique(np.linspace(0, len(starts), min(most, len(starts)) + 1).astype(np.int64))
    known = [windows for windows in ranks if len(windows)]
    begin = min(int(windows.step[0]) for windows in known)
    end = max(int((windows.step + windows.steps).max()) for windows in known)
    return np.array([begin, *starts[chosen[1:-1]], end], np.int64)


def _cells(windows: RankWindows, edges: Ints) -> tuple[Floats, Floats, Ints]:
    """Return the mean of each cell, its longest window, and the first step of that window."""
    columns = len(edges) - 1
    if not len(windows):
        return np.full(columns, np.nan), np.full(columns, np.nan), np.zeros(columns, np.int64)
    begin, end = windows.step, windows.step + windows.steps
    first, last = np.searchsorted(end, edges[:-1], "right"), np.searchsorted(begin, edges[1:])
    known = _up_to(begin, end, np.ones(len(begin)), edges)
    total = _up_to(begin, end, windows.ms, edges)
    mean = np.divide(total, known, out=np.full(columns, np.nan), where=known > 0)
    longest = [
        start + int(windows.ms[start:stop].argmax()) if stop > start else 0
        for start, stop in zip(first.tolist(), last.tolist(), strict=True)
    ]
    return mean, np.where(last > first, windows.ms[longest], np.nan), begin[longest]


def _up_to(begin: Ints, end: Ints, per_step: Floats, edges: Ints) -> Floats:
    """Add up a figure per step of the windows over the steps of each column."""
    at, change = np.append(begin, end), np.append(per_step, -per_step)
    order = np.argsort(at, kind="stable")
    level = np.cumsum(change[order])[:-1]
    total = np.append(0.0, np.cumsum(level * np.diff(at[order])))
    return np.diff(np.interp(edges, at[order], total))


def _longest(most: Floats, row: Sequence[int]) -> Ints:
    """Return the rank of a row that has each cell's longest window."""
    ranks = np.asarray(row)
    return np.asarray(ranks[np.nan_to_num(most[ranks], nan=-np.inf).argmax(axis=0)])


# -- Compute the wall times of a ledger's steps, by the clock of its first rank -------------------


def reduced_at(run: Run, ledger: Ledger, generation: int | None = None) -> Ints | None:
    """Return the wall time at which each step was reduced, nanoseconds since 1970 in UTC.

    None without a wall clock, or with several unrelated ones.

    Args:
        run: the run.
        ledger: of steps of the run.
        generation: the generation of the ledger; all by default.
    """
    rank = ledger.ranks[0]
    logs = [
        log
        for log in run.logs
        if log.rank == rank
        and log.wall_minus_monotonic
        and (generation is None or log.generation == generation)
    ]
    if not logs or len({log.clock_domain for log in logs}) > 1:
        return None
    logs.sort(key=lambda log: log.anchor)
    index = np.searchsorted([log.anchor for log in logs], ledger.reduced, "right") - 1
    offset = np.array([log.wall_minus_monotonic for log in logs], np.int64)[np.maximum(index, 0)]
    return np.asarray(ledger.reduced + offset)


def steady_wall(analysis: Analysis) -> tuple[int, int] | None:
    """Return the start and the end of the steady steps, nanoseconds since 1970; None if unknown."""
    ledger = analysis.steady
    if ledger is None or not ledger.ranks or not len(ledger):
        return None
    walls = reduced_at(analysis.run, ledger)
    return None if walls is None else (int(walls[0]) - int(ledger.total[0]), int(walls[-1]))
