"""Steps that were recorded more than once: by an attempt that failed, and by the one after it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from stallscope.arrays.types import Ints
from stallscope.run import Problem


def last_attempts(steps: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Steps without those that a later log of the same rank and generation recorded again."""
    key = [steps[name].to_numpy() for name in ("step", "rank", "generation")]
    if _ascend(*key):
        return steps, {}
    order = np.lexsort([np.arange(steps.num_rows), *key])
    ordered = [column[order] for column in key]
    again = np.ones(max(0, steps.num_rows - 1), bool)
    for column in ordered:
        again &= column[1:] == column[:-1]
    dropped = order[:-1][again]
    if not len(dropped):
        return steps, {}
    keep = np.ones(steps.num_rows, bool)
    keep[dropped] = False
    ranks, counts = np.unique(key[1][dropped], return_counts=True)
    return (
        steps.filter(pa.array(keep)).combine_chunks(),
        dict(zip(ranks.tolist(), counts.tolist(), strict=True)),
    )


def recorded_again(repeated: Mapping[int, int]) -> list[Problem]:
    """What to say of steps that were left out, by rank."""
    return [
        Problem(
            f"rank {rank}",
            f"{count} step(s) were recorded by more than one attempt; the last attempt counts",
        )
        for rank, count in sorted(repeated.items())
    ]


def _ascend(step: Ints, rank: Ints, generation: Ints) -> bool:
    """Whether every row is behind the one above it, as where each rank has one log: none is twice."""
    further = step[1:] > step[:-1]
    for column in (rank, generation):
        further = (column[1:] > column[:-1]) | ((column[1:] == column[:-1]) & further)
    return bool(further.all())
