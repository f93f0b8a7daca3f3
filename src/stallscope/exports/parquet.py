"""Parquet: the table of steps and ranks, for pandas, Spark, DuckDB and the like."""

from __future__ import annotations

from typing import BinaryIO, ClassVar

import pyarrow.parquet as pq

from .base import Export
from .table import schema_of, tables
from .worlds import Worlds


class ParquetExport(Export):
    """Zstandard, and a row group per rank: who wants some ranks reads only those."""

    name: ClassVar[str] = "parquet"
    may_be_gzipped: ClassVar[bool] = False

    def write(self, worlds: Worlds, file: BinaryIO) -> None:
        with pq.ParquetWriter(file, schema_of(worlds), compression="zstd") as writer:
            for table in tables(worlds):
                writer.write_table(table)
