"""Turn a run into slices, counters and marks on tracks, ordered by time, for trace viewers.

A rank's slices are the ledger's, to the nanosecond: from R(i−1) its other, input, compute and wait
follow each other until the last rank is ready, then exposed allreduce until R(i). Time between steps
comes before them. If clock errors make slices overlap, they are cut, and their arguments keep the
ledger's figures. Steps outside of the ledger are shown with the timestamps that they have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pandas as pd

from stallscope.analysis.ledger.change_points import ChangePoint
from stallscope.analysis.ledger.ledger import GAPS, Ledger
from stallscope.analysis.views.lane_sums import LANE_STAGES
from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Bools, Ints
from stallscope.formatting.plain import plain
from stallscope.text.vocabulary import TITLES

from .exported_run import ExportedRun, Generation, Selection

#: A rank's stages in the order of a step.
STAGES = (*LANE_STAGES, "allreduce")
# Slices in memory at a time.
_AT_A_TIME = 20_000

STEP = "step"
_END = np.iinfo(np.int64).max


class Slice(NamedTuple):
    """A period on a track, nanoseconds; None for values that are unknown or do not apply."""

    track: int
    begin: int
    end: int
    name: str
    step: int
    epoch: int | None
    #: The ledger's duration, even if the slice was cut.
    ns: int
    #: The delay of the rank's gradients against the reference rank's; for the whole step, that of the
    #: last rank.
    late_ns: int | None = None
    last_rank: int | None = None


class Counter(NamedTuple):
    """A value that holds from a moment on."""

    track: int
    begin: int
    value: float


class Mark(NamedTuple):
    """A notable moment."""

    track: int
    begin: int
    name: str
    args: Mapping[str, str | int | float]


Event = Slice | Counter | Mark


@dataclass(frozen=True)
class Track:
    """A line of slices, or a counter if it has a unit."""

    id: int
    name: str
    unit: str | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Process:
    """Tracks under one heading: of all ranks, or of the ranks of a host."""

    name: str
    tracks: tuple[Track, ...]


STEPS = Track(1, "Steps")


RATE = Track(2, "Samples per second", "samples/s")


IMBALANCE = Track(3, TITLES["imbalance"], "ms")


_FIRST_RANK = 4


class Trace:
    """The exported tracks and their events."""

    def __init__(self, exported: ExportedRun) -> None:
        self.exported = exported
        self._tracks: dict[tuple[str, int], Track] = {}
        self.processes = (
            Process(f"{plain(exported.run.name)}: all ranks", (STEPS, RATE, IMBALANCE)),
            *self._hosts(),
        )

    def events(self) -> Iterator[Event]:
        """Yield all events in the order of their starts; slices of one track do not overlap."""
        for index, generation in enumerate(self.exported.generations):
            yield from self._of_generation(index, generation)

    def _hosts(self) -> list[Process]:
        pairs = {
            (plain(generation.aligned.hosts[at]), generation.aligned.ranks[at])
            for generation in self.exported.generations
            for at in self.exported.selection.of(generation.aligned.ranks)
        }
        ordered = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
        width = len(str(max((rank for _, rank in ordered), default=0)))
        by_host: dict[str, list[Track]] = {}
        for number, (host, rank) in enumerate(ordered, _FIRST_RANK):
            # With leading zeros: some viewers sort by names.
            track = Track(number, f"rank {rank:0{width}d}", rank=rank)
            self._tracks[host, rank] = track
            by_host.setdefault(host, []).append(track)
        return [Process(host, tuple(tracks)) for host, tracks in by_host.items()]

    def _of_generation(self, index: int, generation: Generation) -> Iterator[Event]:
        selection = self.exported.selection
        positions = selection.of(generation.aligned.ranks)
        track_of = np.zeros(len(generation.aligned.ranks), np.int64)
        for at in positions:
            host = plain(generation.aligned.hosts[at])
            track_of[at] = self._tracks[host, generation.aligned.ranks[at]].id
        begin, end = _drawn(generation)
        chosen = np.flatnonzero(selection.steps(generation.ledger.steps))
        raw = raw_slices(generation, selection, begin, end)
        marks = {
            change.at: _mark(change.point, int(begin[change.at]))
            for change in self.exported.changes
            if change.generation == index
        }
        done = 0
        for at in _blocks(chosen, max(1, len(positions))):
            upto = int(np.searchsorted(raw["begin"], end[at[-1]]))
            events: list[Event] = [
                *_job_events(generation, at, begin, end),
                *(marks[position] for position in at.tolist() if position in marks),
                *_rank_slices(generation.ledger, at, positions, track_of, begin, end),
                *_of_raw(raw[done:upto], track_of),
            ]
            done = upto
            yield from sorted(events, key=attrgetter("begin"))
        for low in range(done, len(raw), _AT_A_TIME):
            yield from _of_raw(raw[low : low + _AT_A_TIME], track_of)


def _drawn(generation: Generation) -> tuple[Ints, Ints]:
    """Return start and end of the ledger's steps on the time line, in order."""
    ledger = generation.ledger
    edges = np.empty(2 * len(ledger), np.int64)
    edges[0::2], edges[1::2] = ledger.reduced - ledger.total, ledger.reduced
    edges = np.maximum.accumulate(
        np.maximum(edges + generation.reference_shift, generation.span[0])
    )
    return edges[0::2], edges[1::2]


