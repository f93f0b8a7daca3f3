"""Parquet file of the table of steps and ranks, for pandas, Spark, DuckDB and others."""

from __future__ import annotations

from typing import BinaryIO, ClassVar

import pyarrow.parquet as pq

from .base import Export
from .table import schema_of, tables
from .worlds import Worlds


class ParquetExport(Export):
    """Write with Zstandard and one row group per rank, so that readers can load single ranks."""

    name: ClassVar[str] = "parquet"
    may_be_gzipped: ClassVar[bool] = False

    def write(self, worlds: Worlds, file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema_of(worlds), compression="zstd") as writer:
            for table in tables(worlds):
                writer.write_table(table)
