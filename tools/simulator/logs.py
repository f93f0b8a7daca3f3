"""Write a simulated run as step logs, in the recorder's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from stallscope.collector.recorder.step_log.line_format import (
    InterruptionRow,
    IntervalRow,
    RowFormatter,
    StepRow,
    file_name,
    header,
)
from stallscope.run import Log, Run

from .simulation import Simulated

_STEP = (
    "step",
    "epoch",
    "begin",
    "data",
    "ready",
    "reduced",
    "end",
    "micro",
    "samples",
    "elements",
)
_INTERVAL = ("kind", "step", "epoch", "begin", "end", "steps")


def write_logs(simulated: Simulated, folder: Path | str) -> list[Path]:
    """Write one step log per rank (without lost ones), and return the paths by rank."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for index, log in enumerate(simulated.run.logs):
        path = folder / file_name(log.rank, log.generation, log.part)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(_lines(simulated.run, index, log))
        paths.append(path)
    return paths


def _lines(run: Run, index: int, log: Log) -> Iterator[str]:
    formatter = RowFormatter(log.anchor, 0)
    yield header(dict(log.facts))
    steps = _rows_of(run.steps, index)
    numbers = steps["step"].to_numpy()
    lines = [
        formatter.step(StepRow._make((*row[:-1], 0, row[-1])))
        for row in zip(*(steps[name].to_pylist() for name in _STEP), strict=True)
    ]
    intervals = _rows_of(run.intervals, index)
    # An interval is written before the step that follows it.
    before = np.searchsorted(numbers, intervals["step"].to_numpy())
    written = 0
    rows = zip(*(intervals[name].to_pylist() for name in _INTERVAL), strict=True)
    for position, row in zip(before.tolist(), rows, strict=True):
        yield from lines[written:position]
        *interval, amount = row
        if amount is None:
            yield formatter.interval(IntervalRow._make((*interval, 0)))
        else:
            kind, step, _, begin, end = interval
            yield formatter.interruption(InterruptionRow(kind, step, begin, end, amount))
        written = position
    yield from lines[written:]


def _rows_of(table: pa.Table, index: int) -> pa.Table:
    first, end = np.searchsorted(table["log"].to_numpy(), [index, index + 1])
    return table.slice(first, end - first)
