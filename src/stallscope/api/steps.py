"""Return steps, epochs and windows as DataFrames: a row per rank and recorded step, epoch or line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.analysis.ledger.epoch_ledger import epoch_times
from stallscope.analysis.ledger.printed_steps import printed_steps
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.errors import UsageError
from stallscope.exports.exported_run import ExportedRun
from stallscope.exports.table import SCHEMA, tables
from stallscope.formatting.plain import did_you_mean
from stallscope.run import Event, Run
from stallscope.text.job_words import since_start_s, worst
from stallscope.words import PAUSES_IN_STEPS

from .frames import Columns, frame, in_order, typed

#: The most rows that ``Run.steps`` holds; larger runs are read in parts.
MOST_ROWS = 5_000_000
INDEX = ("rank", "step")
#: Each column's source in the exported table. Names end with the unit of the values here.
_SOURCES = {
    "generation": "generation",
    "epoch": "epoch",
    "host": "host",
    "begin_s": "begin_ns",
    "input_ms": "input_ns",
    "compute_ms": "compute_ns",
    "other_ms": "other_ns",
    "wait_ms": "wait_ns",
    "allreduce_ms": "allreduce_ns",
    "step_ms": "step_ns",
    "critical": "critical",
    "reference": "reference",
    "samples": "samples",
    "elements": "elements",
    **{f"{kind}_ms": f"{kind}_ns" for kind in PAUSES_IN_STEPS},
}
COLUMNS = tuple(_SOURCES)
_NS_PER_UNIT = {"_ms": 1e6, "_s": 1e9}
_EPOCH_INDEX = ("epoch", "rank")
_COLUMNS: Columns = {
    "epoch": "index",
    "rank": "index",
    "fit": "count",
    "generation": "count",
    "steps": "count",
    "epoch_s": "number",
    "precision_s": "number",
    "validation_s": "number",
    "checkpoint_s": "number",
}
_KEYS = ["generation", "epoch", "rank"]
# Kinds of intervals, and the column of their seconds.
_SECONDS = {kind: f"{kind}_s" for kind in ("epoch", "validation", "checkpoint")}
_WINDOW_COLUMNS: Columns = {
    "rank": "index",
    "step": "index",
    "steps": "index",
    "epoch": "count",
    "step_ms": "number",
    "input_ms": "number",
}

_EVENTS: Columns = {
    "since_begin_s": "number",
    "at": "moment",
    "kind": "name",
    "what": "text",
    "ranks": "tuple",
    "hosts": "tuple",
    "lasted_s": "number",
    "uncertainty_s": "number",
    "log": "text",
}
_MACHINES: Columns = {
    "at": "moment",
    "since_begin_s": "number",
    "name": "name",
    "value": "number",
    "unit": "name",
    "node": "name",
    "rank": "count",
}


def chosen_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Check the names of columns; None means all of them.

    Raises:
        UsageError: if there is no such column.
    """
    if columns is None:
        return COLUMNS
    for name in columns:
        if name not in COLUMNS:
            hint = did_you_mean(name, COLUMNS, f"there are {', '.join(COLUMNS)}")
            raise UsageError(f'columns: no such column of steps: "{name}"; {hint}')
    return tuple(columns)


