"""Write Parquet files and read them with Petastorm, as in notebook runtimes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from petastorm import make_batch_reader
from petastorm.transform import TransformSpec

LABEL = "label"


def written(folder: Path, inputs: Any, labels: Any, rows: int) -> str:
    """Write a file with so many rows per group, and columns for inputs and labels; return its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {f"x{at}": np.ascontiguousarray(inputs[:, at]) for at in range(inputs.shape[1])}
    table = pa.table({**columns, LABEL: labels})
    pq.write_table(table, folder / "rows.parquet", row_group_size=rows)
    return folder.absolute().as_uri()


def reader(url: str, *, pause: float = 0.0, **options: Any) -> Any:
    """Return a reader of row groups in order, with one worker that pauses for each."""

    def slowly(frame: Any) -> Any:
        time.sleep(pause)
        return frame

    return make_batch_reader(
        url,
        workers_count=1,
        results_queue_size=10,
        shuffle_row_groups=False,
        transform_spec=TransformSpec(slowly) if pause else None,
        **options,
    )
