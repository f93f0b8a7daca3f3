"""Move values between Arrow and numpy without importing pandas.

``pa.array``, ``pa.scalar``, ``to_numpy``, and compute functions with plain values import pandas to check
whether it made their arguments, which takes longer than analysing a small run. The functions here use
the buffers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from .types import Bools

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Numbers = npt.NDArray[Any]
# Arrow's names of types that differ from numpy's.
_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}


def numbers(column: Column) -> Numbers:
    """Return a column of numbers or booleans as an array; views are read-only.

    Nulls become NaN, and integers in a column with nulls become floats, as with ``to_numpy``.
    """
    if column.null_count:
        column = column.cast(pa.float64(), safe=False)
    if not isinstance(column, pa.ChunkedArray):
        return _values(column)
    if not column.num_chunks:
        return np.zeros(0, dtype_of(column.type))
    return _values(column.chunk(0) if column.num_chunks == 1 else column.combine_chunks())


def dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    """Return numpy's type of numbers and booleans: until pyarrow 16, asking it imports pandas."""
    name = str(kind)
    return np.dtype(_FLOATS.get(name, name))


def _values(chunk: pa.Array) -> Numbers:
    buffer = chunk.buffers()[1]
    if pa.types.is_boolean(chunk.type):
        return _bits(buffer, chunk.offset, len(chunk))
    dtype = dtype_of(chunk.type)
    if buffer is None or not len(chunk):
        return np.zeros(0, dtype)
    whole = np.frombuffer(buffer, dtype, chunk.offset + len(chunk))
    values = whole[chunk.offset :]
    values.flags.writeable = False
    if chunk.null_count:
        # The value at a null is undefined.
        return np.where(_bits(chunk.buffers()[0], chunk.offset, len(chunk)), values, np.nan)
    return values


def _bits(buffer: pa.Buffer | None, offset: int, count: int) -> Bools:
    if buffer is None:
        return np.zeros(0, bool)
    packed = np.frombuffer(buffer, np.uint8)
    return np.unpackbits(packed, count=offset + count, bitorder="little")[offset:].view(bool)


def array(values: npt.ArrayLike, kind: pa.DataType | None = None, *, null: Any = None) -> pa.Array:
    """Return numbers or booleans as an Arrow array; a view of contiguous numbers.

    Args:
        kind: the type of the numbers; by default that of the values.
        null: an array of booleans that marks the nulls.
    """
    contiguous = np.ascontiguousarray(values, None if kind is None else dtype_of(kind))
    validity = None if null is None else _packed(np.logical_not(null))
    data = _packed(contiguous) if contiguous.dtype == bool else pa.py_buffer(contiguous)
    return pa.Array.from_buffers(
        kind or pa.from_numpy_dtype(contiguous.dtype), len(contiguous), [validity, data]
    )


def _packed(values: Bools) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def texts(values: list[str]) -> pa.Array:
    """Return texts as an Arrow array."""
    data = [value.encode() for value in values]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.string(), len(data), buffers)


def lines_of(column: pa.Array) -> bytes:
    """Return texts with a newline after each."""
    newline = texts(["\n"]).cast(column.type)[0]
    lines = pc.binary_join_element_wise(column, newline, texts([""]).cast(column.type)[0])
    data = lines.buffers()[2]
    return data.to_pybytes() if len(lines) and data is not None else b""


def scalar(value: str | float, kind: pa.DataType) -> pa.Scalar:
    """Return a value as an Arrow scalar of this type."""
    return (texts([value]) if isinstance(value, str) else array([value], kind))[0]


def equal(column: Column, value: str | float) -> Column:
    """Compare each value of a column with one value; nulls stay null."""
    return pc.equal(column, scalar(value, column.type))


def filled(column: Column, value: float) -> Column:
    """Replace the nulls of a column of numbers; return the same one if it has none."""
    if not column.null_count:
        return column
    return pc.fill_null(column, scalar(value, column.type))


def numbers_at(column: pa.ChunkedArray, places: Numbers) -> Numbers:
    """Return the numbers at some places of a column; Arrow's ``take`` joins the whole column first."""
    chunks = [numbers(chunk) for chunk in column.chunks]
    starts = np.cumsum([0, *map(len, chunks)])
    of = np.searchsorted(starts, places, "right") - 1
    values = [chunks[at][place] for at, place in zip(of, places - starts[of], strict=True)]
    return np.array(values, dtype_of(column.type))


def words(column: Column) -> npt.NDArray[np.str_]:
    """Return a column of texts as a numpy array; nulls become the text ``None``."""
    if not len(column):
        return np.zeros(0, str)
    coded = column.dictionary_encode("encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    distinct = np.array(coded.dictionary.to_pylist(), str)
    return distinct[numbers(coded.indices)]


def empty_table(schema: pa.Schema) -> pa.Table:
    """Return a table without rows."""
    return pa.Table.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)


def without_nulls(column: pa.Array) -> pa.Array:
    """Return texts with empty ones in place of nulls; a plain value would load pandas."""
    texts = column.cast(pa.string(), safe=False)
    return pc.fill_null(texts, scalar("", pa.string())) if texts.null_count else texts
