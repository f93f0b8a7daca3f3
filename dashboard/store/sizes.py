"""Estimate how much memory runs and analyses take."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.cached import BYTES_PER_RANK, CachedLedger
from stallscope.arrays.local_matrix import LocalMatrix
from stallscope.collector.store.loading import RunOnDisk
from stallscope.run import Run

# The facts of a log, as Python objects.
_BYTES_PER_LOG = 8192
# A step of one rank in the timeline's sums.
_BYTES_PER_CELL = 12


def size_of(value: Run | Analysis) -> int:
    """Return the bytes of a run's tables, or of an analysis with its runs and baselines.

    A run that several analyses share counts for each of them, so sums are upper bounds.
    """
    if isinstance(value, Run):
        return _tables_of(value) + _BYTES_PER_LOG * len(value.logs)
    # Views of one array are counted once.
    owners = {id(owner): owner.nbytes for owner in map(_owner, _arrays(value))}
    others = (other for other in (value.baseline, value.single) if other is not None)
    return sum(owners.values()) + _on_demand(value) + size_of(value.run) + sum(map(size_of, others))


def _on_demand(analysis: Analysis) -> int:
    """Return the bytes of arrays that pages compute on demand."""
    ledger = analysis.ledger
    if ledger is None:
        return 0
    if len(analysis.generations) > 1:
        return analysis.run.rows * (BYTES_PER_RANK + _BYTES_PER_CELL)
    per_rank = ledger.pending_bytes if isinstance(ledger, CachedLedger) else 0
    return per_rank + len(ledger) * len(ledger.ranks) * _BYTES_PER_CELL


def _tables_of(run: Run) -> int:
    if isinstance(run, RunOnDisk):
        # They are freed after the analysis.
        return 0
    series = sum(one.wall_ns.nbytes + one.value.nbytes for one in run.series)
    return int(run.steps.nbytes + run.intervals.nbytes) + series


def _arrays(analysis: Analysis) -> Iterator[npt.NDArray[np.generic]]:
    for ledger in (analysis.ledger, analysis.steady):
        if ledger is not None:
            yield from (one for one in vars(ledger).values() if isinstance(one, np.ndarray))
            cells = vars(ledger).get("cells")
            yield from cells.arrays if isinstance(cells, LocalMatrix) else ()


def _owner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array.base if isinstance(array.base, np.ndarray) else array
