"""Make the tables of a log: steps and intervals, without the log's number in its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA

#: The schemas of a log's tables.
STEP_ROWS, INTERVAL_ROWS = (
    pa.schema(list(schema)[1:]) for schema in (STEPS_SCHEMA, INTERVALS_SCHEMA)
)


def cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Cast a column, unless it has the type: thousands of needless casts take a while."""
    return column if column.type == kind else column.cast(kind)


def table_of(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.Table:
    """Make a table of columns of equal length, ``rank`` among them; missing columns are null."""
    count = len(columns["rank"])
    nulls = {
        field.name: pa.nulls(count, field.type) for field in schema if field.name not in columns
    }
    arrays = {
        name: arrow.array(column) if isinstance(column, np.ndarray) else column
        for name, column in columns.items()
    }
    return pa.table({**arrays, **nulls}).select(schema.names).cast(schema)