def _blocks(chosen: Ints, ranks: int) -> Iterator[Ints]:
    """Yield positions of steps in blocks that are processed together."""
    size = max(1, _AT_A_TIME // (ranks * len(STAGES)))
    for low in range(0, len(chosen), size):
        yield chosen[low : low + size]


def _job_events(generation: Generation, at: Ints, begin: Ints, end: Ints) -> Iterator[Event]:
    """Yield the events of all ranks together: steps, gaps and counters."""
    ledger = generation.ledger
    rate = _rates(generation, at)
    imbalance = (ledger.last - ledger.of("arrival", ledger.reference))[at].tolist()
    for index, position in enumerate(at.tolist()):
        step, epoch = int(ledger.steps[position]), _known(int(ledger.epochs[position]))
        low, high, late = int(begin[position]), int(end[position]), imbalance[index]
        before = int(end[position - 1]) if position else low
        yield from _gaps(ledger, position, max(before, 0), low)
        last = ledger.ranks[int(ledger.critical[position])]
        total = int(ledger.total[position])
        if high > low:
            yield Slice(STEPS.id, low, high, f"Step {step}", step, epoch, total, late, last)
        yield from _values(rate[index], late, low)
        # No samples are processed between steps.
        if position + 1 == len(begin) or begin[position + 1] > high:
            yield from _values(None if rate[index] is None else 0.0, 0, high)


def _values(rate: float | None, imbalance: int, begin: int) -> Iterator[Counter]:
    if rate is not None:
        yield Counter(RATE.id, begin, rate)
    yield Counter(IMBALANCE.id, begin, imbalance / 1e6)


def _gaps(ledger: Ledger, position: int, before: int, begin: int) -> Iterator[Slice]:
    """Yield validation, checkpoints and epoch ends with the ledger's durations."""
    low = begin - int(ledger.gaps[position].sum())
    step, epoch = int(ledger.steps[position]), _known(int(ledger.epochs[position]))
    for kind, ns in zip(GAPS, ledger.gaps[position].tolist(), strict=True):
        shown = max(low, before), min(low + ns, begin)
        if shown[1] > shown[0]:
            yield Slice(STEPS.id, *shown, TITLES[kind], step, epoch, ns)
        low += ns


def _rates(generation: Generation, at: Ints) -> list[float | None]:
    """Return samples per second of all ranks per step; ranks without a log count like the others."""
    samples = generation.ledger.samples[at]
    known = samples != NULL
    total = np.where(known, samples, 0).sum(axis=1)
    rows = zip(
        total.tolist(),
        known.sum(axis=1).tolist(),
        generation.ledger.total[at].tolist(),
        strict=True,
    )
    return [
        amount / count * generation.size / ns * 1e9 if count and ns > 0 else None
        for amount, count, ns in rows
    ]


def _rank_slices(
    ledger: Ledger, at: Ints, positions: Ints, track_of: Ints, begin: Ints, end: Ints
) -> Iterator[Slice]:
    """Yield the stages of some ranks in some steps (positions)."""
    cells = np.ix_(at, positions)
    fetch, compute, arrival = ledger.input[cells], ledger.compute[cells], ledger.arrival[cells]
    last = ledger.last[at][:, None]
    allreduce = np.broadcast_to(ledger.allreduce[at][:, None], arrival.shape)
    stages = np.stack([arrival - fetch - compute, fetch, compute, last - arrival, allreduce])
    edges = np.concatenate([np.zeros((1, *arrival.shape), np.int64), stages.cumsum(axis=0)])
    low, high = begin[at][:, None], end[at][:, None]
    edges = np.maximum.accumulate(np.clip(edges + low, low, high), axis=0)
    late = arrival - ledger.arrival[at, ledger.reference[at]][:, None]
    stage, step, rank = np.nonzero((edges[1:] > edges[:-1]) & ledger.measured[cells])
    columns = (
        track_of[positions][rank],
        edges[stage, step, rank],
        edges[stage + 1, step, rank],
        stage,
        ledger.steps[at][step],
        ledger.epochs[at][step],
        stages[stage, step, rank],
        late[step, rank],
    )
    names = [TITLES[name] for name in STAGES]
    for track, first, until, kind, number, epoch, ns, lateness in zip(
        *(column.tolist() for column in columns), strict=True
    ):
        yield Slice(track, first, until, names[kind], number, _known(epoch), ns, lateness)


def _of_raw(raw: pd.DataFrame, track_of: Ints) -> Iterator[Slice]:
    columns = (
        raw[name].tolist() for name in ("rank", "begin", "end", "kind", "step", "epoch", "ns")
    )
    for rank, begin, end, kind, step, epoch, ns in zip(*columns, strict=True):
        name = f"Step {step}" if kind == STEP else TITLES[kind]
        yield Slice(int(track_of[rank]), begin, end, name, step, _known(epoch), ns)


def _mark(change: ChangePoint, begin: int) -> Mark:
    slower = change.after_ms > change.before_ms
    args: dict[str, str | int | float] = {
        "step": change.step,
        "before_ms": change.before_ms,
        "after_ms": change.after_ms,
        "by_ms": change.by_ms,
    }
    if change.entry is not None:
        args["changed_most"] = TITLES[change.entry]
    if change.rank is not None:
        args["last_rank"] = change.rank
    return Mark(STEPS.id, begin, "Steps became slower" if slower else "Steps became faster", args)


def _known(epoch: int) -> int | None:
    return None if epoch < 0 else epoch


# -- Make slices from ranks' own timestamps -------------------------------------------------------
#
# Validation, checkpoints, and steps outside of the ledger.


def raw_slices(
    generation: Generation, selection: Selection, begin: Ints, end: Ints
) -> pd.DataFrame:
    """Make the selected slices of a generation, cut where the ledger's steps are.

    Args:
        generation: on the time line.
        selection: steps and ranks.
        begin: starts of the ledger's steps, on the time line.
        end: their ends.

    Returns:
        A row per slice, ordered by start; slices of a rank do not overlap. ``rank`` is its position in
        the generation, ``begin`` and ``end`` are nanoseconds on the time line, and ``ns`` is the
        recorded duration, even if the slice was cut. An unknown ``epoch`` is -1.
    """
    slices = pd.concat([*_of_timestamps(generation, selection), _between(generation, selection)])
    at = np.searchsorted(generation.ledger.steps, slices["step"])
    slices["begin"] = np.maximum(slices["begin"], np.append(generation.span[0], end)[at])
    slices["end"] = np.minimum(slices["end"], np.append(begin, _END)[at])
    slices = slices.sort_values(["rank", "begin"], ignore_index=True)
    # No slice starts before the previous one of its rank has ended.
    ends = slices.groupby("rank")["end"].cummax().groupby(slices["rank"]).shift(fill_value=-_END)
    slices["begin"] = np.maximum(slices["begin"], ends)
    return slices[slices["end"] > slices["begin"]].sort_values("begin", kind="stable")


def _of_timestamps(generation: Generation, selection: Selection) -> list[pd.DataFrame]:
    """Make slices of steps outside of the ledger: input and compute, or the whole step."""
    aligned = generation.aligned
    outside = (generation.in_ledger < 0) & selection.steps(aligned.steps)
    if not outside.any():
        return []
    parts = []
    for rank in selection.of(aligned.ranks).tolist():
        begin, data, ready, reduced, end = (
            generation.on_line(times[:, rank], rank)
            for times in (aligned.begin, aligned.data, aligned.ready, aligned.reduced, aligned.end)
        )
        staged = outside & aligned.measured[:, rank]
        # All timestamps, but not measured: the clock was set within this step.
        torn = (np.stack([begin, data, ready, reduced, end]) != NULL).all(axis=0) & ~staged
        until = np.where(end == NULL, next_begin(generation, begin), end)
        whole = outside & ~staged & ~torn & (begin != NULL) & (until != NULL)
        parts += [
            _some(generation, staged, rank, "input", begin, data),
            _some(generation, staged, rank, "compute", data, ready),
            _some(generation, whole, rank, STEP, begin, until),
        ]
    return parts


def next_begin(generation: Generation, begin: Ints) -> Ints:
    """Return when the next step starts on the same rank; NULL if none follows in its epoch."""
    aligned = generation.aligned
    follows = (np.diff(aligned.steps) == 1) & ~aligned.session_start[1:]
    follows &= aligned.epochs[1:] == aligned.epochs[:-1]
    after = np.full(len(begin), NULL)
    after[:-1] = np.where(follows, begin[1:], NULL)
    return after


def _some(
    generation: Generation, chosen: Bools, rank: int, kind: str, begin: Ints, end: Ints
) -> pd.DataFrame:
    columns = {
        "begin": begin,
        "end": end,
        "kind": kind,
        "step": generation.aligned.steps,
        "epoch": generation.aligned.epochs,
        "ns": end - begin,
    }
    return pd.DataFrame(columns | {"rank": rank})[chosen]


def _between(generation: Generation, selection: Selection) -> pd.DataFrame:
    """Make slices of validation and checkpoints, each with the next step, or the last one."""
    aligned, intervals = generation.aligned, generation.aligned.intervals
    next_at = np.searchsorted(aligned.steps, intervals.step)
    step = aligned.steps[np.minimum(next_at, len(aligned.steps) - 1)]
    shift = generation.shift[intervals.rank_index]
    columns = {
        "begin": intervals.begin + shift,
        "end": intervals.end + shift,
        "kind": intervals.kind,
        "step": intervals.step,
        "epoch": np.where(next_at > 0, aligned.epochs[next_at - 1], -1),
        "ns": intervals.end - intervals.begin,
        "rank": intervals.rank_index,
    }
    chosen = np.isin(intervals.rank_index, selection.of(aligned.ranks)) & selection.steps(step)
    return pd.DataFrame(columns)[chosen]
