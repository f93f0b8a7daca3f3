"""Make what a reader of Horovod Timelines returns, without a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stallscope.parsers.formats.horovod_timeline import Activities, BlockRows, Ticks

# Per activity: tensor, name, level, start, end, bytes.
Activity = tuple[int, str, int, int, int, int | None]


@dataclass
class MadeTimeline:
    """A timeline from hand-made blocks."""

    activity_names: tuple[str, ...]
    several: list[BlockRows]
    tensors: dict[int, str]

    def block_rows(self) -> Iterator[BlockRows]:
        yield from self.several


def timeline(
    activities: Iterable[Activity] = (),
    ticks: Iterable[tuple[int, int, int]] = (),
    cycles: Iterable[int] = (),
) -> MadeTimeline:
    """Make a timeline of one block.

    Args:
        activities: in the order of ``Activity``.
        ticks: tensor, rank and time of each rank that became ready.
        cycles: times of marked cycles.
    """
    rows = list(activities)
    names = tuple(dict.fromkeys(row[1] for row in rows))
    coded = [
        (tensor, names.index(name), level, begin, end, -1 if size is None else size)
        for tensor, name, level, begin, end, size in rows
    ]
    block = BlockRows(
        Activities(*np.array(coded, np.int64).reshape(-1, 6).T),
        Ticks(*np.array(list(ticks), np.int64).reshape(-1, 3).T),
        np.array(list(cycles), np.int64),
        first=0,
        settled=0,
    )
    return MadeTimeline(names, [block], {1: "a", 2: "b", 3: "c"})


def allreduce(tensor: int, at: int, size: int | None = 1000, long: int = 100) -> list[Activity]:
    """Make an operation that copies for 10 µs, reduces, and copies for 10 µs."""
    return [
        (tensor, "MEMCPY_IN_FUSION_BUFFER", 1, at + 5, at + 15, None),
        (tensor, "NCCL_ALLREDUCE", 1, at + 15, at + 15 + long, None),
        (tensor, "ALLREDUCE", 0, at, at + 30 + long, size),
    ]
