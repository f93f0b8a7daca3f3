"""What a run has per step and rank, in blocks: kernels compute, and the holder of the blocks moves them.

A kernel is a function of a module over one block and arguments that are the same for all blocks. What it
gives back is small: something per step or per rank of its block, or the few cells that it looks for.
The caller joins the blocks' results, which come in the blocks' order. So one and the same
analysis runs on arrays in memory, on files that are mapped into it, and on a cluster's partitions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .memory import Room, in_memory
from .types import Bools, Ints

Array = npt.NDArray[Any]
T = TypeVar("T")

#: Stands for "not measured" in arrays of int64, and what is later than any time.
NULL: int = np.iinfo(np.int64).min
LATEST: int = np.iinfo(np.int64).max

#: Cells of a block: they fit into a processor's cache.
CELLS = 2**18
# Rows in more pieces than this are picked one by one.
_MOST_PIECES = 64


@dataclass(frozen=True)
class Block:
    """Some steps × some ranks of all quantities."""

    #: Positions of its steps, which follow each other, and of its ranks.
    steps: slice
    ranks: Ints
    read: Callable[[str], Array]

    def __getitem__(self, name: str) -> Array:
        """Steps × ranks of a quantity; ``other`` is what is left of an arrival."""
        return _with_other(name, self.read)

    def of(self, name: str, ranks: Ints) -> Array:
        """The same of some of a block's ranks, by their places in it."""
        return _with_other(name, lambda own: ranks_of(self.read(own), ranks))

    @property
    def shape(self) -> tuple[int, int]:
        return self.steps.stop - self.steps.start, len(self.ranks)

    def within(self, ascending: Ints) -> slice:
        """Where in ascending positions of steps this block's own ones are."""
        low, high = np.searchsorted(ascending, (self.steps.start, self.steps.stop))
        return slice(int(low), int(high))


def _with_other(name: str, read: Callable[[str], Array]) -> Array:
    if name == "other":
        return np.asarray(read("arrival") - read("input") - read("compute"))
    return read(name)


class Cells(ABC):
    """Quantities of n steps × R ranks."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """n and R."""

    @abstractmethod
    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        """What a kernel finds in blocks of some steps of all ranks, in their order."""

    @abstractmethod
    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        """What a kernel finds in blocks of all steps of some ranks, in their order.

        Args:
            kernel: see this module's first lines.
            args: what it is given besides the block.
            ranks: positions of ranks, if only these are wanted.
        """

    @abstractmethod
    def made_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Cells, list[T]]:
        """Quantities that a kernel makes of blocks of some steps, and what else it gives back."""

    @abstractmethod
    def seen_as(self, names: Sequence[str], kernel: Callable[..., Array], *args: Any) -> Cells:
        """The same with quantities that a kernel makes, given their names, whenever they are read."""

    @abstractmethod
    def made_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Cells:
        """Quantities that a kernel makes of all steps of some ranks: n × as many."""

    @abstractmethod
    def only(self, *names: str) -> Cells:
        """The same with these quantities alone."""

    @abstractmethod
    def beside(self, other: Cells) -> Cells:
        """The same with another one's quantities, of which those of the same name take the place."""

    @abstractmethod
    def take(self, chosen: Bools) -> Cells:
        """The same for some of the steps."""

    @abstractmethod
    def followed_by(self, others: Sequence[Cells]) -> Cells:
        """The steps of several with the same ranks, one after the other."""

    def at(self, name: str, steps: Ints, ranks: Ints) -> Array:
        """A quantity in single cells."""
        order = np.argsort(steps, kind="stable")
        steps, ranks = steps[order], ranks[order]
        found = self._of_some(_picked, (0,), name, steps, ranks)
        result = np.empty_like(found)
        result[order] = found
        return result

    def rows(self, name: str, steps: Ints) -> Array:
        """A quantity in a few steps, in ascending order: as many × R."""
        return self._of_some(_rows, (0, self.shape[1]), name, steps)

    def _of_some(
        self,
        kernel: Callable[..., Array | None],
        none: tuple[int, ...],
        name: str,
        steps: Ints,
        *args: Any,
    ) -> Array:
        """What a kernel finds of a few steps, for which it need not read most blocks."""
        parts = self.by_steps(kernel, name, steps, *args) if len(steps) else []
        found = [part for part in parts if part is not None]
        return np.concatenate(found) if found else np.zeros(none, np.int64)

    def columns(self, name: str, ranks: Sequence[int]) -> Array:
        """A quantity of a few ranks: n × as many."""
        return np.concatenate(self.by_steps(_columns, name, np.asarray(ranks, np.int64)))

    def gathered(self, kernel: Callable[..., Sequence[Array]], *args: Any) -> list[Array]:
        """What a kernel finds of every step: of each of its results, whose last axis are the block's
        steps, the blocks' ones one after the other.
        """
        parts = zip(*self.by_steps(kernel, *args), strict=True)
        return [np.concatenate(part, axis=-1) for part in parts]

    def per_step(self, kernel: Callable[..., Array], *args: Any) -> Array:
        """What a kernel finds of every step, the blocks' results one after the other."""
        return np.concatenate(self.by_steps(kernel, *args))

    def summed(self, kernel: Callable[..., Any], *args: Any) -> Any:
        """What a kernel finds in blocks of steps, added up."""
        return added(self.by_steps(kernel, *args))

    def whole(self, name: str) -> Array:
        """A quantity of all cells, n × R: what shows or exports single cells reads it."""
        return self.columns(name, range(self.shape[1]))


