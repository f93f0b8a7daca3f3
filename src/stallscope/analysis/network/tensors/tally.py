"""Analyse a timeline block by block: fusion and late ranks, in memory that grows with reductions.

The numbers of negotiated tensors are also kept: about 1% of the file's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.types import Floats, Ints
from stallscope.parsers.formats.horovod_timeline import Activities, BlockRows, Ticks

from .segment import ActivitySegment, added_us, burst_starts, last_idle, latest_before, within
from .tensor_figures import Cycles, Fusion, Lateness, LateRank, Tensors
from .tensor_times import StepTally, TensorTally, UnionTally

# More than the activities of several steps of any model. A damaged timeline that never seems idle must
# not fill the memory.
_MOST_PENDING = 1 << 18

# Horovod's default cycle time, used if cycles were not marked.
_CYCLE_US = 1000.0


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


# -- Find the tensors that were reduced together, and the times of each reduction -----------------


class FusionTally:
    """Collects the reductions of a timeline, one entry for all tensors fused into one."""

    def __init__(self) -> None:
        self._fusions: list[Fusion] = []

    def add(self, segment: ActivitySegment) -> None:
        if len(segment.allreduces):
            self._fusions.append(_fusion(segment))

    def fusion(self) -> Fusion:
        nothing = Fusion(np.zeros(0, np.int64), *([np.zeros(0)] * 5))
        parts = [vars(part) for part in (nothing, *self._fusions)]
        return Fusion(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def _fusion(segment: ActivitySegment) -> Fusion:
    operations = segment.allreduces
    parts, mine = segment.allreduce_parts
    group = segment.reductions
    count = int(group[-1]) + 1
    reduction = group[mine]
    kinds = segment.kinds(parts)
    transfers = kinds["transfer"]
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    # Parts are sorted by their start: the first one of each reduction is assigned last.
    first[reduction[transfers][::-1]] = parts.begin[transfers][::-1]
    np.maximum.at(last, reduction[transfers], parts.end[transfers])
    took = [
        _covered(parts.begin[kinds[kind]], parts.end[kinds[kind]], reduction[kinds[kind]], count)
        for kind in ("wait", "copy")
    ]
    return Fusion(
        np.bincount(group).astype(np.int64),
        np.bincount(group, np.where(operations.size < 0, np.nan, operations.size)).astype(float),
        np.where(np.isfinite(first), last - first, np.nan) / 1e3,
        _negotiated(segment, group, count),
        *took,
    )


def _negotiated(segment: ActivitySegment, group: Ints, count: int) -> Floats:
    """Return the milliseconds in which each reduction's tensors were negotiated; NaN if unknown."""
    negotiated, operations = segment.negotiated_allreduces, segment.allreduces
    latest = latest_before(negotiated, operations.tensor, operations.begin)
    known = latest >= 0
    rows, reduction = negotiated.take(latest[known]), group[known]
    order = np.argsort(rows.begin, kind="stable")
    took = _covered(rows.begin[order], rows.end[order], reduction[order], count)
    took[np.bincount(reduction, minlength=count) == 0] = np.nan
    return took


def _covered(begin: Ints, end: Ints, group: Ints, count: int) -> Floats:
    added = added_us(begin, end, group)
    return np.bincount(group, added, minlength=count).astype(np.float64) / 1e3


# -- Find the ranks that were last in negotiations with ticks -------------------------------------


class LatenessTally:
    """Collects rounds of negotiation; overlapping negotiations, as of fused tensors, are one round."""

    def __init__(self) -> None:
        self.negotiations = 0
        #: Negotiations with ticks of more than one rank.
        self.ticked = 0
        self._ranks: set[int] = set()
        # Per round with ticks: how many ranks were ticked, the last one, and its delay after the first.
        self._arrived: list[Ints] = []
        self._last: list[Ints] = []
        self._delay: list[Ints] = []

    def add(self, segment: ActivitySegment) -> None:
        negotiated, ticks = segment.negotiated, segment.ticks
        self.negotiations += len(negotiated)
        if not len(ticks) or not len(negotiated):
            return
        self.ticked += _ticked(segment)
        first, until = _merged(negotiated)
        at = np.searchsorted(first, ticks.at, "right") - 1
        inside = (at >= 0) & (ticks.at <= until[at])
        if not inside.any():
            return
        rounds, at = np.unique(at[inside], return_inverse=True)
        ranks, rank = np.unique(ticks.rank[inside], return_inverse=True)
        arrived = np.full((len(rounds), len(ranks)), -1)
        np.maximum.at(arrived, (at, rank), ticks.at[inside])
        self._ranks |= set(ranks.tolist())
        self._arrived.append((arrived >= 0).sum(axis=1))
        self._last.append(ranks[arrived.argmax(axis=1)])
        self._delay.append(arrived.max(axis=1) - np.where(arrived < 0, LATEST, arrived).min(axis=1))

    def lateness(self, cycles: Cycles | None) -> Lateness | None:
        """Summarise the rounds in which all ranks were ticked; None without any."""
        if len(self._ranks) < 2:
            return None
        complete = np.concatenate(self._arrived) == len(self._ranks)
        last, delay = np.concatenate(self._last)[complete], np.concatenate(self._delay)[complete]
        if not len(last):
            return None
        cycle_us = _CYCLE_US if cycles is None else 1e3 * cycles.median_ms
        delayed = delay > cycle_us
        late = [
            LateRank(
                rank, int(rounds.sum()), float(delay[rounds].mean()) / 1e3 if rounds.any() else None
            )
            for rank in sorted(self._ranks)
            for rounds in (delayed & (last == rank),)
        ]
        late.sort(key=lambda late_rank: (-late_rank.last, late_rank.rank))
        return Lateness(len(last), int((~delayed).sum()), cycle_us / 1e3, tuple(late))


def _ticked(segment: ActivitySegment) -> int:
    """Count the negotiations during which more than one rank was ticked."""
    ticks = segment.ticks
    negotiation = within(segment.negotiated, ticks.tensor, ticks.at, ticks.at)
    pairs = np.unique(np.stack([negotiation, ticks.rank])[:, negotiation >= 0], axis=1)
    return int(np.count_nonzero(np.bincount(pairs[0], minlength=1) > 1))


def _merged(rows: Activities) -> tuple[Ints, Ints]:
    """Merge overlapping activities; return the starts and ends of the merged intervals, in order."""
    reached = np.maximum.accumulate(rows.end)
    starts = np.append(True, rows.begin[1:] > reached[:-1])
    return rows.begin[starts], reached[np.append(starts[1:], True)]
