"""Return the table of steps as a DataFrame: a row per rank and recorded step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.errors import UsageError
from stallscope.exports.generations import ExportedRun
from stallscope.exports.table import SCHEMA, tables
from stallscope.formatting.suggestions import did_you_mean

from .frames import in_order

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
}
COLUMNS = tuple(_SOURCES)
_NS_PER_UNIT = {"_ms": 1e6, "_s": 1e9}


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