def added(parts: Sequence[Any]) -> Any:
    """The sum of several results, at least one."""
    return sum(parts[1:], start=parts[0])


def _picked(block: Block, name: str, steps: Ints, ranks: Ints) -> Array | None:
    own = block.within(steps)
    if own.start == own.stop:
        return None
    return np.asarray(block[name][steps[own] - block.steps.start, ranks[own]])


def _rows(block: Block, name: str, steps: Ints) -> Array | None:
    own = steps[block.within(steps)] - block.steps.start
    if not len(own):
        return None
    return _with_other(name, lambda one: np.take(block.read(one).T, own, axis=1).T)


def _columns(block: Block, name: str, ranks: Ints) -> Array:
    return block.of(name, ranks)


def _same(block: Block, name: str) -> tuple[dict[str, Array], None]:
    return {name: block[name]}, None


class HeldCells(Cells):
    """Cells on this machine: in memory, or in files that are mapped into it."""

    def __init__(
        self, held: Mapping[str, _Rows], shape: tuple[int, int], room: Room = in_memory
    ) -> None:
        self._held, self._shape, self._room = dict(held), shape, room

    @classmethod
    def of(cls, arrays: Mapping[str, Array], room: Room = in_memory) -> HeldCells:
        """Cells of arrays of n × R, at least one, that lie rank by rank."""
        shape = next(iter(arrays.values())).shape
        held = {name: _Rows.of(array) for name, array in arrays.items()}
        return cls(held, (shape[0], shape[1]), room)

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def arrays(self) -> list[Array]:
        """What they are read from: some of it may be more than theirs, or another one's, too."""
        parts = (part for held in self._held.values() for part in held.parts)
        return [part.source.array for part in parts if isinstance(part.source, _Stored)]

    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        return on_all_cores(lambda block: kernel(block, *args), list(self._steps()))

    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        return on_all_cores(lambda block: kernel(block, *args), list(self._ranks(ranks)))

    def made_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Cells, list[T]]:
        made = _Made(self._shape, self._room)

        def one(block: Block) -> T:
            arrays, found = kernel(block, *args)
            made.put(arrays, (block.steps, slice(None)))
            return found

        found = on_all_cores(one, list(self._steps()))
        return HeldCells.of(made.arrays, self._room), found

    def made_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Cells:
        blocks = list(self._ranks(ranks))
        made = _Made((self._shape[0], sum(len(block.ranks) for block in blocks)), self._room)
        ends = np.cumsum([len(block.ranks) for block in blocks]).tolist()

        def one(numbered: tuple[int, Block]) -> None:
            end, block = numbered
            made.put(kernel(block, *args), (slice(None), slice(end - len(block.ranks), end)))

        on_all_cores(one, list(zip(ends, blocks, strict=True)))
        return HeldCells.of(made.arrays, self._room)

    def seen_as(self, names: Sequence[str], kernel: Callable[..., Array], *args: Any) -> Cells:
        steps, ranks = self._shape
        seen = {}
        for name in names:
            source = _Computed(self._read, kernel, (name, *args), ranks)
            seen[name] = _Rows([_Part(source, slice(0, steps))])
        return HeldCells({**self._held, **seen}, self._shape, self._room)

    def only(self, *names: str) -> Cells:
        return HeldCells({name: self._held[name] for name in names}, self._shape, self._room)

    def beside(self, other: Cells) -> Cells:
        assert isinstance(other, HeldCells)
        return HeldCells({**self._held, **other._held}, self._shape, self._room)

    def take(self, chosen: Bools) -> Cells:
        if chosen.all():
            return self
        held = {name: own.take(chosen) for name, own in self._held.items()}
        return HeldCells(held, (int(chosen.sum()), self._shape[1]), self._room)

    def followed_by(self, others: Sequence[Cells]) -> Cells:
        held, steps = dict(self._held), self._shape[0]
        for other in others:
            assert isinstance(other, HeldCells)
            held = {name: own.followed_by(other._held[name]) for name, own in held.items()}
            steps += other.shape[0]
        return HeldCells(held, (steps, self._shape[1]), self._room)

    def whole(self, name: str) -> Array:
        if name == "other":
            return _with_other(name, self.whole)
        if not self._held[name].lies_whole:
            # Joined once, because callers that need all of it need it again.
            made, _ = self.made_by_steps(_same, name)
            self._held[name] = _Rows.of(made.whole(name))
        return self._held[name].read(slice(0, self._shape[0]))

    def _steps(self) -> Iterator[Block]:
        steps, ranks = self._shape
        everybody = np.arange(ranks)
        at_a_time = max(1, CELLS // max(ranks, 1))
        # At least one block, so that what is put together has its type.
        for begin in range(0, max(steps, 1), at_a_time):
            own = slice(begin, min(begin + at_a_time, steps))
            yield Block(own, everybody, partial(self._read, own, None))

    def _ranks(self, ranks: Sequence[int] | None) -> Iterator[Block]:
        steps = self._shape[0]
        chosen = np.arange(self._shape[1]) if ranks is None else np.asarray(ranks, np.int64)
        at_a_time = max(1, CELLS // max(steps, 1))
        whole = slice(0, steps)
        for begin in range(0, max(len(chosen), 1), at_a_time):
            own = chosen[begin : begin + at_a_time]
            yield Block(whole, own, partial(self._read, whole, own))

    def _read(self, steps: slice, ranks: Ints | None, name: str) -> Array:
        return self._held[name].read(steps, ranks)


class _Made:
    """Arrays that blocks fill; they are made when the first block tells their types."""

    def __init__(self, shape: tuple[int, int], room: Room) -> None:
        self._shape, self._room = shape, room
        self._first = Lock()
        self.arrays: dict[str, Array] = {}

    def put(self, arrays: Mapping[str, Array], where: tuple[slice, slice]) -> None:
        if self._is_all(arrays):
            self.arrays = dict(arrays)
            return
        with self._first:
            if not self.arrays:
                self.arrays = {
                    name: self._room(self._shape, array.dtype) for name, array in arrays.items()
                }
        for name, array in arrays.items():
            self.arrays[name][where] = array

    def _is_all(self, arrays: Mapping[str, Array]) -> bool:
        """Whether it is one block that lies as it should: copies would be the same."""
        as_made = (
            array.shape == self._shape and array.flags.f_contiguous for array in arrays.values()
        )
        return self._room is in_memory and all(as_made)


@dataclass(frozen=True)
class _Stored:
    """An array of steps × ranks."""

    array: Array

    def read(self, steps: slice, ranks: Ints | None) -> Array:
        array = self.array[steps]
        return array if ranks is None else ranks_of(array, ranks)

    def pick(self, steps: Ints, ranks: Ints | None) -> Array:
        # In the memory's order.
        array = np.take(self.array.T, steps, axis=1).T
        return array if ranks is None else ranks_of(array, ranks)


@dataclass(frozen=True)
class _Computed:
    """What a kernel makes of others."""

    of: Callable[[slice, Ints | None, str], Array]
    kernel: Callable[..., Array]
    args: tuple[Any, ...]
    ranks: int

    def read(self, steps: slice, ranks: Ints | None) -> Array:
        own = np.arange(self.ranks) if ranks is None else ranks
        return self.kernel(Block(steps, own, partial(self.of, steps, ranks)), *self.args)

    def pick(self, steps: Ints, ranks: Ints | None) -> Array:
        # In ascending order, as they are taken.
        first, last = (int(steps[0]), int(steps[-1])) if len(steps) else (0, -1)
        return self.read(slice(first, last + 1), ranks)[steps - first]


@dataclass(frozen=True)
class _Part:
    """Some rows of what there is of a quantity."""

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
        return [_Part(self.source, slice(int(own[0]), int(own[-1]) + 1)) for own in filled]


def ranks_of(array: Array, ranks: Ints) -> Array:
    """Columns of an array of steps × ranks; a view where the ranks follow each other."""
    if len(ranks) and ranks[-1] - ranks[0] + 1 == len(ranks) and (np.diff(ranks) == 1).all():
        return array[:, ranks[0] : ranks[-1] + 1]
    return np.asarray(array.T[ranks].T)


class _Rows:
    """Rows of arrays with the same ranks, one after the other."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.parts = tuple(parts)
        self._ends = list(accumulate(len(part) for part in parts))

    @classmethod
    def of(cls, array: Array) -> _Rows:
        return cls([_Part(_Stored(array), slice(0, len(array)))])

    @property
    def lies_whole(self) -> bool:
        """Whether an array can be had without copying."""
        return len(self.parts) == 1 and isinstance(self.parts[0].source, _Stored)

    def read(self, rows: slice, ranks: Ints | None = None) -> Array:
        found: list[Array] = []
        begin = 0
        for part, end in zip(self.parts, self._ends, strict=True):
            low, high = max(rows.start, begin), min(rows.stop, end)
            if low < high or (not found and part is self.parts[-1]):
                high = max(low, high)
                found.append(part.read(slice(low - begin, high - begin), ranks))
            begin = end
        return found[0] if len(found) == 1 else np.concatenate([one.T for one in found], axis=1).T

    def take(self, chosen: Bools) -> _Rows:
        parts, begin = [], 0
        for part, end in zip(self.parts, self._ends, strict=True):
            parts += part.take(chosen[begin:end])
            begin = end
        return _Rows(parts or [_Part(self.parts[0].source, slice(0, 0))])

    def followed_by(self, other: _Rows) -> _Rows:
        return _Rows((*self.parts, *other.parts))


def on_all_cores(work: Callable[[Any], T], parts: Sequence[Any]) -> list[T]:
    """What comes of each part, in their order; numpy computes without holding Python up."""
    if len(parts) < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(pa.cpu_count()) as pool:
        return list(pool.map(work, parts))
