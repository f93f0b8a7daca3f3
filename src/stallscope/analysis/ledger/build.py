"""Build the ledger of a generation from its aligned steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix
from stallscope.arrays.types import Bools, Ints

from ..steps.alignment import PAUSES, AlignedSteps
from .arrivals import ranks_by_arrival
from .ledger import GAPS, Ledger

# If one in this many ranks is missing, it was rarely the last one.
_RANKS_PER_MISSING = 8


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """Build the ledger of all steps that nearly every rank measured, after a measured step."""
    ranks = len(aligned.ranks)
    found = aligned.cells.by_steps(_ends)
    first, last_ready, there = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # Clock errors must not make times negative, or count time twice.
    ended = np.where(first == NULL, NULL, np.maximum(first, last_ready))
    origin = _origins(aligned, ended)
    missing = ranks - there
    chosen = (missing * _RANKS_PER_MISSING <= ranks) & (missing < max(ranks, 1)) & (origin != NULL)
    cuts = _cuts(aligned, ended).of(chosen)
    stamps = aligned.cells.take(chosen)
    start, reduced = origin[chosen], ended[chosen]
    completes_late = aligned.clocks.completes_late
    if completes_late:
        stamps = stamps.merged_with(_completions_before(aligned, chosen, start))
    made, parts = stamps.compute_by_steps(_taken_apart, start, cuts, completes_late)
    of_steps = (np.concatenate(own) for own in zip(*parts, strict=True))
    reference, second, critical, last, last_arrival, last_ready, latest = of_steps
    total = last_arrival + reduced - last_ready
    return Ledger(
        ranks=aligned.ranks,
        steps=aligned.steps[chosen],
        epochs=aligned.epochs[chosen],
        reduced=reduced,
        total=total,
        cells=stamps.only("measured", "samples").merged_with(made),
        allreduce=total - last,
        critical=critical,
        second=second,
        reference=reference,
        gaps=_gaps(reduced - start - total, cuts, latest),
        session_start=aligned.session_start[chosen],
        late=aligned.late.per_step(len(aligned.steps))[chosen],
        # A rank's own completion and start are on one clock.
        boundary_sd=0.0 if completes_late else aligned.clocks.by_chance,
    )


def _ends(block: Block) -> tuple[Ints, Ints, Ints]:
    """Kernel: find per step the first *reduced*, the last *ready*, and how many ranks measured it."""
    last = block["ready"].max(axis=1, initial=NULL)
    (steps, ranks), measured = block.shape, block["measured"]
    there = np.full(steps, ranks) if measured.all() else measured.sum(axis=1)
    return earliest(block["reduced"]), last, there


def _completions_before(aligned: AlignedSteps, chosen: Bools, start: Ints) -> Matrix:
    """Return how long after R(i−1) each rank completed the step before each chosen one."""
    reduced = aligned.cells.only("reduced")
    before = reduced.take(np.append(chosen[1:], False))
    if chosen[:1].any():
        # The first step has no step before it. Any row will do, because a session starts there.
        before = reduced.take(np.arange(len(chosen)) == 0).followed_by([before])
    made, _ = before.compute_by_steps(_delays, start, aligned.session_start[chosen])
    return made


def _delays(block: Block, start: Ints, first: Bools) -> tuple[dict[str, Array], None]:
    """Kernel: return how late each rank completed; 0 where a session starts, or if not measured."""
    reduced = block["reduced"]
    unknown = (reduced == NULL) | first[block.steps, None]
    delay = np.where(unknown, 0, reduced - start[block.steps, None])
    return {"delay": np.maximum(delay, 0)}, None


def _taken_apart(
    block: Block, start: Ints, cuts: _Cuts, completes_late: bool
) -> tuple[dict[str, Array], tuple[Ints, ...]]:
    """Kernel: compute the stages of every rank, and the figures of each step."""
    begin, data, ready, measured = (block[name] for name in ("begin", "data", "ready", "measured"))
    arrival = ready - start[block.steps, None]
    own = block.within(cuts.at)
    arrival[cuts.at[own] - block.steps.start] -= cuts.ns[own].sum(axis=1)
    fetch, compute = data - begin, ready - data
    last_arrival = None
    if completes_late:
        last_arrival = np.where(measured, arrival, NULL).max(axis=1, initial=NULL)
        # A device may complete after the next step has begun on the host.
        other = np.maximum(arrival - fetch - compute, 0)
        arrival -= np.minimum(block["delay"], other)
    reference, second, critical = ranks_by_arrival(arrival, measured, block.steps.start)
    if not measured.all():
        ready = np.where(measured, ready, NULL)
        holes = np.nonzero(~measured)
        stand_in = (holes[0], reference[holes[0]])
        for array in (arrival, fetch, compute):
            array[holes] = array[stand_in]
    at = np.arange(len(ready))
    last = arrival[at, critical] if len(block.ranks) else np.zeros(0, np.int64)
    latest = ready[cuts.at[own] - block.steps.start].argmax(axis=1) if len(block.ranks) else at[:0]
    last_arrival = last if last_arrival is None else last_arrival
    last_ready = ready.max(axis=1, initial=NULL)
    per_step = (reference, second, critical, last, last_arrival, last_ready, latest)
    return {"arrival": arrival, "input": fetch, "compute": compute}, per_step


def earliest(reduced: Ints) -> Ints:
    """Return per step the earliest ``reduced`` of any rank; NULL where no rank measured it."""
    first = reduced.min(axis=1, initial=LATEST)
    holes = first == NULL
    if holes.any():
        own = reduced[holes]
        filled = np.where(own == NULL, LATEST, own).min(axis=1, initial=LATEST)
        first[holes] = np.where(filled == LATEST, NULL, filled)
    return np.asarray(first)


def _origins(aligned: AlignedSteps, ended: Ints) -> Ints:
    """Return the start of each step: R(i−1), or the earliest start on any rank for a session's first."""
    origin = np.full(len(aligned.steps), NULL)
    follows = np.diff(aligned.steps) == 1
    origin[1:][follows] = ended[:-1][follows]
    at = np.flatnonzero(aligned.session_start)
    begin = aligned.cells.rows("begin", at)
    first = np.where(begin == NULL, LATEST, begin).min(axis=1, initial=LATEST)
    origin[at] = np.where(first == LATEST, NULL, first)
    return origin


