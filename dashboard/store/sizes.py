"""What runs and analyses take in memory, near enough to bound it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.recalled import RecalledLedger
from stallscope.arrays.blocks import LocalMatrix
from stallscope.collector.store.loading import RunOnDisk
from stallscope.run import STEPS_SCHEMA, Run

# A log's facts as Python keeps them.
_BYTES_PER_LOG = 8192
# Of a step and rank in the timeline's sums.
_BYTES_PER_CELL = 12
_BYTES_PER_ROW: int = sum(field.type.bit_width for field in STEPS_SCHEMA) // 8


def size_of(value: Run | Analysis) -> int:
    """Bytes of a run's tables, or of all that an analysis holds, its runs and baselines included.

    A run that several analyses hold counts for each of them: what is kept is less than the sum.
    """
    if isinstance(value, Run):
        return _tables_of(value) + _BYTES_PER_LOG * len(value.logs)
    # Views of one array are counted once.
    owners = {id(owner): owner.nbytes for owner in map(_owner, _arrays(value))}
    others = (other for other in (value.baseline, value.single) if other is not None)
    return sum(owners.values()) + _to_come(value) + size_of(value.run) + sum(map(size_of, others))


def _to_come(analysis: Analysis) -> int:
    """What is made of it on demand, like opening a run."""
    ledger = analysis.ledger
    if ledger is None:
        return 0
    per_rank = ledger.to_come if isinstance(ledger, RecalledLedger) else 0
    return per_rank + len(ledger) * len(ledger.ranks) * _BYTES_PER_CELL


def _tables_of(run: Run) -> int:
    if isinstance(run, RunOnDisk):
        # Whether or not they have been read already: they are not asked for again.
        return run.rows * _BYTES_PER_ROW
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
