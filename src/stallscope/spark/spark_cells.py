"""Run kernels on executors over matrices of steps × ranks in shared files."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, TypeVar

import numpy as np

from stallscope.arrays.blocks import Array, Block, Matrix
from stallscope.arrays.types import Bools, Ints

from .each import each
from .storage import is_url, new_file, read_part

T = TypeVar("T")

# Cells of a block: 32 MB of each quantity that a kernel reads.
_CELLS = 2**22


@dataclass(frozen=True)
class CellFile:
    """A file with the cells of consecutive steps and ranks."""

    path: str
    dtype: str
    #: The ranges of steps and ranks.
    steps: tuple[int, int]
    ranks: tuple[int, int]
    #: Whether the steps of a rank are contiguous. Kernels on blocks of steps write such files, because
    #: kernels on blocks of ranks read them, and vice versa.
    rank_by_rank: bool

    def read(self, steps: slice, ranks: Ints) -> Array:
        """Read the cells of some steps and ranks of the file."""
        rows = slice(steps.start - self.steps[0], steps.stop - self.steps[0])
        columns = ranks - self.ranks[0]
        if not self.rank_by_rank:
            return np.asarray(self._lines(rows)[:, columns])
        first = int(columns.min())
        lines = self._lines(slice(first, int(columns.max()) + 1))
        return np.asarray(lines.T[rows][:, columns - first])

    def _lines(self, chosen: slice) -> Array:
        """Read contiguous lines: all steps of some ranks, or all ranks of some steps."""
        count = self.steps[1] - self.steps[0], self.ranks[1] - self.ranks[0]
        shape = count[::-1] if self.rank_by_rank else count
        if not is_url(self.path):
            return np.memmap(self.path, self.dtype, "r", shape=shape)[chosen]
        line = shape[1] * np.dtype(self.dtype).itemsize
        data = read_part(self.path, chosen.start * line, chosen.stop * line)
        return np.frombuffer(data, self.dtype).reshape(-1, shape[1])


def write_cells(
    array: Array, folder: str, steps: int, ranks: int, *, rank_by_rank: bool
) -> tuple[CellFile, ...]:
    """Write cells into a file with a unique name; return the file, or nothing without cells.

    Args:
        steps, ranks: the first step and rank of the cells.
    """
    if not array.size:
        return ()
    path = f"{folder}/{uuid.uuid4().hex}.cells"
    with new_file(path) as file:
        file.write(np.ascontiguousarray(array.T if rank_by_rank else array).data)
    ends = steps + array.shape[0], ranks + array.shape[1]
    return (CellFile(path, array.dtype.str, (steps, ends[0]), (ranks, ends[1]), rank_by_rank),)


@dataclass(frozen=True)
class _Quantity:
    """A quantity of a matrix: some rows of files."""

    dtype: str
    files: tuple[CellFile, ...]
    #: k × 2: ranges of the files' steps.
    runs: Ints

    def within(self, start: int, end: int) -> _Quantity:
        """Return the rows from one position to another, with their files."""
        ends = np.cumsum(self.runs[:, 1] - self.runs[:, 0])
        starts = ends - (self.runs[:, 1] - self.runs[:, 0])
        low = self.runs[:, 0] + np.clip(start - starts, 0, None)
        high = self.runs[:, 1] - np.clip(ends - end, 0, None)
        runs = np.stack([low, high], axis=1)[low < high]
        first, last = (int(runs[0, 0]), int(runs[-1, 1])) if len(runs) else (0, 0)
        files = (file for file in self.files if file.steps[0] < last and first < file.steps[1])
        return replace(self, files=tuple(files), runs=runs)

    def of_ranks(self, ranks: Ints) -> _Quantity:
        """Drop files without any of these ranks."""
        low, high = (int(ranks.min()), int(ranks.max())) if len(ranks) else (0, -1)
        files = (file for file in self.files if file.ranks[0] <= high and low < file.ranks[1])
        return replace(self, files=tuple(files))

    def read(self, steps: int, ranks: Ints) -> Array:
        """Read all rows of some ranks; the caller gives the number of steps."""
        out = np.empty((len(ranks), steps), self.dtype).T
        at = 0
        for low, high in self.runs.tolist():
            for file in self.files:
                start, end = max(low, file.steps[0]), min(high, file.steps[1])
                columns = np.flatnonzero((ranks >= file.ranks[0]) & (ranks < file.ranks[1]))
                if start < end and len(columns):
                    rows = slice(at + start - low, at + end - low)
                    out[rows, columns] = file.read(slice(start, end), ranks[columns])
            at += high - low
        return out

    def take(self, chosen: Bools) -> _Quantity:
        rows = np.concatenate([_NO_ROWS, *(np.arange(low, high) for low, high in self.runs)])
        return replace(self, runs=runs_of(rows[chosen]))

    def followed_by(self, quantity: _Quantity) -> _Quantity:
        """Append the rows of another quantity; the steps of its files follow those of these files."""
        after = max([*self.runs[:, 1], *(file.steps[1] for file in self.files)], default=0)
        moved = (
            replace(file, steps=(file.steps[0] + after, file.steps[1] + after))
            for file in quantity.files
        )
        runs = np.concatenate([self.runs, quantity.runs + after])
        return replace(self, files=(*self.files, *moved), runs=runs)


_NO_ROWS = np.zeros(0, np.int64)


def runs_of(rows: Ints) -> Ints:
    """Convert ascending numbers to ranges of consecutive numbers: k × 2, without the end."""
    starts = rows[np.diff(rows, prepend=-2) != 1]
    last_rows = rows[np.diff(rows, append=-1) != 1]
    return np.stack([starts, last_rows + 1], axis=1)


@dataclass(frozen=True)
class Cluster:
    """The Spark session that runs kernels, and the folder that they write to."""

    spark: Any
    #: A shared folder or a URL.
    folder: str
    #: The number of cells of a block.
    cells: int = _CELLS


class SparkMatrix(Matrix):
    """A matrix in files that executors read."""

    def __init__(
        self, cluster: Cluster, quantities: Mapping[str, _Quantity], shape: tuple[int, int]
    ) -> None:
        super().__init__(quantities, shape)
        self._cluster = cluster

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        files: Mapping[str, tuple[str, Sequence[CellFile]]],
        shape: tuple[int, int],
    ) -> SparkMatrix:
        """Create a matrix of files; each quantity has a type and files."""
        whole = np.array([[0, shape[0]]])
        quantities = {
            name: _Quantity(dtype, tuple(cell_files), whole)
            for name, (dtype, cell_files) in files.items()
        }
        return cls(cluster, quantities, shape)

    def _like(self, held: Mapping[str, _Quantity], shape: tuple[int, int]) -> SparkMatrix:
        return SparkMatrix(self._cluster, held, shape)

    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        return self._each(_run_kernel, self._steps(), kernel, args)

    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        return self._each(_run_kernel, self._ranks(ranks), kernel, args)

    def compute_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Matrix, list[T]]:
        folder = self._cluster.folder
        results = self._each(_computed_of_steps, self._steps(), kernel, args, folder)
        files = [block_files for block_files, _ in results]
        return self._of(files, self._shape), [result for _, result in results]

    def compute_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Matrix:
        blocks = list(self._ranks(ranks))
        files = self._each(_computed_of_ranks, blocks, kernel, args, self._cluster.folder)
        return self._of(files, (self._shape[0], sum(len(block.ranks) for block in blocks)))

    def with_computed(
        self, names: Sequence[str], kernel: Callable[..., Array], *args: Any
    ) -> Matrix:
        # Writing the result once costs less than computing it twice.
        computed, _ = self.compute_by_steps(_computed_quantities, tuple(names), kernel, args)
        return self.merged_with(computed)

    def _of(self, parts: Sequence[_Files], shape: tuple[int, int]) -> SparkMatrix:
        files = {
            name: (dtype, [file for part in parts for file in part[name][1]])
            for name, (dtype, _) in parts[0].items()
        }
        return SparkMatrix.of(self._cluster, files, shape)

    def _each(
        self, function: Callable[..., T], blocks: Iterable[_RemoteBlock], *shared: Any
    ) -> list[T]:
        """Run a function for each block. The files are sent once for all blocks: both are many."""
        return each(self._cluster.spark, function, list(blocks), self._held, *shared)

    def _steps(self) -> Iterator[_RemoteBlock]:
        steps, ranks = self._shape
        per_block = max(1, self._cluster.cells // max(ranks, 1))
        # At least one block, so that the result has a type.
        for start in range(0, max(steps, 1), per_block):
            yield _RemoteBlock(slice(start, min(start + per_block, steps)), np.arange(ranks), 0)

    def _ranks(self, ranks: Sequence[int] | None) -> Iterator[_RemoteBlock]:
        steps = self._shape[0]
        chosen = np.arange(self._shape[1]) if ranks is None else np.asarray(ranks, np.int64)
        per_block = max(1, self._cluster.cells // max(steps, 1))
        for start in range(0, max(len(chosen), 1), per_block):
            yield _RemoteBlock(slice(0, steps), chosen[start : start + per_block], start)


#: The type and the files of each quantity.
_Files = dict[str, tuple[str, tuple[CellFile, ...]]]


@dataclass(frozen=True)
class _RemoteBlock:
    """A block to read on an executor."""

    steps: slice
    ranks: Ints
    #: The number of ranks in earlier blocks.
    before: int

    def of(self, held: Mapping[str, _Quantity]) -> Block:
        """Return the block of these quantities, each read when it is first asked for."""

        # Kernels ask for the same quantity several times.
        @cache
        def read(name: str) -> Array:
            quantity = held[name].within(self.steps.start, self.steps.stop).of_ranks(self.ranks)
            return quantity.read(self.steps.stop - self.steps.start, self.ranks)

        return Block(self.steps, self.ranks, read)


def _computed_quantities(
    block: Block, names: Sequence[str], kernel: Callable[..., Array], args: tuple[Any, ...]
) -> tuple[dict[str, Array], None]:
    return {name: kernel(block, name, *args) for name in names}, None


def _run_kernel(
    remote: _RemoteBlock,
    held: Mapping[str, _Quantity],
    kernel: Callable[..., T],
    args: tuple[Any, ...],
) -> T:
    """Run a kernel on a block, on an executor."""
    return kernel(remote.of(held), *args)


def _computed_of_steps(
    remote: _RemoteBlock,
    held: Mapping[str, _Quantity],
    kernel: Callable[..., tuple[dict[str, Array], T]],
    args: tuple[Any, ...],
    folder: str,
) -> tuple[_Files, T]:
    """Run a kernel on a block of steps, on an executor; write its arrays into files."""
    arrays, result = kernel(remote.of(held), *args)
    start = remote.steps.start
    return {
        name: (array.dtype.str, write_cells(array, folder, start, 0, rank_by_rank=True))
        for name, array in arrays.items()
    }, result


def _computed_of_ranks(
    remote: _RemoteBlock,
    held: Mapping[str, _Quantity],
    kernel: Callable[..., dict[str, Array]],
    args: tuple[Any, ...],
    folder: str,
) -> _Files:
    """Run a kernel on a block of ranks, on an executor; write its arrays into files."""
    return {
        name: (array.dtype.str, write_cells(array, folder, 0, remote.before, rank_by_rank=False))
        for name, array in kernel(remote.of(held), *args).items()
    }
