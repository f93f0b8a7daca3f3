"""What runs and analyses take in memory, near enough to bound it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.run import Run

# A log's facts as Python keeps them.
_BYTES_PER_LOG = 8192


def size_of(value: Run | Analysis) -> int:
    """Bytes of a run's tables, or of all that an analysis holds, its runs and baselines included.

    A run that several analyses hold counts for each of them: what is kept is less than the sum.
    """
    if isinstance(value, Run):
        tables = value.steps.nbytes + value.intervals.nbytes
        return int(tables) + _BYTES_PER_LOG * len(value.logs)
    # Views of one array are counted once.
    owners = {id(owner): owner.nbytes for owner in map(_owner, _arrays(value))}
    others = (other for other in (value.baseline, value.single) if other is not None)
    return sum(owners.values()) + size_of(value.run) + sum(map(size_of, others))


def _arrays(analysis: Analysis) -> Iterator[npt.NDArray[np.generic]]:
    for ledger in (analysis.ledger, analysis.steady):
        if ledger is not None:
            yield from (one for one in vars(ledger).values() if isinstance(one, np.ndarray))


def _owner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array.base if isinstance(array.base, np.ndarray) else array