@dataclass(frozen=True)
class _Cuts:
    """Validation, checkpoints and epoch ends before steps; most steps have none."""

    #: Positions of the steps with cuts, ascending, and per kind (as in GAPS) their nanoseconds × R.
    at: Ints
    ns: Ints

    def of(self, chosen: Bools) -> _Cuts:
        """Return the cuts of the chosen steps."""
        own = chosen[self.at]
        position = np.cumsum(chosen) - 1
        return _Cuts(position[self.at[own]], self.ns[own])


def _cuts(aligned: AlignedSteps, ended: Ints) -> _Cuts:
    steps, ranks = aligned.cells.shape
    intervals = aligned.intervals
    # At the end of an epoch, all time between two steps belongs to the epoch.
    boundary = np.zeros(steps, bool)
    boundary[1:] = (aligned.epochs[1:] != aligned.epochs[:-1]) & ~aligned.session_start[1:]
    position = np.searchsorted(aligned.steps, intervals.step)
    there = position < steps
    position = np.where(there, position, 0)
    if steps:
        there &= aligned.steps[position] == intervals.step
        begins = aligned.cells.at("begin", position, intervals.rank_index)
        there &= begins != NULL
        there &= ~aligned.session_start[position]
        there &= ended[position - 1] != NULL
    at = np.union1d(position[there], np.flatnonzero(boundary)).astype(np.int64)
    ns = np.zeros((len(at), len(GAPS), ranks), np.int64)
    for index, kind in enumerate(PAUSES):
        chosen = there & (intervals.kind == kind)
        where = (position[chosen], intervals.rank_index[chosen])
        # Count only the part after the previous step's reduction and before this step's start.
        low = np.maximum(intervals.begin[chosen], ended[where[0] - 1])
        high = np.minimum(intervals.end[chosen], begins[chosen])
        entry = (np.searchsorted(at, where[0]), index, where[1])
        np.add.at(ns, entry, np.maximum(high - low, 0))
    entries = np.flatnonzero(boundary[at])
    begin = aligned.cells.rows("begin", at[entries])
    end = aligned.cells.rows("end", at[entries] - 1)
    known = (begin != NULL) & (end != NULL)
    rest = np.maximum(begin - end - ns[entries, :-1].sum(axis=1), 0)
    ns[entries, -1] = np.where(known, rest, 0)
    return _Cuts(at, ns)


def _gaps(gap: Ints, cuts: _Cuts, last: Ints) -> Ints:
    """Split the wall time that was cut out by kind, in the proportions of the last rank: n × 3.

    Args:
        gap: per step, the time that was cut out.
        cuts: the cuts before some of the steps.
        last: for each of these steps, the position of the rank that came last.
    """
    gaps = np.zeros((len(gap), len(GAPS)), np.int64)
    own = cuts.ns[np.arange(len(cuts.at)), :, last]
    whole = np.maximum(own.sum(axis=1), 1)
    for index in range(len(PAUSES)):
        gaps[cuts.at, index] = (gap[cuts.at] * (own[:, index] / whole)).astype(np.int64)
    gaps[:, -1] = gap - gaps[:, :-1].sum(axis=1)
    return gaps
