"""Allocate large arrays in memory, or in memory-mapped files if they do not fit; share equal chunks.

The analysis of a run needs up to 200 bytes per row. If memory does not suffice, arrays with a number per
row are files in ``TMPDIR`` (by default ``/var/tmp``), 55 to 180 bytes per row; the system caches as much
of them as fits. The files have no names, so they disappear with the last process that uses them, even if
it is killed. ``STALLSCOPE_MEMORY`` limits the memory, as ``3GB`` or ``800MB``; the default is half of
the available memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.errors import UnwritableError, UsageError

from . import arrow

#: Makes an array of zeros of steps × ranks, in column-major order.
Allocator = Callable[[tuple[int, int], npt.DTypeLike], npt.NDArray[Any]]

MEMORY = "STALLSCOPE_MEMORY"
#: The most that an analysis needs per row: columns, results and intermediate arrays.
BYTES_PER_ROW = 200
_UNITS = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
# Every machine has this much.
_ALWAYS_THERE = 64 * 10**6
# Fallback when the limit is unknown.
_USUAL_MEMORY = 8 * 10**9
_NO_LIMIT = 2**63
# The limit and use of a container's memory, in either version of Linux control groups.
_GROUPS = Path("/sys/fs/cgroup")
_OF_CONTAINERS = (
    (_GROUPS / "memory.max", _GROUPS / "memory.current"),
    (_GROUPS / "memory/memory.limit_in_bytes", _GROUPS / "memory/memory.usage_in_bytes"),
)


def in_memory(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an array in memory."""
    # Pages that are never written to take no memory.
    return np.zeros(shape[::-1], dtype).T


def on_disk(shape: tuple[int, int], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Allocate an array in a memory-mapped file.

    Raises:
        UnwritableError: if the disk is full.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if not size:
        return in_memory(shape, dtype)
    folder = folder_for_files()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            _reserve(file.fileno(), size)
            held = mmap.mmap(file.fileno(), size)
    except OSError as error:
        raise UnwritableError(
            f"{folder}: no space for {size / 1e9:.3g} GB of a run that does not fit into memory "
            f"({error.strerror}): set TMPDIR to a folder with more space, or {MEMORY} to more memory"
        ) from error
    return np.ndarray(shape[::-1], dtype, buffer=held).T


def allocator_for(rows: int) -> Allocator:
    """Choose how to allocate the arrays of a run with this many rows.

    Raises:
        UsageError: if ``STALLSCOPE_MEMORY`` is not an amount of memory.
    """
    size = rows * BYTES_PER_ROW
    # Asking the system takes as long as computing the ledger of a small run.
    if size <= _ALWAYS_THERE and not os.environ.get(MEMORY):
        return in_memory
    return in_memory if size <= memory_to_give() else on_disk


def memory_to_give() -> int:
    """Return how many bytes the arrays of runs may take.

    Raises:
        UsageError: see ``allocator_for``.
    """
    given = os.environ.get(MEMORY)
    if not given:
        return _available() // 2
    text = given.strip().lower()
    unit = next((unit for unit in _UNITS if text.endswith(unit)), "")
    number = text.removesuffix(unit).strip()
    if not unit or not number.replace(".", "", 1).isdecimal():
        raise UsageError(f"{MEMORY}={given}: give an amount of memory, such as 3GB or 800MB")
    return int(float(number) * _UNITS[unit])


def share_memory(processes: int) -> None:
    """Limit this process to its share of the memory, if several processes work at once."""
    os.environ[MEMORY] = f"{memory_to_give() // processes // 1000}kB"


def _available() -> int:
    return min(_of_machine(), *(_of_container(*files) for files in _OF_CONTAINERS))


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return _USUAL_MEMORY
    kib = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(next(kib, 0)) * 1024 or _USUAL_MEMORY


def _of_container(limit: Path, used: Path) -> int:
    """Return the bytes that a container may still allocate; a huge number without a limit."""
    try:
        return max(int(limit.read_text()) - int(used.read_text()), 0)
    except (OSError, ValueError):
        return _NO_LIMIT


def folder_for_files() -> str:
    """Return the folder for large temporary files."""
    # /tmp is in memory on many systems; /var/tmp never is.
    if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


def _reserve(file: int, size: int) -> None:
    """Reserve the disk space now: if a page cannot be written later, the process dies."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
    else:
        os.truncate(file, size)


# -- Share memory between chunks of columns: many ranks have the same steps, epochs and samples ----

#: Columns of many shorter chunks are slow.
FEWEST_ROWS = 2**12
# With many different values, chunks are short, so that one for each of thousands of ranks takes little
# memory. With only a few values, there are as few chunks as possible.
_SHORT = 2**14
_FEW = 8


class SharedChunks:
    """Makes the chunks of one column; equal ones share their memory. Thread-safe.

    Args:
        constants: chunks of one value, of the column's type; other columns may share them.
    """

    def __init__(self, constants: Constants) -> None:
        self.constant = constants.of
        self._last: pa.Array | None = None
        self._one_at_a_time = Lock()

    def kept(self, chunk: pa.Array) -> list[pa.Array]:
        """Return chunks with the values of this one, shared with other chunks if possible."""
        if chunk.null_count == len(chunk):
            return self.constant(None, len(chunk))
        values = arrow.numbers(chunk)
        if not chunk.null_count and (values == values[0]).all():
            return self.constant(int(values[0]), len(values))
        return [self.of(chunk)]

    def of(self, chunk: pa.Array) -> pa.Array:
        """Return the previous chunk if both are equal, or else this one."""
        with self._one_at_a_time:
            if self._last is None or not _equal(self._last, chunk):
                self._last = chunk
            return self._last


class Constants:
    """Makes chunks of one value each. Thread-safe.

    Args:
        kind: a type of whole numbers.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._chunks: dict[int | None, pa.Array] = {}
        self._one_at_a_time = Lock()

    def of(self, value: int | None, rows: int) -> list[pa.Array]:
        """Return chunks with this many rows of one value."""
        if not rows:
            return []
        with self._one_at_a_time:
            most = rows if len(self._chunks) < _FEW else min(rows, _SHORT)
            chunk = self._chunks.get(value)
            if chunk is None or len(chunk) < most:
                chunk = self._chunks[value] = self._new(value, most)
        return [chunk.slice(0, min(len(chunk), rows - at)) for at in range(0, rows, len(chunk))]

    def _new(self, value: int | None, rows: int) -> pa.Array:
        if value is None:
            return pa.nulls(rows, self._kind)
        return arrow.array(np.full(rows, value, arrow.dtype_of(self._kind)), self._kind)


def _equal(first: pa.Array, second: pa.Array) -> bool:
    """Whether two chunks have the same numbers; chunks with nulls count as different."""
    if len(first) != len(second) or first.null_count or second.null_count:
        return False
    return np.array_equal(arrow.numbers(first), arrow.numbers(second))


def are_long(chunks: list[pa.Array]) -> bool:
    """Whether chunks are long enough to be used one by one."""
    return sum(map(len, chunks)) >= FEWEST_ROWS * len(chunks)
