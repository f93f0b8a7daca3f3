"""Map how late every rank or host is over the run, in as many cells as a screen can show.

Lateness is the rank's arrival minus the reference rank's: negative where it was earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Block
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Floats, Ints

from ..ledger.ledger import Ledger

#: The most columns and rows that can be distinguished.
MOST_COLUMNS = 400
MOST_ROWS = 200
# Many rows get fewer columns, so that a map stays below a megabyte.
_MOST_CELLS = 36_000
# Up to this many times the desired number of rows, hosts do not share a row.
_TOLERATED = 1.5
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


# -- Compare hosts: how late their ranks are, and how often the critical rank is one of them ------


@dataclass(frozen=True)
class HostLateness:
    """One host's ranks over the steady steps."""

    host: str
    ranks: tuple[int, ...]
    #: Delay against the reference rank, ms: the mean of its ranks; negative where they are earlier.
    late_ms: Mean
    #: How often it has the critical rank, of the steps that its ranks measured, and how often it would
    #: by chance.
    critical_share: float
    chance_share: float


def host_lateness(ledger: Ledger, hosts: Sequence[str]) -> tuple[HostLateness, ...]:
    """Summarise every host, in the order of their lowest ranks.

    Args:
        ledger: steady steps.
        hosts: per rank of the ledger, its host.
    """
    reference = ledger.last - ledger.imbalance
    on: dict[str, list[int]] = {}
    for position, host in enumerate(hosts):
        on.setdefault(host, []).append(position)
    return tuple(
        HostLateness(
            host,
            tuple(ledger.ranks[position] for position in positions),
            _late(ledger, positions, reference),
            _critical_share(ledger, positions),
            len(positions) / len(ledger.ranks),
        )
        for host, positions in on.items()
    )


def _critical_share(ledger: Ledger, positions: list[int]) -> float:
    """Return how often one of the host's ranks was last, of the steps that they measured."""
    measured = ledger.measured.T[positions]
    # A rank whose log was cut early must not hide the steps of all others.
    known = measured.all(axis=0) if measured.all(axis=0).any() else measured.any(axis=0)
    return float(np.isin(ledger.critical[known], positions).mean()) if known.any() else 0.0


def _late(ledger: Ledger, positions: list[int], reference: np.ndarray) -> Mean:
    """Average over the steps that any of the host's ranks measured."""
    measured = ledger.measured.T[positions]
    late = np.where(measured, ledger.arrival.T[positions] - reference, 0).sum(axis=0)
    known = measured.sum(axis=0)
    return mean_with_interval(late[known > 0] / known[known > 0]).scaled(1e-6)
