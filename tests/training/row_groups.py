"""Parquet files, read by the real Petastorm: what notebook runtimes train on."""

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
    """The URL of a file with so many rows in a group; a column for every input, and the labels."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {f"x{at}": np.ascontiguousarray(inputs[:, at]) for at in range(inputs.shape[1])}
    table = pa.table({**columns, LABEL: labels})
    pq.write_table(table, folder / "rows.parquet", row_group_size=rows)
    return folder.absolute().as_uri()


def reader(url: str, *, pause: float = 0.0, **options: Any) -> Any:
    """A reader of row groups in their order; its one worker takes so many seconds more for each."""

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