def frames_by_rank(exported: ExportedRun, columns: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the selected steps of one rank after the other."""
    for table in tables(exported):
        yield _frame(_converted(table, columns), columns)


def steps_frame(exported: ExportedRun, columns: Sequence[str]) -> pd.DataFrame:
    """Return the selected steps of all selected ranks."""
    parts = [_converted(table, columns) for table in tables(exported)]
    return _frame(pa.concat_tables(parts), columns)


def no_steps(columns: Sequence[str]) -> pd.DataFrame:
    """Return the frame of a run without recorded steps: its columns, and no rows."""
    return _frame(_converted(SCHEMA.empty_table(), columns), columns)


def _converted(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """Select the columns of the frame, and convert them to its units."""
    arrays = [table[name] for name in INDEX]
    for name in columns:
        source = table[_SOURCES[name]]
        per_unit = _ns_per_unit(name)
        arrays.append(source if per_unit is None else _in_unit(source, per_unit))
    return pa.table(arrays, names=[*INDEX, *columns])


def _ns_per_unit(name: str) -> float | None:
    return next((ns for unit, ns in _NS_PER_UNIT.items() if name.endswith(unit)), None)


def _in_unit(column: pa.ChunkedArray, ns: float) -> pa.ChunkedArray:
    return pc.divide(pc.cast(column, pa.float64(), safe=False), ns)


def _frame(table: pa.Table, columns: Sequence[str]) -> pd.DataFrame:
    index = pd.MultiIndex.from_arrays([table[name].to_numpy() for name in INDEX], names=[*INDEX])
    series = {name: _column(table[name], name) for name in columns}
    return in_order(pd.DataFrame(series).set_axis(index, axis=0))


def _column(column: pa.ChunkedArray, name: str) -> pd.Series[Any]:
    if name == "host":
        column = column.dictionary_encode().unify_dictionaries()
    if name == "generation":
        return pd.Series(column.to_numpy(), dtype="int64")
    kinds = {
        pa.int32(): pd.Int64Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    series: pd.Series[Any] = column.to_pandas(types_mapper=kinds.get)
    return series


# -- Return the epochs of a run as a DataFrame: a row per epoch and rank --------------------------


def epochs_frame(run: Run) -> pd.DataFrame:
    """Return the seconds of each epoch on each rank, from logs of steps or from logs of epochs."""
    times = epoch_times(run)
    if times is not None:
        rows = ({**vars(epoch), "epoch_s": epoch.s} for epoch in times.epochs)
        return in_order(frame(rows, _COLUMNS, _EPOCH_INDEX))
    return _by_steps(run)


def _by_steps(run: Run) -> pd.DataFrame:
    """Count steps and sum up intervals per generation, epoch and rank."""
    steps = run.steps.filter(pc.greater_equal(run.steps["epoch"], 0))
    counted = steps.group_by(_KEYS).aggregate([([], "count_all")]).to_pandas()
    known = counted.rename(columns={"count_all": "steps"}).set_index(_KEYS)
    parts = [known, *(_seconds(run.intervals, kind) for kind in _SECONDS)]
    joined = pd.concat(parts, axis=1).reset_index().sort_values(_KEYS)
    return typed(joined, _COLUMNS, _EPOCH_INDEX)


def _seconds(intervals: pa.Table, kind: str) -> pd.Series[float]:
    spans = intervals.filter(
        pc.and_(pc.equal(intervals["kind"], kind), pc.greater_equal(intervals["epoch"], 0))
    )
    took = pc.divide(pc.cast(pc.subtract(spans["end"], spans["begin"]), pa.float64()), 1e9)
    summed = spans.append_column("s", took).group_by(_KEYS).aggregate([("s", "sum")]).to_pandas()
    seconds: pd.Series[float] = summed.set_index(_KEYS)["s_sum"]
    return seconds.rename(_SECONDS[kind])


# -- Return the windows of steps that printed lines are about, as a DataFrame ---------------------


def windows_frame(run: Run) -> pd.DataFrame:
    """Return a row per rank and window: its first step, and its number of steps."""
    printed = printed_steps(run)
    if printed is None:
        return frame((), _WINDOW_COLUMNS, INDEX)
    parts = [*map(_of_rank, printed.ranks)]
    return typed(pd.concat(parts, ignore_index=True), _WINDOW_COLUMNS, INDEX)


def _of_rank(windows: RankWindows) -> pd.DataFrame:
    nothing = np.full(len(windows), np.nan)
    return pd.DataFrame(
        {
            "rank": np.full(len(windows), windows.rank),
            "step": windows.step,
            "steps": windows.steps,
            "epoch": nothing if windows.epoch is None else windows.epoch,
            "step_ms": windows.ms,
            "input_ms": nothing if windows.input_ms is None else windows.input_ms,
        }
    )


# -- Return events and measurements of machines, from logs other than step logs, as DataFrames ----


def events_frame(run: Run) -> pd.DataFrame:
    """Return the events in the order of time, those without a time last."""
    listed = worst(run.events, len(run.events))
    return frame((_event(event, run) for event in listed), _EVENTS)


def _event(event: Event, run: Run) -> dict[str, object]:
    return {
        "since_begin_s": since_start_s(event, run),
        "at": None if event.wall_ns is None else pd.Timestamp(event.wall_ns, tz="UTC"),
        "kind": event.kind,
        "what": event.what,
        "ranks": run.ranks_of(event),
        "hosts": event.hosts,
        "lasted_s": event.waited_ns / 1e9 or None,
        "uncertainty_s": event.uncertainty_ns / 1e9,
        "log": event.where,
    }


def machines_frame(run: Run) -> pd.DataFrame:
    """Return the measurements in long form, one series after the other."""
    lengths = [len(series.value) for series in run.series]
    if not sum(lengths):
        return frame((), _MACHINES)
    walls = np.concatenate([series.wall_ns for series in run.series])
    began = run.started_at
    start_ns = np.nan if began is None else began.timestamp() * 1e9
    named = frame(
        (vars(series) for series in run.series),
        {
            name: kind
            for name, kind in _MACHINES.items()
            if name in ("name", "unit", "node", "rank")
        },
    )
    repeated = named.take(np.repeat(np.arange(len(lengths)), lengths)).reset_index(drop=True)
    table = repeated.assign(
        at=pd.to_datetime(walls, utc=True).as_unit("ns"),
        since_begin_s=(walls - start_ns) / 1e9,
        value=np.concatenate([series.value for series in run.series]),
    )
    return table[[*_MACHINES]]
