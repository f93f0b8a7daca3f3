"""Matrices of steps × ranks, computed block by block.

A kernel is a module-level function over one block, with further arguments that are the same for all
blocks. It returns something small: a value per step or per rank of its block, or the few cells that it
searches for. The caller joins the results, which are in the order of the blocks. So the same analysis
runs on arrays in memory, on memory-mapped files, and on the partitions of a cluster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .types import Bools, Ints

Array = npt.NDArray[Any]
T = TypeVar("T")

#: "Not measured" in arrays of int64.
NULL: int = np.iinfo(np.int64).min
#: Later than any time.
LATEST: int = np.iinfo(np.int64).max

#: The type in which integers are stored if they fit into half of their bytes.
NARROW = np.dtype(np.int32)


@dataclass(frozen=True)
class Block:
    """Some steps × some ranks of every quantity."""

    #: Positions of its steps, which are contiguous, and of its ranks.
    steps: slice
    ranks: Ints
    #: Returns a quantity as it is stored: integers may be narrow.
    read: Callable[[str], Array]

    def __getitem__(self, name: str) -> Array:
        """Return steps × ranks of a quantity; ``other`` is arrival − input − compute."""
        return with_other(name, self.read)

    def of(self, name: str, ranks: Ints) -> Array:
        """Return a quantity for some ranks, given by their positions in the block."""
        return with_other(name, lambda quantity: ranks_of(self.read(quantity), ranks))

    def at_steps(self, name: str, steps: Ints) -> Array:
        """Return a quantity at a few steps, given by their positions in the block."""
        return with_other(name, lambda quantity: np.take(self.read(quantity).T, steps, axis=1).T)

    def at(self, name: str, steps: Ints, ranks: Ints) -> Array:
        """Return a quantity in single cells, given by their positions in the block."""
        return with_other(name, lambda quantity: self.read(quantity)[steps, ranks])

    @property
    def shape(self) -> tuple[int, int]:
        return self.steps.stop - self.steps.start, len(self.ranks)

    def within(self, ascending: Ints) -> slice:
        """Return the slice of ascending step positions that lie in this block."""
        low, high = np.searchsorted(ascending, (self.steps.start, self.steps.stop))
        return slice(int(low), int(high))


def with_other(name: str, read: Callable[[str], Array]) -> Array:
    """Return a quantity that is read by name; ``other`` is computed from three others."""
    if name == "other":
        arrival, fetch, compute = (
            _wide(read(quantity)) for quantity in ("arrival", "input", "compute")
        )
        return np.asarray(arrival - fetch - compute)
    return _wide(read(name))


def _wide(array: Array) -> Array:
    """Return integers as int64, which sums and differences do not exceed."""
    return array.astype(np.int64) if array.dtype == NARROW else array


def ranks_of(array: Array, ranks: Ints) -> Array:
    """Return columns of an array of steps × ranks; a view where the ranks are contiguous."""
    if len(ranks) and ranks[-1] - ranks[0] + 1 == len(ranks) and (np.diff(ranks) == 1).all():
        return array[:, ranks[0] : ranks[-1] + 1]
    return np.asarray(array.T[ranks].T)


class Matrix(ABC):
    """Quantities of n steps × R ranks, by name.

    Args:
        held: each quantity's rows, with methods ``take`` and ``followed_by``.
        shape: the numbers of steps and ranks, n and R.
    """

    def __init__(self, held: Mapping[str, Any], shape: tuple[int, int]) -> None:
        self._held, self._shape = dict(held), shape

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of steps and ranks, n and R."""
        return self._shape

    @property
    def names(self) -> frozenset[str]:
        """The names of the quantities."""
        return frozenset(self._held)

    @abstractmethod
    def _like(self, held: Mapping[str, Any], shape: tuple[int, int]) -> Matrix:
        """Return a matrix of other rows, of the same kind as this one."""

    @abstractmethod
    def by_steps(self, kernel: Callable[..., T], *args: Any) -> list[T]:
        """Run a kernel on blocks of some steps of all ranks; return its results in order."""

    @abstractmethod
    def by_ranks(
        self, kernel: Callable[..., T], *args: Any, ranks: Sequence[int] | None = None
    ) -> list[T]:
        """Run a kernel on blocks of all steps of some ranks; return its results in order.

        Args:
            kernel: see the module's docstring.
            args: its further arguments.
            ranks: positions of the ranks to look at; all by default.
        """

    @abstractmethod
    def compute_by_steps(
        self, kernel: Callable[..., tuple[dict[str, Array], T]], *args: Any
    ) -> tuple[Matrix, list[T]]:
        """Compute new quantities step by step.

        The kernel returns them by name, with another result. Returns a matrix of the new quantities, and
        the other results in order.
        """

    @abstractmethod
    def with_computed(
        self, names: Sequence[str], kernel: Callable[..., Array], *args: Any
    ) -> Matrix:
        """Return this matrix with quantities that a kernel computes by name whenever they are read."""

    @abstractmethod
    def compute_by_ranks(
        self,
        kernel: Callable[..., dict[str, Array]],
        *args: Any,
        ranks: Sequence[int] | None = None,
    ) -> Matrix:
        """Compute new quantities of some ranks over all steps: n × that many ranks."""

    def only(self, *names: str) -> Matrix:
        """Return a matrix of these quantities only."""
        return self._like({name: self._held[name] for name in names}, self._shape)

    def merged_with(self, matrix: Matrix) -> Matrix:
        """Return both matrices' quantities; those of ``matrix`` replace those of the same name."""
        return self._like({**self._held, **matrix._held}, self._shape)

    def take(self, chosen: Bools) -> Matrix:
        """Return a matrix of the chosen steps."""
        if chosen.all():
            return self
        held = {name: rows.take(chosen) for name, rows in self._held.items()}
        return self._like(held, (int(chosen.sum()), self._shape[1]))

    def followed_by(self, others: Sequence[Matrix]) -> Matrix:
        """Return the steps of several matrices of the same ranks, one after the other."""
        held, steps = self._held, self._shape[0]
        for matrix in others:
            held = {name: rows.followed_by(matrix._held[name]) for name, rows in held.items()}
            steps += matrix.shape[0]
        return self._like(held, (steps, self._shape[1]))

    def at(self, name: str, steps: Ints, ranks: Ints) -> Array:
        """Return a quantity in single cells."""
        order = np.argsort(steps, kind="stable")
        steps, ranks = steps[order], ranks[order]
        by_step = self._of_some(_picked, (0,), name, steps, ranks)
        values = np.empty_like(by_step)
        values[order] = by_step
        return values

    def rows(self, name: str, steps: Ints) -> Array:
        """Return a quantity in a few ascending steps: that many × R."""
        return self._of_some(_rows, (0, self.shape[1]), name, steps)

    def _of_some(
        self,
        kernel: Callable[..., Array | None],
        none: tuple[int, ...],
        name: str,
        steps: Ints,
        *args: Any,
    ) -> Array:
        """Run a kernel that returns None for blocks without these steps, and join the rest."""
        parts = self.by_steps(kernel, name, steps, *args) if len(steps) else []
        pieces = [part for part in parts if part is not None]
        return np.concatenate(pieces) if pieces else np.zeros(none, np.int64)

    def columns(self, name: str, ranks: Sequence[int]) -> Array:
        """Return a quantity of a few ranks: n × that many."""
        return np.concatenate(self.by_steps(_columns, name, np.asarray(ranks, np.int64)))

    def mean_of(self, name: str, ranks: Sequence[int]) -> Array:
        """Return the mean of a quantity over some ranks, per step."""
        return self.per_step(_mean_of, name, np.asarray(ranks, np.int64))

    def gathered(self, kernel: Callable[..., Sequence[Array]], *args: Any) -> list[Array]:
        """Run a kernel that returns several arrays with steps as the last axis; join each of them."""
        parts = zip(*self.by_steps(kernel, *args), strict=True)
        return [np.concatenate(part, axis=-1) for part in parts]

    def per_step(self, kernel: Callable[..., Array], *args: Any) -> Array:
        """Run a kernel that returns a value per step; join the results."""
        return np.concatenate(self.by_steps(kernel, *args))

    def summed(self, kernel: Callable[..., Any], *args: Any) -> Any:
        """Run a kernel on blocks of steps, and add up its results."""
        return added(self.by_steps(kernel, *args))

    def whole(self, name: str) -> Array:
        """Return a quantity of all cells, n × R, for pages and exports that show single cells."""
        return self.columns(name, range(self.shape[1]))


