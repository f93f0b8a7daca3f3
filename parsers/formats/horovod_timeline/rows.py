"""The contents of a timeline as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from stallscope.arrays.types import Bools, Ints


class Columns:
    """Arrays of one length, as a dataclass: a row has one entry in each."""

    if TYPE_CHECKING:
        __match_args__: tuple[str, ...]

        def __init__(self, *columns: Any) -> None: ...

    @classmethod
    def joined(cls, several: Sequence[Self]) -> Self:
        """Join several into one."""
        return cls(*map(np.concatenate, zip(*several, strict=True)))

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self.__match_args__)

    def __len__(self) -> int:
        return len(next(iter(self)))

    def only(self, chosen: Bools) -> Self:
        """Return the chosen rows."""
        return self.take(np.flatnonzero(chosen))

    def take(self, places: Ints | slice) -> Self:
        """Return the rows at these places, in this order."""
        return type(self)(*[column[places] for column in self])


@dataclass(frozen=True)
class Activities(Columns):
    """Activities that started and ended. Times are microseconds of the timeline."""

    tensor: Ints
    #: Index into the reader's ``activity_names``.
    name: Ints
    #: 0 for negotiations and operations, 1 for parts of operations.
    level: Ints
    begin: Ints
    end: Ints
    #: The output of a successful operation, bytes; -1 for all other activities.
    size: Ints


@dataclass(frozen=True)
class Ticks(Columns):
    """Times (microseconds) at which a rank had a tensor ready."""

    tensor: Ints
    rank: Ints
    at: Ints


@dataclass(frozen=True)
class BlockRows:
    """The contents of one block of a timeline."""

    #: In the order of their ends; open ones are in a later block.
    activities: Activities
    ticks: Ticks
    #: Starts of cycles, if HOROVOD_TIMELINE_MARK_CYCLES was set.
    cycles: Ints
    #: The first moment of the block, and the earliest one of activities in later blocks, unless the file
    #: is damaged.
    first: int
    settled: int
    #: Whether a restarted job begins with this block.
    restarted: bool = False

    @classmethod
    def joined(cls, several: Sequence[BlockRows]) -> BlockRows:
        """Join several into one."""
        return cls(
            Activities.joined([block.activities for block in several]),
            Ticks.joined([block.ticks for block in several]),
            np.concatenate([block.cycles for block in several]),
            several[0].first,
            several[-1].settled,
            any(block.restarted for block in several),
        )
