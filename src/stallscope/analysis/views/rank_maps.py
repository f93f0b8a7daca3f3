"""Map ranks over the run, in as many cells as a screen can show: how late each is, and its windows.

Lateness is the rank's arrival minus the reference rank's: negative where it was earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Block
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats, Ints
from stallscope.run import Run, places_of

from ..ledger.ledger import Ledger
from ..ledger.ledger_figures import RankSummary
from ..ledger.windows import RankWindows
from ..result import Analysis, GenerationLedger

#: The most columns and rows that can be distinguished.
MOST_COLUMNS = 400
MOST_ROWS = 200
# Many rows get fewer columns, so that a map stays below a megabyte.
_MOST_CELLS = 36_000
# Up to this many times the desired number of rows, hosts do not share a row.
_TOLERATED = 1.5
#: The same of a map of windows: one chart does not make a report much larger.
MOST_WINDOW_ROWS = 128
_MOST_WINDOW_COLUMNS = 200
_MOST_WINDOW_CELLS = 12_800
# More ranks with their own rows would leave no space for the others.
_MOST_ALONE = 40


@dataclass(frozen=True)
class LatenessMap:
    """Rows of ranks × columns of steps; milliseconds, NaN if no rank of the row was measured."""

    #: Positions of the ranks in the ledger, row by row.
    rows: tuple[tuple[int, ...], ...]
    #: Positions of the steps at which columns start, and one after the last step.
    edges: Ints
    mean: Floats
    #: The mean of the row's latest rank.
    latest: Floats
    #: The lateness of each cell's latest step, the position of that step, and that of its rank.
    most: Floats
    most_step: Ints
    most_rank: Ints


def lateness_map(ledger: Ledger, rows: Sequence[Sequence[int]]) -> LatenessMap:
    """Compute the lateness of rows of ranks, averaged over the steps of each column."""
    n = len(ledger)
    columns = min(n, MOST_COLUMNS, max(_MOST_CELLS // max(len(rows), 1), 1))
    edges = np.unique(np.linspace(0, n, columns + 1).astype(np.int64))
    reference = ledger.of("arrival", ledger.reference)
    parts = ledger.cells.by_ranks(_of_ranks, reference, edges)
    of_ranks = [np.concatenate(part) for part in zip(*parts, strict=True)]
    cells = [_row(*(part[list(row)] for part in of_ranks)) for row in rows]
    mean, latest, most, step, position = (np.array(part) for part in zip(*cells, strict=True))
    rank = np.array([np.asarray(row)[at] for row, at in zip(rows, position, strict=True)])
    return LatenessMap(tuple(map(tuple, rows)), edges, mean, latest, most, step, rank)


def rows_of_ranks(
    hosts: Sequence[str], alone: Collection[int] = (), most: int = MOST_ROWS
) -> list[list[int]]:
    """Group ranks (positions) into rows: host by host, neighbours in one row if there are too many.

    Args:
        hosts: per rank, its host.
        alone: positions of ranks that get their own rows, because an average would hide them.
        most: the desired number of rows.
    """
    first = {host: hosts.index(host) for host in set(hosts)}
    order = sorted(range(len(hosts)), key=lambda rank: (first[hosts[rank]], rank))
    together = max(1, -(-len(hosts) // most))
    per_host = [hosts.count(host) for host in first]
    split_hosts = sum(-(-count // together) for count in per_host) <= _TOLERATED * most
    single = frozenset(alone) if len(alone) <= _MOST_ALONE else frozenset()
    rows: list[list[int]] = []
    for rank in order:
        last = rows[-1] if rows else None
        joins = (
            last is not None
            and len(last) < together
            and not {rank, last[-1]} & single
            and not (split_hosts and hosts[rank] != hosts[last[-1]])
        )
        if last is not None and joins:
            last.append(rank)
        else:
            rows.append([rank])
    return rows


def _of_ranks(block: Block, reference: Ints, edges: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Kernel: per rank and column, count steps, add up lateness, and find the latest step."""
    # Rank by rank, in the order of memory.
    late, measured = block["arrival"].T - reference, block["measured"].T
    begin, counts = edges[:-1], np.diff(edges)
    known = np.add.reduceat(measured.astype(np.int64), begin, axis=1)
    total = np.add.reduceat(np.where(measured, late, 0), begin, axis=1)
    late = np.where(measured, late, NULL)
    most = np.maximum.reduceat(late, begin, axis=1)
    # The first of a column's equally late steps.
    as_late = late == np.repeat(most, counts, axis=1)
    steps = np.where(as_late, np.arange(late.shape[1]), LATEST)
    return known, total, most, np.minimum.reduceat(steps, begin, axis=1)


