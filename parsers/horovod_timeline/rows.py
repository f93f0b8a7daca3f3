"""The contents of a timeline as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Activities:
    """Activities that started and ended, one entry each. Times are microseconds of the timeline."""

    tensor: Ints
    #: Index into the reader's ``activity_names``.
    name: Ints
    #: 0 for negotiations and operations, 1 for parts of operations.
    level: Ints
    begin: Ints
    end: Ints
    #: Bytes that an operation put out; -1 for all that is no successful operation.
    size: Ints

    @classmethod
    def joined(cls, several: Sequence[Activities]) -> Activities:
        """Join several into one."""
        return cls(
            np.concatenate([one.tensor for one in several]),
            np.concatenate([one.name for one in several]),
            np.concatenate([one.level for one in several]),
            np.concatenate([one.begin for one in several]),
            np.concatenate([one.end for one in several]),
            np.concatenate([one.size for one in several]),
        )

    def __len__(self) -> int:
        return len(self.begin)

    def only(self, chosen: Bools) -> Activities:
        return self.at(np.flatnonzero(chosen))

    def at(self, chosen: Ints | slice) -> Activities:
        """Return those at these places, in this order."""
        return Activities(
            self.tensor[chosen],
            self.name[chosen],
            self.level[chosen],
            self.begin[chosen],
            self.end[chosen],
            self.size[chosen],
        )


@dataclass(frozen=True)
class Ticks:
    """Times (microseconds) at which a rank had a tensor ready."""

    tensor: Ints
    rank: Ints
    at: Ints

    @classmethod
    def joined(cls, several: Sequence[Ticks]) -> Ticks:
        """Join several into one."""
        return cls(
            np.concatenate([one.tensor for one in several]),
            np.concatenate([one.rank for one in several]),
            np.concatenate([one.at for one in several]),
        )

    def __len__(self) -> int:
        return len(self.at)

    def only(self, chosen: Bools) -> Ticks:
        return Ticks(self.tensor[chosen], self.rank[chosen], self.at[chosen])


@dataclass(frozen=True)
class Batch:
    """The contents of one block of a timeline."""

    #: In the order of their ends; open ones are in a later batch.
    activities: Activities
    ticks: Ticks
    #: Starts of cycles, if HOROVOD_TIMELINE_MARK_CYCLES was set.
    cycles: Ints
    #: The first moment of the block; and the one from which later batches may have activities, where
    #: clocks ran on and nothing is damaged.
    first: int
    settled: int

    @classmethod
    def joined(cls, several: Sequence[Batch]) -> Batch:
        """Join several into one."""
        return cls(
            Activities.joined([one.activities for one in several]),
            Ticks.joined([one.ticks for one in several]),
            np.concatenate([one.cycles for one in several]),
            several[0].first,
            several[-1].settled,
        )