def added(parts: Sequence[Any]) -> Any:
    """Add up at least one result."""
    return sum(parts[1:], start=parts[0])


def _picked(block: Block, name: str, steps: Ints, ranks: Ints) -> Array | None:
    cells = block.within(steps)
    if cells.start == cells.stop:
        return None
    return block.at(name, steps[cells] - block.steps.start, ranks[cells])


def _rows(block: Block, name: str, steps: Ints) -> Array | None:
    positions = steps[block.within(steps)] - block.steps.start
    return block.at_steps(name, positions) if len(positions) else None


def _columns(block: Block, name: str, ranks: Ints) -> Array:
    return block.of(name, ranks)


def _mean_of(block: Block, name: str, ranks: Ints) -> Array:
    return np.asarray(block.of(name, ranks).mean(axis=1))


def of_each(join: np.ufunc, values: Ints, starts: Ints) -> Ints:
    """Reduce each group of consecutive rows to one row: groups × columns.

    Args:
        join: ``np.minimum`` or ``np.maximum``.
        values: rows × columns.
        starts: the first row of each group, ascending from 0; no group is empty.
    """
    sizes = np.diff(starts, append=len(values))
    if len(sizes) and (sizes == sizes[0]).all():
        # An eighth of the general case's time.
        groups = values.reshape(len(sizes), int(sizes[0]), values.shape[1])
        return np.asarray(join.reduce(groups, axis=1))
    return np.asarray(join.reduceat(values, starts, axis=0))


def on_all_cores(work: Callable[[Any], T], parts: Sequence[Any]) -> list[T]:
    """Apply a function to each part in threads, in order: numpy releases the interpreter's lock."""
    if len(parts) < 2:
        return [work(part) for part in parts]
    # Threads take parts one by one, which costs less than a task for each.
    left = deque(enumerate(parts))
    results: dict[int, T] = {}

    def work_on() -> None:
        while True:
            try:
                at, part = left.popleft()
            except IndexError:
                return
            results[at] = work(part)

    threads = min(pa.cpu_count(), len(parts))
    with ThreadPoolExecutor(threads) as pool:
        try:
            for task in [pool.submit(work_on) for _ in range(threads)]:
                task.result()
        finally:
            # After an error or Ctrl-C, no thread starts another part.
            left.clear()
    return [results[at] for at in range(len(parts))]
