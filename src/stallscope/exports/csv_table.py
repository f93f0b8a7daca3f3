"""CSV of the table of steps and ranks, for spreadsheets and other tools (RFC 4180)."""

from __future__ import annotations

import csv
import io
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from stallscope.reports.formats.csv_text import cell

from .base import Export
from .table import SCHEMA, tables
from .worlds import Worlds


class CsvExport(Export):
    """Write the table; cells without a measurement are empty, and text from logs is never a formula."""

    name: ClassVar[str] = "csv"
    may_be_gzipped: ClassVar[bool] = True

    def write(self, worlds: Worlds, file: BinaryIO) -> None:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\r\n")
        writer.writerow(SCHEMA.names)
        for table in tables(worlds):
            writer.writerows(zip(*map(_cells, table.columns), strict=True))
        # The caller closes the file.
        text.detach()


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type):
        return [cell(text) for text in column.to_pylist()]
    if pa.types.is_boolean(column.type):
        # Lower case, which every reader of CSV parses as a boolean.
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    return list(column.to_pylist())