def _row(
    known: Ints, total: Ints, most: Ints, step: Ints
) -> tuple[Floats, Floats, Floats, Ints, Ints]:
    """Join the cells of a row's ranks: mean, mean of the latest rank, and maximum with its position."""
    of_ranks = np.where(known > 0, total / np.maximum(known, 1) / 1e6, -np.inf).max(axis=0)
    known, total, latest = known.sum(axis=0), total.sum(axis=0), most.max(axis=0)
    step = np.where(most == latest, step, LATEST)
    rank = step.argmin(axis=0)
    nothing = known == 0
    mean = np.where(nothing, np.nan, total / np.maximum(known, 1) / 1e6)
    latest_rank = np.where(nothing, np.nan, of_ranks)
    return mean, latest_rank, np.where(nothing, np.nan, latest / 1e6), step.min(axis=0), rank


# -- Compare hosts, or places in the mesh: how late their ranks are, and how often one is the last ---


@dataclass(frozen=True)
class GroupLateness:
    """The ranks of one host or place over the steady steps."""

    name: str
    ranks: tuple[int, ...]
    #: Delay against the reference rank, ms: the mean of its ranks; negative where they are earlier.
    late_ms: Mean
    #: How often it has the critical rank, of the steps that its ranks measured, and how often it would
    #: by chance.
    critical_share: float
    chance_share: float


def group_lateness(ledger: Ledger, groups: Sequence[str]) -> tuple[GroupLateness, ...]:
    """Summarise every group of ranks, in the order of their lowest ranks.

    Args:
        ledger: steady steps.
        groups: per rank of the ledger, its host, or its place in a dimension of the mesh.
    """
    reference = ledger.last - ledger.imbalance
    of_groups: dict[str, list[int]] = {}
    for position, name in enumerate(groups):
        of_groups.setdefault(name, []).append(position)
    return tuple(
        GroupLateness(
            name,
            tuple(ledger.ranks[position] for position in positions),
            _late(ledger, positions, reference),
            _critical_share(ledger, positions),
            len(positions) / len(ledger.ranks),
        )
        for name, positions in of_groups.items()
    )


def places_in_mesh(analysis: Analysis) -> dict[str, dict[str, list[RankSummary]]]:
    """Return the ranks at each place (``dp 1``) by dimension of the job's mesh; empty without one."""
    logs = [log for _, log in sorted(analysis.run.last_logs.items())]
    ranks = {rank.rank: rank for rank in analysis.ranks}
    mesh: dict[str, dict[str, list[RankSummary]]] = {}
    for name, places in places_of(logs).items():
        for log, place in zip(logs, places, strict=True):
            if log.rank in ranks:
                mesh.setdefault(name, {}).setdefault(place, []).append(ranks[log.rank])
    return mesh


def mesh_arrangements(analysis: Analysis) -> dict[str, tuple[GenerationLedger, ...]]:
    """Return the ledgers with ranks' places (``dp 1``) for hosts, by dimension of the job's mesh.

    Dimensions in which some rank has no place, or all have the same one, arrange nothing.
    """
    ledgers = analysis.generation_ledgers
    of_ledgers = []
    for ledger in ledgers:
        logs = analysis.run.last_logs_of(ledger.number)
        known = all(rank in logs for rank in ledger.ledger.ranks)
        of_ledgers.append(places_of([logs[rank] for rank in ledger.ledger.ranks]) if known else {})
    return {
        name: tuple(
            replace(ledger, hosts=tuple(places[name]))
            for ledger, places in zip(ledgers, of_ledgers, strict=True)
        )
        for name in (of_ledgers[0] if of_ledgers else ())
        if all(name in places for places in of_ledgers)
        and len({place for places in of_ledgers for place in places[name]}) > 1
    }


def _critical_share(ledger: Ledger, positions: list[int]) -> float:
    """Return how often one of the group's ranks was last, of the steps that they measured."""
    measured = ledger.measured.T[positions]
    # A rank whose log was cut early must not hide the steps of all others.
    known = measured.all(axis=0) if measured.all(axis=0).any() else measured.any(axis=0)
    return float(np.isin(ledger.critical[known], positions).mean()) if known.any() else 0.0


def _late(ledger: Ledger, positions: list[int], reference: np.ndarray) -> Mean:
    """Average over the steps that any of the group's ranks measured."""
    measured = ledger.measured.T[positions]
    late = np.where(measured, ledger.arrival.T[positions] - reference, 0).sum(axis=0)
    known = measured.sum(axis=0)
    return mean_with_interval(late[known > 0] / known[known > 0]).scaled(1e-6)


# -- The step time of every rank, by the windows of its lines --------------------------------------
#
# Ranks may print at different steps. A cell is the mean over its steps, which may be in several windows.


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
    edges = _edges(steady, min(_MOST_WINDOW_COLUMNS, max(_MOST_WINDOW_CELLS // len(rows), 1)))
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
