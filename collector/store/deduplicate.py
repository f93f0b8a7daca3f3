"""Drop steps that were recorded more than once: by a failed attempt and by the next one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.pivot import ROWS
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import counted
from stallscope.run import Problem


def last_attempts(steps: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Drop steps that a later log of the same rank and generation recorded again; count them by rank."""
    # Each part is compared with the row before it.
    begins = range(0, steps.num_rows, ROWS)
    if all(_ascend(*_key(steps.slice(max(0, begin - 1), ROWS + 1))) for begin in begins):
        return steps, {}
    key = _key(steps)
    order = np.lexsort([np.arange(steps.num_rows), *key])
    ordered = [column[order] for column in key]
    repeated_below = np.ones(max(0, steps.num_rows - 1), bool)
    for column in ordered:
        repeated_below &= column[1:] == column[:-1]
    dropped = order[:-1][repeated_below]
    if not len(dropped):
        return steps, {}
    keep = np.ones(steps.num_rows, bool)
    keep[dropped] = False
    ranks, counts = np.unique(key[1][dropped], return_counts=True)
    return (
        steps.filter(arrow.array(keep)).combine_chunks(),
        dict(zip(ranks.tolist(), counts.tolist(), strict=True)),
    )


def repeat_problems(repeated: Mapping[int, int]) -> list[Problem]:
    """Return a problem per rank with dropped steps."""
    return [
        Problem(
            f"rank {rank}",
            f"more than one attempt recorded {counted(count, 'step')}; the last attempt counts",
        )
        for rank, count in sorted(repeated.items())
    ]


def _key(steps: pa.Table) -> list[Ints]:
    return [arrow.numbers(steps[name]) for name in ("step", "rank", "generation")]


def _ascend(step: Ints, rank: Ints, generation: Ints) -> bool:
    """Whether the rows ascend strictly, as with one log per rank; then no step is recorded twice."""
    ascending = step[1:] > step[:-1]
    for column in (rank, generation):
        ascending = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & ascending)
    return bool(ascending.all())
