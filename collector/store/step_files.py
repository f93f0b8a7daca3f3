"""Write steps as Parquet files, on this machine or on executors."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from stallscope.arrays import arrow

# Smaller logs share a row group, because each row group takes extra time to read.
_ROWS_OF_SEVERAL_LOGS = 65_536
# Times differ little from row to row: delta encoding takes a third of the bytes of a dictionary.
_DELTA = "DELTA_BINARY_PACKED"
_TIMES = ("step", "begin", "data", "ready", "reduced", "end")


def write_rows(steps: pa.Table, file: Path | io.RawIOBase) -> None:
    """Write steps, sorted by log, into a file at a path or into an open file."""
    groups = itertools.pairwise(_row_groups(arrow.numbers(steps["log"])))
    write_logs((steps.slice(start, end - start) for start, end in groups), steps.schema, file)


def write_logs(logs: Iterable[pa.Table], schema: pa.Schema, file: Path | io.RawIOBase) -> None:
    """Write one row group per table; each has the steps of one log, or of several small ones."""
    with pq.ParquetWriter(
        file,
        schema,
        use_dictionary=[name for name in schema.names if name not in _TIMES],
        column_encoding=dict.fromkeys(_TIMES, _DELTA),
    ) as writer:
        for steps in logs:
            writer.write_table(steps, row_group_size=max(1, steps.num_rows))


def _row_groups(logs: npt.NDArray[np.int32]) -> list[int]:
    """Return the starts of row groups, and the end of the last; they lie between two logs."""
    edges = np.flatnonzero(np.diff(logs, prepend=-1, append=-1)).tolist()
    starts = edges[:1]
    for start, end in itertools.pairwise(edges):
        if end - starts[-1] > _ROWS_OF_SEVERAL_LOGS and start > starts[-1]:
            starts.append(start)
    return [*starts, *edges[-1:]] if len(logs) else [0, 0]
