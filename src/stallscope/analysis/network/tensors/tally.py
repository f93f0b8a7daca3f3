"""Analyse a timeline block by block; memory grows with its reductions and not with its events.

The numbers of negotiated tensors are also kept: about 1% of the file's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.parsers.formats.horovod_timeline import Activities, BlockRows, Ticks

from .figures import Cycles, Tensors
from .fusion import FusionTally
from .lateness import LatenessTally
from .segment import ActivitySegment, burst_starts, last_idle
from .steps import StepTally
from .tensor_times import TensorTally
from .unions import UnionTally

# More than the activities of several steps of any model. A damaged timeline that never seems idle must
# not fill the memory.
_MOST_PENDING = 1 << 18


class TimelineReader(Protocol):
    """A reader of timelines."""

    @property
    def tensors(self) -> Mapping[int, str]: ...

    @property
    def activity_names(self) -> tuple[str, ...]: ...

    def block_rows(self) -> Iterator[BlockRows]: ...


def tensors(reader: TimelineReader) -> Tensors:
    """Read a whole timeline, and return the figures of its tensors."""
    tally = _Tally(reader)
    for block in reader.block_rows():
        tally.add(block)
    return tally.tensors()


class _Tally:
    """Splits a timeline into segments of whole bursts, and passes them to the other tallies."""

    def __init__(self, reader: TimelineReader) -> None:
        self._reader = reader
        none = np.zeros(0, np.int64)
        self._rows = Activities(none, none, none, none, none, none)
        self._ticks = Ticks(none, none, none)
        self._cycles = _CycleTally()
        self._unions = UnionTally()
        self._tensors = TensorTally()
        self._fusion = FusionTally()
        self._steps = StepTally()
        self._lateness = LatenessTally()
        self._restarted = False

    def add(self, block: BlockRows) -> None:
        """Add a block; activities that may continue in the next block stay pending."""
        self._cycles.add(block.cycles)
        if block.restarted:
            self._settle_all()
            self._restarted = True
        # In a damaged timeline an activity may end before its start.
        new = block.activities.only(block.activities.end >= block.activities.begin)
        rows = Activities.joined([self._rows, new])
        self._ticks = Ticks.joined([self._ticks, block.ticks])
        self._rows = rows.take(np.argsort(rows.begin, kind="stable"))
        names = self._reader.activity_names
        complete = self._rows.take(slice(int(self._rows.begin.searchsorted(block.settled))))
        starts = burst_starts(complete, names)
        idle = last_idle(complete, starts, names)
        if idle:
            self._settle(idle, starts[starts < idle], int(complete.begin[idle]))
        elif len(rows) > _MOST_PENDING:
            until = max(block.settled, block.first)
            count = int(self._rows.begin.searchsorted(until))
            self._settle(count, burst_starts(self._rows.take(slice(count)), names), until)

    def tensors(self) -> Tensors:
        """Settle the remaining activities, and return all figures."""
        self._settle_all()
        names = self._reader.activity_names
        times, parts = self._tensors.times(self._reader.tensors, names, self._unions.by_name)
        cycles = self._cycles.cycles()
        span = self._unions.span
        steps, no_steps = self._steps.steps(self._reader.tensors)
        return Tensors(
            tensors=times,
            parts=parts,
            span_ms=span / 1e3,
            negotiating=self._unions.negotiating / span if span else 0.0,
            operating=self._unions.operating / span if span else 0.0,
            fusion=self._fusion.fusion(),
            steps=steps,
            no_steps=no_steps,
            cycles=cycles,
            lateness=self._lateness.lateness(cycles),
            negotiations=self._lateness.negotiations,
            ticked=self._lateness.ticked,
        )

    def _settle_all(self) -> None:
        rows = self._rows
        self._settle(len(rows), burst_starts(rows, self._reader.activity_names), None)

    def _settle(self, count: int, starts: Ints, until: int | None) -> None:
        """Pass the first rows, with the starts of their bursts, to the tallies, and drop them.

        Ticks are dropped if they are before ``until``.
        """
        rows, ticks = self._rows, self._ticks
        settled, names = rows.take(slice(count)), self._reader.activity_names
        segment = ActivitySegment(settled, ticks, names, settled.begin[starts], self._restarted)
        for tally in (self._unions, self._tensors, self._fusion, self._steps, self._lateness):
            tally.add(segment)
        self._restarted = False
        self._rows = rows.take(slice(count, None))
        self._ticks = ticks.take(slice(0)) if until is None else ticks.only(ticks.at >= until)


class _CycleTally:
    """Collects the durations of Horovod's cycles."""

    def __init__(self) -> None:
        self._took: list[np.ndarray[tuple[int], np.dtype[np.uint32]]] = []
        self._last: int | None = None
        self._count = 0

    def add(self, starts: Ints) -> None:
        if not len(starts):
            return
        before = starts[:0] if self._last is None else np.array([self._last])
        took = np.diff(np.sort(np.concatenate([before, starts])))
        self._took.append(np.clip(took, 0, 2**32 - 1).astype(np.uint32))
        self._last, self._count = int(starts.max()), self._count + len(starts)

    def cycles(self) -> Cycles | None:
        if self._count < 2:
            return None
        median, p95 = np.percentile(np.concatenate(self._took), [50, 95]) / 1e3
        return Cycles(self._count, float(median), float(p95))
