"""Steps × ranks of quantities in files that all machines see: kernels go to executors, not cells."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from stallscope.arrays.blocks import Array, Block, Matrix
from stallscope.arrays.types import Bools, Ints

from .each import each
from .storage import is_url, new_file, read_part

T = TypeVar("T")

# Of one block: 32 MB of each quantity that a kernel reads.
_CELLS = 2**22


@dataclass(frozen=True)
class Stretch:
    """Cells of some steps and ranks that follow each other, in a file of nothing else."""

    path: str
    dtype: str
    #: From and up to which step and rank.
    steps: tuple[int, int]
    ranks: tuple[int, int]
    #: Whether all steps of a rank lie together: so of blocks of steps, for blocks of ranks are wanted of
    #: them, and the other way round.
    rank_by_rank: bool

    def read(self, steps: slice, ranks: Ints) -> Array:
        """Steps × ranks of what it has."""
        rows = slice(steps.start - self.steps[0], steps.stop - self.steps[0])
        columns = ranks - self.ranks[0]
        if not self.rank_by_rank:
            return np.asarray(self._lines(rows)[:, columns])
        first = int(columns.min())
        lines = self._lines(slice(first, int(columns.max()) + 1))
        return np.asarray(lines.T[rows][:, columns - first])

    def _lines(self, chosen: slice) -> Array:
        """Some of what lies together: all steps of each of some ranks, or all ranks of some steps."""
        count = self.steps[1] - self.steps[0], self.ranks[1] - self.ranks[0]
        shape = count[::-1] if self.rank_by_rank else count
        if not is_url(self.path):
            return np.memmap(self.path, self.dtype, "r", shape=shape)[chosen]
        line = shape[1] * np.dtype(self.dtype).itemsize
        data = read_part(self.path, chosen.start * line, chosen.stop * line)
        return np.frombuffer(data, self.dtype).reshape(-1, shape[1])


def written(
    array: Array, folder: str, steps: int, ranks: int, *, rank_by_rank: bool
) -> tuple[Stretch, ...]:
    """Put cells, from a step and a rank on, into a file of a name that no other attempt uses.

    Returns:
        The file; none where there is no cell.
    """
    if not array.size:
        return ()
    path = f"{folder}/{uuid.uuid4().hex}.cells"
    with new_file(path) as file:
        file.write(np.ascontiguousarray(array.T if rank_by_rank else array).data)
    ends = steps + array.shape[0], ranks + array.shape[1]
    return (Stretch(path, array.dtype.str, (steps, ends[0]), (ranks, ends[1]), rank_by_rank),)


@dataclass(frozen=True)
class _Part:
    """Some rows of what files have."""

    files: tuple[Stretch, ...]
    #: k × 2: from and up to which of the files' steps.
    runs: Ints

    def __len__(self) -> int:
        return int((self.runs[:, 1] - self.runs[:, 0]).sum())

    def within(self, begin: int, end: int) -> _Part:
        """Its rows from one position to another, with the files that have them."""
        ends = np.cumsum(self.runs[:, 1] - self.runs[:, 0])
        begins = ends - (self.runs[:, 1] - self.runs[:, 0])
        low = self.runs[:, 0] + np.clip(begin - begins, 0, None)
        high = self.runs[:, 1] - np.clip(ends - end, 0, None)
        runs = np.stack([low, high], axis=1)[low < high]
        if not len(runs):
            return _Part((), runs)
        first, last = int(runs[0, 0]), int(runs[-1, 1])
        own = [file for file in self.files if file.steps[0] < last and first < file.steps[1]]
        return _Part(tuple(own), runs)

    def read(self, ranks: Ints, out: Array) -> None:
        """Write the rows of some ranks."""
        at = 0
        for low, high in self.runs.tolist():
            for file in self.files:
                begin, end = max(low, file.steps[0]), min(high, file.steps[1])
                own = np.flatnonzero((ranks >= file.ranks[0]) & (ranks < file.ranks[1]))
                if begin < end and len(own):
                    rows = slice(at + begin - low, at + end - low)
                    out[rows, own] = file.read(slice(begin, end), ranks[own])
            at += high - low

    def take(self, chosen: Bools) -> _Part:
        rows = np.concatenate([np.arange(low, high) for low, high in self.runs] or [_NOTHING])
        return _Part(self.files, _runs(rows[chosen]))


_NOTHING = np.zeros(0, np.int64)


def _runs(rows: Ints) -> Ints:
    """Ascending numbers as stretches of those that follow each other."""
    edges = np.flatnonzero(np.diff(rows) != 1) + 1
    begins = rows[np.concatenate([[0], edges])] if len(rows) else _NOTHING
    lasts = rows[np.concatenate([edges - 1, [len(rows) - 1]])] if len(rows) else _NOTHING
    return np.stack([begins, lasts + 1], axis=1).astype(np.int64)


@dataclass(frozen=True)
class _Quantity:
    """Rows of parts with the same ranks, one after the other."""

    dtype: str
    parts: tuple[_Part, ...]

    def within(self, begin: int, end: int) -> _Quantity:
        parts, at = [], 0
        for part in self.parts:
            parts.append(part.within(begin - at, end - at))
            at += len(part)
        return replace(self, parts=tuple(part for part in parts if len(part)))

    def of_ranks(self, ranks: Ints) -> _Quantity:
        """The same with the files alone that have some of these ranks."""
        low, high = (int(ranks.min()), int(ranks.max())) if len(ranks) else (0, -1)
        return replace(
            self,
            parts=tuple(
                replace(
                    part,
                    files=tuple(f for f in part.files if f.ranks[0] <= high and low < f.ranks[1]),
                )
                for part in self.parts
            ),
        )

    def read(self, steps: int, ranks: Ints) -> Array:
        out = np.empty((len(ranks), steps), self.dtype).T
        at = 0
        for part in self.parts:
            part.read(ranks, out[at : at + len(part)])
            at += len(part)
        return out

    def take(self, chosen: Bools) -> _Quantity:
        parts, at = [], 0
        for part in self.parts:
            parts.append(part.take(chosen[at : at + len(part)]))
            at += len(part)
        return replace(self, parts=tuple(part for part in parts if len(part)))


@dataclass(frozen=True)
class Cluster:
    """Where kernels run, and where they may write."""

    spark: Any
    #: All machines see it; it may be a URL.
    folder: str
    #: Cells of a block.
    cells: int = _CELLS


class SparkMatrix(Matrix):
    """Cells in files that executors read."""

    def __init__(
        self, cluster: Cluster, held: Mapping[str, _Quantity], shape: tuple[int, int]
    ) -> None:
        self._cluster, self._held, self._shape = cluster, dict(held), shape

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        files: Mapping[str, tuple[str, Sequence[Stretch]]],
        shape: tuple[int, int],
    ) -> SparkMatrix:
        """Cells in files, by name of the quantity with its type."""
        whole = np.array([[0, shape[0]]])
        held = {
            name: _Quantity(dtype, (_Part(tuple(own), whole),))
            for name, (dtype, own) in files.items()
        }
        return cls(cluster, held, shape)

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        return each(self._cluster.spark, _found, list(self._steps()), kernel, args)

    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        return each(self._cluster.spark, _found, list(self._ranks(ranks)), kernel, args)

    def made_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Matrix, list[T]]:
        found = each(
            *(self._cluster.spark, _made_of_steps, list(self._steps())),
            *(kernel, args, self._cluster.folder),
        )
        return self._of([made for made, _ in found], self._shape), [one for _, one in found]

    def made_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Matrix:
        blocks = list(self._ranks(ranks))
        found = each(
            *(self._cluster.spark, _made_of_ranks, blocks),
            *(kernel, args, self._cluster.folder),
        )
        return self._of(found, (self._shape[0], sum(len(block.ranks) for block in blocks)))

    def with_computed(
        self, names: Sequence[str], kernel: Callable[..., Array], *args: Any
    ) -> Matrix:
        # Reading files twice costs more than writing them once.
        made, _ = self.made_by_steps(_seen, tuple(names), kernel, args)
        return self.merged_with(made)

    def only(self, *names: str) -> Matrix:
        held = {name: self._held[name] for name in names}
        return SparkMatrix(self._cluster, held, self._shape)

    def merged_with(self, other: Matrix) -> Matrix:
        assert isinstance(other, SparkMatrix)
        return SparkMatrix(self._cluster, {**self._held, **other._held}, self._shape)

    def take(self, chosen: Bools) -> Matrix:
        held = {name: own.take(chosen) for name, own in self._held.items()}
        return SparkMatrix(self._cluster, held, (int(chosen.sum()), self._shape[1]))

    def followed_by(self, others: Sequence[Matrix]) -> Matrix:
        held, steps = dict(self._held), self._shape[0]
        for other in others:
            assert isinstance(other, SparkMatrix)
            held = {
                name: replace(own, parts=own.parts + other._held[name].parts)
                for name, own in held.items()
            }
            steps += other.shape[0]
        return SparkMatrix(self._cluster, held, (steps, self._shape[1]))

    def _of(self, made: Sequence[_Files], shape: tuple[int, int]) -> SparkMatrix:
        files = {
            name: (dtype, [file for one in made for file in one[name][1]])
            for name, (dtype, _) in made[0].items()
        }
        return SparkMatrix.of(self._cluster, files, shape)

    def _steps(self) -> Iterator[_Far]:
        steps, ranks = self._shape
        at_a_time = max(1, self._cluster.cells // max(ranks, 1))
        # At least one block, so that what is put together has its type.
        for begin in range(0, max(steps, 1), at_a_time):
            end = min(begin + at_a_time, steps)
            held = {name: own.within(begin, end) for name, own in self._held.items()}
            yield _Far(slice(begin, end), np.arange(ranks), 0, held)

    def _ranks(self, ranks: Sequence[int] | None) -> Iterator[_Far]:
        steps = self._shape[0]
        chosen = np.arange(self._shape[1]) if ranks is None else np.asarray(ranks, np.int64)
        at_a_time = max(1, self._cluster.cells // max(steps, 1))
        for begin in range(0, max(len(chosen), 1), at_a_time):
            own = chosen[begin : begin + at_a_time]
            held = {name: one.of_ranks(own) for name, one in self._held.items()}
            yield _Far(slice(0, steps), own, begin, held)


#: Per quantity its type and its files.
_Files = dict[str, tuple[str, tuple[Stretch, ...]]]


@dataclass(frozen=True)
class _Far:
    """A block that has not been read."""

    steps: slice
    ranks: Ints
    #: How many ranks are in the blocks before this one.
    before: int
    held: Mapping[str, _Quantity]

    def block(self) -> Block:
        return Block(self.steps, self.ranks, self._read)

    def _read(self, name: str) -> Array:
        return self.held[name].read(self.steps.stop - self.steps.start, self.ranks)


def _seen(
    block: Block, names: Sequence[str], kernel: Callable[..., Array], args: tuple[Any, ...]
) -> tuple[dict[str, Array], None]:
    return {name: kernel(block, name, *args) for name in names}, None


def _found(far: _Far, kernel: Callable[..., T], args: tuple[Any, ...]) -> T:
    """On an executor: what a kernel finds in a block."""
    return kernel(far.block(), *args)


def _made_of_steps(
    far: _Far, kernel: Callable[..., tuple[dict[str, Array], T]], args: tuple[Any, ...], folder: str
) -> tuple[_Files, T]:
    """On an executor: the same, with what it makes in files."""
    arrays, found = kernel(far.block(), *args)
    begin = far.steps.start
    return {
        name: (array.dtype.str, written(array, folder, begin, 0, rank_by_rank=True))
        for name, array in arrays.items()
    }, found


def _made_of_ranks(
    far: _Far, kernel: Callable[..., dict[str, Array]], args: tuple[Any, ...], folder: str
) -> _Files:
    """On an executor: what a kernel makes of all steps of some ranks, in files."""
    return {
        name: (array.dtype.str, written(array, folder, 0, far.before, rank_by_rank=False))
        for name, array in kernel(far.block(), *args).items()
    }
