"""Read lines of numbers as CSV, without lines that have too few or too many cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv


def read_cells(
    text: bytes | pa.Buffer,
    columns: Sequence[str],
    types: Mapping[str, pa.DataType],
    *,
    use_threads: bool = False,
    **conversion: Any,
) -> tuple[pa.Table, int]:
    """Read the cells of lines, null where one is empty, and count the lines that were skipped.

    Args:
        text: the lines, in UTF-8, without quotes.
        columns: the names of all columns.
        types: the types of the columns.
        use_threads: whether the text is long enough for several threads.
        conversion: further options of ``pyarrow.csv.ConvertOptions``.

    Raises:
        pyarrow.ArrowInvalid: if a cell is not of its column's type.
    """
    skipped = 0

    def skip(_row: pa.csv.InvalidRow) -> str:
        nonlocal skipped
        skipped += 1
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(text),
        read_options=pa.csv.ReadOptions(column_names=list(columns), use_threads=use_threads),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=skip, quote_char=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(types), null_values=[""], **conversion
        ),
    )
    return table, skipped
