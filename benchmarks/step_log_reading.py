"""Time the reading of a step log, against one bare ``pyarrow.csv.read_csv`` of the same bytes.

Both get the bytes in memory, use the same threads and alternate; the ratio is of the medians. The
bare read makes a table of the raw columns; ours checks the rows and puts them on one clock.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv
from figures import Figure, share_of

from stallscope.parsers.formats.step_log.step_log_parser import StepLogParser

_HEADER = b'#stallscope 1 {"rank": 0, "size": 1, "run_id": "long"}\n'
_COLUMNS = (
    b"kind,step,epoch,begin_us,data_us,ready_us,reduced_us,end_us,micro,samples,clock_us,elements\n"
)
_FACTS = b'#facts {"batch_size": 32}\n'
_ROUNDS = 5
_MOST = 1.5


def figures(quick: bool) -> list[Figure]:
    rows = 200_000 if quick else 10_000_000
    data = log(rows)
    ours, bare = [], []
    for _ in range(_ROUNDS):
        bare.append(seconds(lambda: read_bare(data)))
        ours.append(seconds(lambda: StepLogParser().parse("long", data)))
    name = f"step log of {rows:,} rows, {len(data) / 1e6:.0f} MB: time"
    return [share_of(name, median(ours), "s", "pyarrow.csv", median(bare), most=_MOST)]


def log(rows: int) -> bytes:
    """Return one rank's log of so many steps, as the recorder writes it."""
    random = np.random.default_rng(1)
    begin = 26_000 * np.arange(rows) + random.integers(0, 900, rows)
    stamps = np.cumsum(random.integers(100, 9_000, (4, rows)), axis=0)
    table = pa.table(
        {
            "kind": ["step"] * rows,
            "step": np.arange(rows),
            "epoch": np.arange(rows) // 1000,
            "begin": begin,
            **{f"stamp_{at}": stamp for at, stamp in enumerate(stamps)},
            "micro": np.ones(rows, np.int64),
            "samples": np.full(rows, 32),
            "clock": np.full(rows, -1),
            "elements": pa.nulls(rows, pa.int64()),
        }
    )
    written = io.BytesIO()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="none")
    pa.csv.write_csv(table, written, options)
    return _HEADER + _COLUMNS + _FACTS + written.getvalue()


def read_bare(data: bytes) -> None:
    rows = pa.py_buffer(data).slice(len(_HEADER + _COLUMNS + _FACTS))
    names = _COLUMNS.decode().strip().split(",")
    pa.csv.read_csv(pa.BufferReader(rows), read_options=pa.csv.ReadOptions(column_names=names))


def seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
