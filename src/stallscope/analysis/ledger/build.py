"""Build the ledger of a generation from its aligned steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix
from stallscope.arrays.types import Bools, Ints

from ..steps.alignment import PAUSES, AlignedSteps
from .ledger import GAPS, Ledger

# If one in this many ranks is missing, it was rarely the last one.
_RANKS_PER_MISSING = 8
# A rank lacks steps of its own, as where its log was cut, if it lacks this share of them more than twice
# what the two most complete ranks lack.
_OWN_HOLES = 0.01
# Its peers' steps show the job without it, if waiting for it costs no more than this share of a step.
_RARELY_LAST = 0.02
# Steps that all ranks measured are worth more than all steps, if they are at least this share of them.
_ENOUGH = 0.05
# Bits of an arrival and a rank's number together, which must not overflow.
_BITS = 62
# Knuth's multiplier: neighbouring steps get numbers that have little in common.
_MIXING = 2654435761


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """Build the ledger of all steps that nearly every rank measured, after a measured step."""
    ranks = len(aligned.ranks)
    ends = aligned.cells.by_steps(_ends)
    first, last_ready, measured_ranks = (np.concatenate(parts) for parts in zip(*ends, strict=True))
    # Clock errors must not make times negative, or count time twice.
    ended = np.where(first == NULL, NULL, np.maximum(first, last_ready))
    origin = _origins(aligned, ended)
    chosen = _usable(aligned, ranks - measured_ranks, origin, ended)
    cuts = _cuts(aligned, ended).of(chosen)
    stamps = aligned.cells.take(chosen)
    start, reduced = origin[chosen], ended[chosen]
    completes_late = aligned.clocks.completes_late
    if completes_late:
        stamps = stamps.merged_with(_completions_before(aligned, chosen, start))
    # Devices that complete late are busy until then, where only the hosts' work is known of each rank.
    late_is_compute = "devices" in stamps.names
    stages, parts = stamps.compute_by_steps(
        _taken_apart, start, cuts, completes_late, late_is_compute
    )
    of_steps = (np.concatenate(blocks) for blocks in zip(*parts, strict=True))
    reference, second, critical, last, last_arrival, last_ready, latest = of_steps
    total = last_arrival + reduced - last_ready
    kept = sorted(stamps.names & {"measured", "samples", "elements", "devices"})
    return Ledger(
        ranks=aligned.ranks,
        steps=aligned.steps[chosen],
        epochs=aligned.epochs[chosen],
        reduced=reduced,
        total=total,
        cells=stamps.only(*kept).merged_with(stages),
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


def _usable(aligned: AlignedSteps, missing: Ints, origin: Ints, ended: Ints) -> Bools:
    """Choose the steps that nearly every rank measured.

    A rank with a cut log lacks many steps in a row. Where it keeps the others waiting, only the steps
    that it measured tell the truth. Otherwise its peers' steps do, too.
    """
    ranks, timed = len(aligned.ranks), origin != NULL
    few: Bools = (missing * _RANKS_PER_MISSING <= ranks) & (missing < max(ranks, 1)) & timed
    if not missing[timed].any():
        return few
    lacking = aligned.cells.summed(_lacking, timed)
    usual = np.sort(lacking)[:2].max()
    cut = np.flatnonzero(lacking > 2 * usual + _OWN_HOLES * timed.sum())
    whole = np.setdiff1d(np.arange(ranks), cut)
    if not len(cut):
        return few
    of_cut, of_whole, waited = aligned.cells.gathered(_in_groups, cut, whole)
    common: Bools = few & (of_cut == len(cut))
    if len(whole) < 2:
        return common if common.any() else few
    lost = len(whole) - of_whole
    peers: Bools = (lost * _RANKS_PER_MISSING <= len(whole)) & (of_whole > 1) & timed
    if common.sum() < _ENOUGH * peers.sum():
        return peers
    # Single steps, as the one that traces, may be far longer on one rank.
    cost, total = (np.median(ns[common]) for ns in (waited, ended - origin))
    return peers if cost <= _RARELY_LAST * total else common


def _lacking(block: Block, timed: Bools) -> Ints:
    """Kernel: count the steps with a known start that each rank did not measure."""
    return np.asarray((~block["measured"][timed[block.steps]]).sum(axis=0))


def _in_groups(block: Block, cut: Ints, whole: Ints) -> tuple[Ints, Ints, Ints]:
    """Kernel: count the ranks of two groups that measured each step, and how long the second waited."""
    of_cut, of_whole = (block.of("measured", ranks).sum(axis=1) for ranks in (cut, whole))
    last, last_of_whole = (
        block.of("ready", ranks).max(axis=1, initial=NULL) for ranks in (cut, whole)
    )
    known = (last != NULL) & (last_of_whole != NULL)
    return of_cut, of_whole, np.where(known, np.maximum(last - last_of_whole, 0), 0)


def _ends(block: Block) -> tuple[Ints, Ints, Ints]:
    """Kernel: find per step the first *reduced*, the last *ready*, and how many ranks measured it."""
    last = block["ready"].max(axis=1, initial=NULL)
    (steps, ranks), measured = block.shape, block["measured"]
    measured_ranks = np.full(steps, ranks) if measured.all() else measured.sum(axis=1)
    return earliest(block["reduced"]), last, measured_ranks


def _completions_before(aligned: AlignedSteps, chosen: Bools, start: Ints) -> Matrix:
    """Return how long after R(i−1) each rank completed the step before each chosen one.

    In a pipeline a rank may complete it before the last rank is ready, which is negative.
    """
    reduced = aligned.cells.only("reduced")
    before = reduced.take(np.append(chosen[1:], False))
    if chosen[:1].any():
        # The first step has no step before it. Any row will do, because a session starts there.
        before = reduced.take(np.arange(len(chosen)) == 0).followed_by([before])
    completions, _ = before.compute_by_steps(
        _delays, start, aligned.session_start[chosen], bool(aligned.stages)
    )
    return completions


def _delays(
    block: Block, start: Ints, first: Bools, may_be_early: bool
) -> tuple[dict[str, Array], None]:
    """Kernel: return how late each rank completed; 0 where a session starts, or if not measured."""
    reduced = block["reduced"]
    unknown = (reduced == NULL) | first[block.steps, None]
    delay = np.where(unknown, 0, reduced - start[block.steps, None])
    return {"delay": delay if may_be_early else np.maximum(delay, 0)}, None


def _taken_apart(
    block: Block, start: Ints, cuts: _Cuts, completes_late: bool, late_is_compute: bool
) -> tuple[dict[str, Array], tuple[Ints, ...]]:
    """Kernel: compute the stages of every rank, and the figures of each step."""
    begin, data, ready, measured = (block[name] for name in ("begin", "data", "ready", "measured"))
    arrival = ready - start[block.steps, None]
    inside = block.within(cuts.at)
    arrival[cuts.at[inside] - block.steps.start] -= cuts.ns[inside].sum(axis=1)
    fetch, compute = data - begin, ready - data
    last_arrival = None
    if completes_late:
        last_arrival = np.where(measured, arrival, NULL).max(axis=1, initial=NULL)
        # A device may complete after the next step has begun on the host.
        between_steps = np.maximum(arrival - fetch - compute, 0)
        arrival -= np.minimum(block["delay"], between_steps)
    reference, second, critical = ranks_by_arrival(arrival, measured, block.steps.start)
    if not measured.all():
        ready = np.where(measured, ready, NULL)
        holes = np.nonzero(~measured)
        stand_in = (holes[0], reference[holes[0]])
        for array in (arrival, fetch, compute):
            array[holes] = array[stand_in]
    at = np.arange(len(ready))
    last = arrival[at, critical] if len(block.ranks) else np.zeros(0, np.int64)
    latest = (
        ready[cuts.at[inside] - block.steps.start].argmax(axis=1) if len(block.ranks) else at[:0]
    )
    last_arrival = last if last_arrival is None else last_arrival
    if late_is_compute:
        arrival += (last_arrival - last)[:, None]
        compute += (last_arrival - last)[:, None]
        last = last_arrival
    last_ready = ready.max(axis=1, initial=NULL)
    per_step = (reference, second, critical, last, last_arrival, last_ready, latest)
    return {"arrival": arrival, "input": fetch, "compute": compute}, per_step


def earliest(reduced: Ints) -> Ints:
    """Return per step the earliest ``reduced`` of any rank; NULL where no rank measured it."""
    first = reduced.min(axis=1, initial=LATEST)
    holes = first == NULL
    if holes.any():
        rows = reduced[holes]
        filled = np.where(rows == NULL, LATEST, rows).min(axis=1, initial=LATEST)
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
        kept = chosen[self.at]
        position = np.cumsum(chosen) - 1
        return _Cuts(position[self.at[kept]], self.ns[kept])


def _cuts(aligned: AlignedSteps, ended: Ints) -> _Cuts:
    steps, ranks = aligned.cells.shape
    intervals = aligned.intervals
    # At the end of an epoch, all time between two steps belongs to the epoch.
    boundary = np.zeros(steps, bool)
    boundary[1:] = (aligned.epochs[1:] != aligned.epochs[:-1]) & ~aligned.session_start[1:]
    position = np.searchsorted(aligned.steps, intervals.step)
    usable = position < steps
    position = np.where(usable, position, 0)
    if steps:
        usable &= aligned.steps[position] == intervals.step
        begins = aligned.cells.at("begin", position, intervals.rank_index)
        usable &= begins != NULL
        usable &= ~aligned.session_start[position]
        usable &= ended[position - 1] != NULL
    at = np.union1d(position[usable], np.flatnonzero(boundary)).astype(np.int64)
    ns = np.zeros((len(at), len(GAPS), ranks), np.int64)
    for index, kind in enumerate(PAUSES):
        chosen = usable & (intervals.kind == kind)
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
    pauses = cuts.ns[np.arange(len(cuts.at)), :, last]
    whole = np.maximum(pauses.sum(axis=1), 1)
    for index in range(len(PAUSES)):
        gaps[cuts.at, index] = (gap[cuts.at] * (pauses[:, index] / whole)).astype(np.int64)
    gaps[:, -1] = gap - gaps[:, :-1].sum(axis=1)
    return gaps


def ranks_by_arrival(arrival: Ints, measured: Bools, first: int = 0) -> tuple[Ints, Ints, Ints]:
    """Return per step the positions of the reference rank (lower median), second last and last.

    An arrival and its rank are sorted as one integer, so that the sorted row contains the ranks. Below
    the arrival's bits stands a number of the rank that differs from step to step: among ranks with the
    same arrival, the lowest must not always come first.

    Args:
        arrival: nanoseconds, steps × ranks.
        measured: whether a rank measured the step; at least one did.
        first: the position of the first step, so that the order does not depend on a block's size.
    """
    steps, ranks = arrival.shape
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    bits = (ranks - 1).bit_length()
    numbers = (1 << bits) - 1
    mixed = np.arange(first, first + steps) * _MIXING
    factor, mask = mixed & numbers | 1, mixed >> 32 & numbers
    keys, measured_ranks = _since_first(arrival, measured)
    np.minimum(keys, 1 << (_BITS - bits), out=keys)
    keys <<= bits
    keys |= np.arange(ranks) * factor[:, None] & numbers ^ mask[:, None]
    keys.sort(axis=1)
    absent, at = ranks - measured_ranks, np.arange(steps)
    places = (absent + (measured_ranks - 1) // 2, ranks - np.minimum(measured_ranks, 2), ranks - 1)
    inverse = _inverse(factor, bits)
    reference, second, critical = (
        (keys[at, place] & numbers ^ mask) * inverse & numbers for place in places
    )
    return reference, second, critical


def _since_first(arrival: Ints, measured: Bools) -> tuple[Ints, Ints]:
    """Return arrivals since the step's first one, row by row in memory, and how many ranks measured it.

    Missing ranks have -1: they sort first, so that the last ones are measured.
    """
    steps, ranks = arrival.shape
    if measured.all():
        return np.subtract(arrival, arrival.min(axis=1)[:, None], order="C"), np.full(steps, ranks)
    first = np.where(measured, arrival, LATEST).min(axis=1)
    since = np.subtract(arrival, first[:, None], order="C")
    since[~measured] = -1
    return since, measured.sum(axis=1)


def _inverse(odd: Ints, bits: int) -> Ints:
    """Invert odd numbers modulo 2^bits by Newton's iteration, which doubles the right bits."""
    inverse, right = odd, 3
    while right < bits:
        inverse, right = inverse * (2 - odd * inverse), 2 * right
    return inverse
