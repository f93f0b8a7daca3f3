"""Values move between Arrow and numpy as pyarrow itself moves them, and without pandas."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from stallscope.arrays import arrow

COLUMNS = {
    "integers": pa.array([3, 1, 2], pa.int32()),
    "with nulls": pa.array([3, None, 10**18 - 1], pa.int64()),
    "floats": pa.array([0.5, None, float("inf")]),
    "booleans": pa.array([True, False, True] * 5),
    "all null": pa.array([None, None], pa.int64()),
    "none": pa.array([], pa.int32()),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("form", ["array", "slice", "chunks", "no chunks"])
def test_numbers_are_those_of_arrow(name: str, form: str) -> None:
    whole = COLUMNS[name]
    column = {
        "array": whole,
        "slice": whole.slice(1),
        "chunks": pa.chunked_array([whole, whole.slice(1)]),
        "no chunks": pa.chunked_array([], whole.type),
    }[form]
    expected = column.to_numpy(
        **({} if isinstance(column, pa.ChunkedArray) else {"zero_copy_only": False})
    )
    converted = arrow.numbers(column)
    assert converted.dtype == expected.dtype
    np.testing.assert_array_equal(converted, expected)


def test_numbers_are_views_that_cannot_be_written() -> None:
    column = pa.array(np.arange(5))
    assert arrow.numbers(column).ctypes.data == column.buffers()[1].address
    with pytest.raises(ValueError, match="read-only"):
        arrow.numbers(column)[0] = 1


@pytest.mark.parametrize("values", [[3, 1, 2], [0.5, 2.0], [True, False] * 5, []])
def test_arrays_are_those_of_arrow(values: list[float]) -> None:
    numbers = np.array(values)
    assert arrow.array(numbers).equals(pa.array(numbers))
    null = np.arange(len(numbers)) % 2 == 1
    assert arrow.array(numbers, null=null).equals(pa.array(numbers, mask=null))
    # Every second value, which do not lie side by side.
    assert arrow.array(numbers[::2]).equals(pa.array(numbers[::2].copy()))


def test_texts_and_words() -> None:
    texts = ["epoch", "", "größer"]
    assert arrow.texts(texts).equals(pa.array(texts))
    assert arrow.texts([]).equals(pa.array([], pa.string()))
    assert arrow.lines_of(pa.array(texts)[1:]) == "\ngrößer\n".encode()
    assert arrow.lines_of(pa.array([b"\xff"])) == b"\xff\n"
    assert arrow.lines_of(pa.array([], pa.string())) == b""
    for column in (
        pa.array(["a", None, "bc"]),
        pa.chunked_array([["a"], ["bc", "a"]]),
        pa.nulls(0, "string"),
    ):
        assert arrow.words(column).tolist() == [str(value) for value in column.to_pylist()]


def test_comparing_and_filling() -> None:
    column = pa.chunked_array([pa.array([1, None], pa.int32()), pa.array([2], pa.int32())])
    assert arrow.equal(column, 2).to_pylist() == [False, None, True]
    assert arrow.equal(pa.array(["a", "b"]), "b").to_pylist() == [False, True]
    assert arrow.filled(column, -1).to_pylist() == [1, -1, 2]


def test_no_rows() -> None:
    schema = pa.schema([("rank", pa.int32()), ("kind", pa.string())])
    assert arrow.empty_table(schema).equals(schema.empty_table())


# Older versions of Arrow import pandas themselves.
@pytest.mark.any_versions
def test_pandas_is_not_imported() -> None:
    program = """
import sys
import numpy as np, pyarrow as pa
from stallscope.arrays import arrow
column = arrow.array([1, 2], null=np.array([True, False]))
arrow.numbers(column), arrow.words(arrow.texts(["a"])), arrow.equal(column, 1), arrow.filled(column, 0)
arrow.empty_table(pa.schema([("rank", pa.int32())])), arrow.scalar(True, pa.bool_())
arrow.lines_of(arrow.texts(["a"]))
sys.exit("pandas" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
