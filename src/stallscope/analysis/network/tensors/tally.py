"""Analyse a timeline block by block; memory grows with its steps and not with its events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from stallscope.arrays.types import Ints
from stallscope.parsers.horovod_timeline import Activities, Batch, Ticks

from .figures import Cycles, Tensors
from .fusion import FusionTally
from .lateness import LatenessTally
from .segment import Segment, is_gradients_negotiation
from .steps import StepTally, step_starts
from .tensor_times import TensorTally
from .unions import UnionTally

# More than the activities of several steps of any model. A damaged timeline without ends of steps must
# not fill the memory.
_MOST_PENDING = 1 << 18


class TimelineReader(Protocol):
    """A reader of timelines."""

    @property
    def tensors(self) -> Mapping[int, str]: ...

    @property
    def activity_names(self) -> tuple[str, ...]: ...

    def batches(self) -> Iterator[Batch]: ...


def tensors(reader: TimelineReader) -> Tensors:
    """Read a whole timeline, and return the figures of its tensors."""
    tally = _Tally(reader)
    for batch in reader.batches():
        tally.add(batch)
    return tally.found()


class _Tally:
    """Splits a timeline into segments of whole steps, and passes them to the other tallies."""

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

    def add(self, batch: Batch) -> None:
        """Add a block; activities that may continue in the next block stay pending."""
        self._cycles.add(batch.cycles)
        # In a damaged timeline an activity may end before its start.
        new = batch.activities.only(batch.activities.end >= batch.activities.begin)
        rows = Activities.joined([self._rows, new])
        self._ticks = Ticks.joined([self._ticks, batch.ticks])
        self._rows = rows.take(np.argsort(rows.begin, kind="stable"))
        until = batch.settled
        if len(rows) > _MOST_PENDING:
            until = max(until, batch.first)
        starts = self._step_starts(int(np.searchsorted(self._rows.begin, until)))
        if len(starts) > 1:
            self._settle(int(starts[-1]), starts[:-1])
        elif len(rows) > _MOST_PENDING:
            self._settle(until, starts)

    def found(self) -> Tensors:
        """Settle the remaining activities, and return all figures."""
        self._settle(None, self._step_starts(len(self._rows)))
        names = self._reader.activity_names
        times, parts = self._tensors.found(self._reader.tensors, names, self._unions.by_name)
        cycles = self._cycles.found()
        span = self._unions.span
        return Tensors(
            tensors=times,
            parts=parts,
            span_ms=span / 1e3,
            negotiating=self._unions.negotiating / span if span else 0.0,
            operating=self._unions.operating / span if span else 0.0,
            fusion=self._fusion.found(),
            steps=self._steps.found(),
            cycles=cycles,
            lateness=self._lateness.found(cycles),
            negotiations=self._lateness.negotiations,
            ticked=self._lateness.ticked,
        )

    def _step_starts(self, count: int) -> Ints:
        """Find the starts of steps among the first rows."""
        names = self._reader.activity_names
        gradients = np.array([is_gradients_negotiation(name) for name in names], bool)
        chosen = np.flatnonzero(gradients[self._rows.name[:count]])
        return step_starts(self._rows.tensor[chosen], self._rows.begin[chosen])

    def _settle(self, until: int | None, starts: Ints) -> None:
        """Pass the activities before a time to the tallies, and drop them."""
        rows, ticks = self._rows, self._ticks
        count = len(rows) if until is None else int(np.searchsorted(rows.begin, until))
        settled = rows.take(slice(count))
        segment = Segment(settled, ticks, self._reader.activity_names, starts, until)
        for tally in (self._unions, self._tensors, self._fusion, self._steps, self._lateness):
            tally.add(segment)
        self._rows = rows.take(slice(count, None))
        if until is not None:
            self._ticks = ticks.only(ticks.at >= until)


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

    def found(self) -> Cycles | None:
        if self._count < 2:
            return None
        median, p95 = np.percentile(np.concatenate(self._took), [50, 95]) / 1e3
        return Cycles(self._count, float(median), float(p95))
