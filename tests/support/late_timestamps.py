"""Runs of which one rank's timestamps come late in some steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from stallscope.run import Run


def made_late(run: Run, rank: int, column: str, steps: Sequence[int], ns: int) -> Run:
    """The run with a timestamp of a rank later in these steps, but no later than the step's end."""
    table = run.steps
    ranks, numbers, end = (table[name].to_numpy() for name in ("rank", "step", "end"))
    own = (ranks == rank) & np.isin(numbers, list(steps))
    values = table[column].to_numpy().copy()
    values[own] = np.minimum(values[own] + ns, end[own])
    at = table.schema.get_field_index(column)
    return replace(run, steps=table.set_column(at, table.schema.field(at), [values]))
