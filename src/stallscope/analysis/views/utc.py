"""Compute the wall times of a ledger's steps, by the clock of its first rank."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.run import Run

from ..ledger.ledger import Ledger
from ..result import Analysis


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
