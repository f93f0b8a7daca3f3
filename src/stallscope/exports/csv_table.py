"""CSV of the table of steps and ranks, for spreadsheets and other tools (RFC 4180)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from stallscope.reports.formats.csv_text import cell

from .generations import ExportedRun
from .table import SCHEMA, tables


def write_csv_table(exported: ExportedRun, file: BinaryIO) -> None:
    """Write the table; cells without a measurement are empty, and text from logs is never a formula."""
    of_ranks = (zip(*map(_cells, table.columns), strict=True) for table in tables(exported))
    write_csv(file, SCHEMA.names, (row for rows in of_ranks for row in rows))


def write_csv(file: BinaryIO, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a header and rows as CSV; leave the file open."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(rows)
    text.detach()


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type):
        return [cell(text) for text in column.to_pylist()]
    if pa.types.is_boolean(column.type):
        # Lower case, which every reader of CSV parses as a boolean.
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    return list(column.to_pylist())
