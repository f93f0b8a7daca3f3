"""Store matrices of steps × ranks on this machine: in memory, or in memory-mapped files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from .blocks import NARROW, Array, Block, Matrix, on_all_cores, ranks_of, with_other
from .memory import Allocator, in_memory
from .types import Bools, Ints

T = TypeVar("T")

#: Cells of a block: they fit into the CPU's cache.
CELLS = 2**18
# Rows in more pieces than this are copied one by one.
_MOST_PIECES = 64


class LocalMatrix(Matrix):
    """A matrix on this machine: in memory, or in memory-mapped files."""

    def __init__(
        self, held: Mapping[str, _Rows], shape: tuple[int, int], allocate: Allocator = in_memory
    ) -> None:
        super().__init__(held, shape)
        self._allocate = allocate

    @classmethod
    def of(cls, arrays: Mapping[str, Array], allocate: Allocator = in_memory) -> LocalMatrix:
        """Make a matrix of at least one array of n × R in column-major order."""
        shape = next(iter(arrays.values())).shape
        held = {name: _Rows.of(array) for name, array in arrays.items()}
        return cls(held, (shape[0], shape[1]), allocate)

    def _like(self, held: Mapping[str, _Rows], shape: tuple[int, int]) -> Matrix:
        return LocalMatrix(held, shape, self._allocate)

    @property
    def arrays(self) -> list[Array]:
        """Return the arrays that the matrix reads from; it may use only a part of them."""
        parts = (part for held in self._held.values() for part in held.parts)
        return [part.source.array for part in parts if isinstance(part.source, _Stored)]

    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        return on_all_cores(lambda block: kernel(block, *args), list(self._steps()))

    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        return on_all_cores(lambda block: kernel(block, *args), list(self._ranks(ranks)))

    def compute_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Matrix, list[T]]:
        target = _Target(self._shape, self._allocate)
        results = self._fill(target, kernel, *args)
        return LocalMatrix.of(target.arrays, self._allocate), results

    def _fill(
        self, target: _Target, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> list[T]:
        def fill(block: Block) -> T:
            arrays, result = kernel(block, *args)
            target.put(arrays, (block.steps, slice(None)))
            return result

        return on_all_cores(fill, list(self._steps()))

    def compute_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Matrix:
        blocks = list(self._ranks(ranks))
        target = _Target(
            (self._shape[0], sum(len(block.ranks) for block in blocks)), self._allocate
        )
        ends = np.cumsum([len(block.ranks) for block in blocks]).tolist()

        def fill(numbered: tuple[int, Block]) -> None:
            end, block = numbered
            target.put(kernel(block, *args), (slice(None), slice(end - len(block.ranks), end)))

        on_all_cores(fill, list(zip(ends, blocks, strict=True)))
        return LocalMatrix.of(target.arrays, self._allocate)

    def with_computed(
        self, names: Sequence[str], kernel: Callable[..., Array], *args: Any
    ) -> Matrix:
        steps, ranks = self._shape
        seen = {}
        for name in names:
            source = _Computed(self._read, kernel, (name, *args), ranks)
            seen[name] = _Rows([_Part(source, slice(0, steps))])
        return self._like({**self._held, **seen}, self._shape)

    def whole(self, name: str) -> Array:
        if name == "other":
            return with_other(name, self.whole)
        if not self._held[name].is_one_array:
            # Keep the joined array, because callers need it again.
            target = _Target(self._shape, self._allocate, narrow=False)
            self._fill(target, _same, name)
            self._held[name] = _Rows.of(target.arrays[name])
        whole: Array = self._held[name].read(slice(0, self._shape[0]))
        return whole

    def _steps(self) -> Iterator[Block]:
        steps, ranks = self._shape
        all_ranks = np.arange(ranks)
        at_a_time = max(1, CELLS // max(ranks, 1))
        # At least one block, so that joined results have a type.
        for begin in range(0, max(steps, 1), at_a_time):
            block_steps = slice(begin, min(begin + at_a_time, steps))
            yield Block(block_steps, all_ranks, partial(self._read, block_steps, None))

    def _ranks(self, ranks: Sequence[int] | None) -> Iterator[Block]:
        steps = self._shape[0]
        chosen = np.arange(self._shape[1]) if ranks is None else np.asarray(ranks, np.int64)
        at_a_time = max(1, CELLS // max(steps, 1))
        whole = slice(0, steps)
        for begin in range(0, max(len(chosen), 1), at_a_time):
            block_ranks = chosen[begin : begin + at_a_time]
            yield Block(whole, block_ranks, partial(self._read, whole, block_ranks))

    def _read(self, steps: slice, ranks: Ints | None, name: str) -> Array:
        array: Array = self._held[name].read(steps, ranks)
        return array


class _Target:
    """Arrays that blocks fill, allocated when the first block shows their types.

    Integers are stored in half of their bytes as long as those of all blocks fit, if ``narrow``.
    """

    def __init__(self, shape: tuple[int, int], allocate: Allocator, *, narrow: bool = True) -> None:
        self._shape, self._allocate, self._narrow = shape, allocate, narrow
        self._filling = Lock()
        self.arrays: dict[str, Array] = {}

    def put(self, arrays: Mapping[str, Array], where: tuple[slice, slice]) -> None:
        if self._is_all(arrays):
            self.arrays = dict(arrays)
            return
        kinds = {
            name: NARROW if self._narrow and _is_narrow(array) else array.dtype
            for name, array in arrays.items()
        }
        with self._filling:
            for name, kind in kinds.items():
                self._make(name, kind)
                self.arrays[name][where] = arrays[name]

    def _make(self, name: str, kind: np.dtype[Any]) -> None:
        """Make an array for values of a type, or make it wide enough for them."""
        old = self.arrays.get(name)
        if old is not None and old.dtype.itemsize >= kind.itemsize:
            return
        self.arrays[name] = self._allocate(self._shape, kind)
        if old is not None:
            self.arrays[name][:] = old

    def _is_all(self, arrays: Mapping[str, Array]) -> bool:
        """Whether one block has all cells in the right order, so that no copy is needed."""
        as_made = (
            array.shape == self._shape and array.flags.f_contiguous for array in arrays.values()
        )
        return self._allocate is in_memory and all(as_made)


@dataclass(frozen=True)
class _Stored:
    """An array of steps × ranks."""

    array: Array

    @property
    def is_narrow(self) -> bool:
        return self.array.dtype == NARROW

    def read(self, steps: slice, ranks: Ints | None) -> Array:
        array = self.array[steps]
        return array if ranks is None else ranks_of(array, ranks)

    def pick(self, steps: Ints, ranks: Ints | None) -> Array:
        # Take along the contiguous axis.
        array = np.take(self.array.T, steps, axis=1).T
        return array if ranks is None else ranks_of(array, ranks)


@dataclass(frozen=True)
class _Computed:
    """Quantities that a kernel computes from others."""

    of: Callable[[slice, Ints | None, str], Array]
    kernel: Callable[..., Array]
    args: tuple[Any, ...]
    ranks: int

    def read(self, steps: slice, ranks: Ints | None) -> Array:
        positions = np.arange(self.ranks) if ranks is None else ranks
        return self.kernel(Block(steps, positions, partial(self.of, steps, ranks)), *self.args)

    def pick(self, steps: Ints, ranks: Ints | None) -> Array:
        # Steps ascend, because ``take`` chooses them in order.
        first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (0, -1)
        return self.read(slice(first, last + 1), ranks)[steps - first]


@dataclass(frozen=True)
class _Part:
    """Some rows of the source of a quantity."""

    source: _Stored | _Computed
    at: slice | Ints

    def __len__(self) -> int:
        return self.at.stop - self.at.start if isinstance(self.at, slice) else len(self.at)

    def read(self, rows: slice, ranks: Ints | None) -> Array:
        if isinstance(self.at, slice):
            first = self.at.start
            return self.source.read(slice(first + rows.start, first + rows.stop), ranks)
        return self.source.pick(self.at[rows], ranks)

    def take(self, chosen: Bools) -> list[_Part]:
        at = np.flatnonzero(chosen)
        if not isinstance(self.at, slice):
            return [_Part(self.source, self.at[at])]
        at += self.at.start
        pieces = np.split(at, np.flatnonzero(np.diff(at) != 1) + 1)
        if len(pieces) > _MOST_PIECES:
            return [_Part(self.source, at)]
        filled = [piece for piece in pieces if len(piece)]
        return [_Part(self.source, slice(int(piece[0]), int(piece[-1]) + 1)) for piece in filled]


class _Rows:
    """Rows of arrays with the same ranks, one after the other."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = tuple(parts)
        self._ends = list(accumulate(len(part) for part in parts))

    @classmethod
    def of(cls, array: Array) -> _Rows:
        return cls([_Part(_Stored(array), slice(0, len(array)))])

    @property
    def is_one_array(self) -> bool:
        """Whether one array has all rows, so that no copy is needed."""
        source = self.parts[0].source
        return len(self.parts) == 1 and isinstance(source, _Stored) and not source.is_narrow

    def read(self, rows: slice, ranks: Ints | None = None) -> Array:
        arrays: list[Array] = []
        begin = 0
        for part, end in zip(self.parts, self._ends, strict=True):
            low, high = max(rows.start, begin), min(rows.stop, end)
            if low < high or (not arrays and part is self.parts[-1]):
                high = max(low, high)
                arrays.append(part.read(slice(low - begin, high - begin), ranks))
            begin = end
        return (
            arrays[0]
            if len(arrays) == 1
            else np.concatenate([array.T for array in arrays], axis=1).T
        )

    def take(self, chosen: Bools) -> _Rows:
        parts, begin = [], 0
        for part, end in zip(self.parts, self._ends, strict=True):
            parts += part.take(chosen[begin:end])
            begin = end
        return _Rows(parts or [_Part(self.parts[0].source, slice(0, 0))])

    def followed_by(self, rows: _Rows) -> _Rows:
        return _Rows((*self.parts, *rows.parts))


def _same(block: Block, name: str) -> tuple[dict[str, Array], None]:
    return {name: block[name]}, None


def _is_narrow(array: Array) -> bool:
    """Whether an array's integers fit into half of their bytes, as nanoseconds below 2 seconds do."""
    if array.dtype != np.int64 or not array.size:
        return False
    limits = np.iinfo(NARROW)
    return bool(array.min() >= limits.min and array.max() <= limits.max)
