"""Runs in which one rank's timestamps are late in some steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stallscope.run import Run


def made_late(run: Run, rank: int, column: str, steps: Sequence[int], ns: int) -> Run:
    """Return the run with a rank's timestamp later in these steps, but not after the step's end."""
    table = run.steps
    ranks, numbers, end = (table[name].to_numpy() for name in ("rank", "step", "end"))
    late = (ranks == rank) & np.isin(numbers, list(steps))
    values = table[column].to_numpy().copy()
    values[late] = np.minimum(values[late] + ns, end[late])
    at = table.schema.get_field_index(column)
    return replace(run, steps=table.set_column(at, table.schema.field(at), [values]))
