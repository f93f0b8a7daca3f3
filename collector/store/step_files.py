"""Steps as files of Parquet: what everybody writes who collects, on whatever machine."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

# Logs of fewer rows share a row group: a thousand small ones take longer to read than their bytes.
_ROWS_OF_SEVERAL_LOGS = 65_536
# Times differ by little from row to row: a third of the bytes, and no dictionary that ends too large.
_DELTA = "DELTA_BINARY_PACKED"
_TIMES = ("step", "begin", "data", "ready", "reduced", "end")


def write_rows(steps: pa.Table, file: Path | io.RawIOBase) -> None:
    """Write steps, log by log, into one file: a new one at a path, or one that is open."""
    groups = itertools.pairwise(_row_groups(steps["log"].to_numpy()))
    write_logs((steps.slice(begin, end - begin) for begin, end in groups), steps.schema, file)


def write_logs(logs: Iterable[pa.Table], schema: pa.Schema, file: Path | io.RawIOBase) -> None:
    """The same of steps that come log by log, or some small logs at a time: a row group each."""
    with pq.ParquetWriter(
        file,
        schema,
        use_dictionary=[name for name in schema.names if name not in _TIMES],
        column_encoding=dict.fromkeys(_TIMES, _DELTA),
    ) as writer:
        for steps in logs:
            writer.write_table(steps, row_group_size=max(1, steps.num_rows))


def _row_groups(logs: npt.NDArray[np.int32]) -> list[int]:
    """Where row groups begin, and where the last one ends: only between the rows of two logs."""
    edges = np.flatnonzero(np.diff(logs, prepend=-1, append=-1)).tolist()
    begins = edges[:1]
    for begin, end in itertools.pairwise(edges):
        if end - begins[-1] > _ROWS_OF_SEVERAL_LOGS and begin > begins[-1]:
            begins.append(begin)
    return [*begins, *edges[-1:]] if len(logs) else [0, 0]
