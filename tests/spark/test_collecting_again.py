"""Arrange the rows of runs that were collected before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
from support.step_logs import Job, run_of_job

from stallscope.collector.store.run_folders import save_run
from stallscope.collector.store.step_files import write_rows
from stallscope.run import STEPS_SCHEMA
from stallscope.spark.arranging import RemoteSteps, _rows_of_logs


def test_collected_logs_count_with_their_rows(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "logs", Job(ranks=3, steps=200, epochs=2))
    steps = RemoteSteps(None, str(tmp_path), [])
    steps.load(save_run(run, tmp_path / "store"))
    assert [fragment.rows for fragment in steps.fragments] == [200, 200, 200]


def test_a_large_log_counts_alone_and_small_ones_share_a_row_group(tmp_path: Path) -> None:
    logs = np.repeat([0, 1, 2, 3], [70_000, 0, 10, 30])
    columns = {
        name: pa.nulls(len(logs), STEPS_SCHEMA.field(name).type) for name in STEPS_SCHEMA.names
    }
    rows = pa.table({**columns, "log": pa.array(logs, pa.int32())}, STEPS_SCHEMA)
    write_rows(rows, tmp_path / "steps.parquet")
    assert _rows_of_logs([str(tmp_path / "steps.parquet")], 4) == [70_000, 0, 20, 20]
