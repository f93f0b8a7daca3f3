"""Define the columns of a run's steps and intervals."""

from __future__ import annotations

import pyarrow as pa

#: One row per step and rank. ``log`` is the index of the row's log in ``Run.logs``.
STEPS_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("generation", pa.int32()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("epoch", pa.int32()),
        ("begin", pa.int64()),
        ("data", pa.int64()),
        ("ready", pa.int64()),
        ("reduced", pa.int64()),
        ("end", pa.int64()),
        ("micro", pa.int32()),
        ("samples", pa.int64()),
    ]
)

#: The timestamps of a step, in their order. Each of these columns is one array. The other columns are
#: equal on many ranks, so their chunks may share memory.
TIMESTAMPS = ("begin", "data", "ready", "reduced", "end")

#: One row per epoch, validation, checkpoint or end of a log; ``step`` is the next step. A row of the
#: kind ``skipped`` stands for ``steps`` steps that were not recorded separately: ``data``, ``ready`` and
#: ``reduced`` are their sums, from each step's start; null if a step lacks the timestamp.
INTERVALS_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("generation", pa.int32()),
        ("rank", pa.int32()),
        ("kind", pa.string()),
        ("step", pa.int64()),
        ("epoch", pa.int32()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("steps", pa.int64()),
        ("samples", pa.int64()),
        ("data", pa.int64()),
        ("ready", pa.int64()),
        ("reduced", pa.int64()),
    ]
)
