"""The ledger: what every step's time was spent on, exact to the nanosecond.

Step i lasts from R(i−1) to R(i), the earliest moment at which it is reduced on any rank. Its time is
input + compute + other of the reference rank, plus imbalance (how much later the critical rank was
ready), plus allreduce (from the last rank's gradients ready until reduced). Validation, checkpoints
and the ends of epochs lie between steps: they are cut out of every rank's arrival, and what the cut
takes from the wall clock has a row of its own.

A step that a few of many ranks lack is in the ledger, too: there, a rank without stamps counts as the
reference rank, so that it is never blamed. A step that more of them lack is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .alignment import AlignedSteps, Bools, Ints
from .clocks import NULL
from .stats import Mean, mean_with_interval

#: Stages of a rank's own work in a step, in the order in which ``cause`` counts them.
STAGES = ("input", "compute", "other")

#: What lies between steps.
GAPS = ("validation", "checkpoint", "epoch_gap")

# With one of so many ranks missing, the missing one is rarely the one that came last.
_RANKS_PER_MISSING = 8


@dataclass(frozen=True)
class Ledger:
    """n steps of one generation (or several, one after the other) × R ranks, int64 nanoseconds.

    Arrays of n × R lie in memory rank by rank.
    """

    ranks: tuple[int, ...]
    steps: Ints
    epochs: Ints
    #: R(i) on the reference clock.
    reduced: Ints
    #: The whole step, without what was cut out.
    total: Ints
    #: Per rank: n × R. ``arrival`` is when its gradients were ready, counted from the step's begin.
    input: Ints
    compute: Ints
    arrival: Ints
    #: n × R: false where the rank lacks a stamp and the reference rank's figures stand in for it.
    measured: Bools
    #: n × R samples, NULL where not known.
    samples: Ints
    allreduce: Ints
    #: Positions in ``ranks`` of the critical rank, of the one that came next to last (the critical
    #: one itself where it is alone), and of the reference rank.
    critical: Ints
    second: Ints
    reference: Ints
    #: Wall clock between R(i−1) and R(i) that is no part of the step: n × 3, in the order of GAPS.
    gaps: Ints
    #: Whether a training session begins with this step.
    session_start: Bools
    #: What R(i) may be off by chance on all steps alike, nanoseconds (SD): the clocks' part.
    boundary_sd: float

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def other(self) -> Ints:
        """n × R: from R(i−1) to the rank's begin."""
        return self.arrival - self.input - self.compute

    @property
    def wait(self) -> Ints:
        """n × R: from the rank's own gradients ready until the last rank's are."""
        return self.last[:, None] - self.arrival

    @cached_property
    def last(self) -> Ints:
        """Per step, when the last rank's gradients were ready, counted from the step's begin."""
        return self.of(self.arrival, self.critical)

    @property
    def imbalance(self) -> Ints:
        """Per step, by how much the critical rank was later than the reference rank."""
        return self.last - self.of(self.arrival, self.reference)

    def stage(self, name: str, rank: Ints) -> Ints:
        """Per step, a stage of the rank at this position."""
        if name == "other":
            own = self.of(self.arrival, rank)
            return own - self.of(self.input, rank) - self.of(self.compute, rank)
        return self.of(getattr(self, name), rank)

    def excess(self, name: str) -> Ints:
        """Per step, by how much a stage of the critical rank exceeds the reference rank's."""
        return self.stage(name, self.critical) - self.stage(name, self.reference)

    @property
    def cause(self) -> Ints:
        """Per step: the stage with the largest excess of the critical over the reference rank."""
        return np.asarray(np.argmax(np.stack([self.excess(name) for name in STAGES]), axis=0))

    def entry(self, name: str) -> Ints:
        """One entry of the ledger, per step: input, compute, other, imbalance or allreduce."""
        if name in STAGES:
            return self.stage(name, self.reference)
        return self.imbalance if name == "imbalance" else self.allreduce

    def mean_ms(self, name: str) -> Mean:
        """The mean of an entry, milliseconds, with its interval."""
        return self.as_sure_as_clocks(name, mean_with_interval(self.entry(name))).scaled(1e-6)

    def as_sure_as_clocks(self, name: str, mean: Mean) -> Mean:
        """A mean in nanoseconds, less sure by the clocks' part where R(i) bounds its entry."""
        if name not in ("other", "allreduce"):
            return mean
        return mean.minus(Mean(0.0, (-2 * self.boundary_sd, 2 * self.boundary_sd)))

    def take(self, chosen: Bools) -> Ledger:
        """The same for some of the steps."""
        return Ledger(**{name: _rows(value, chosen) for name, value in _fields(self).items()})

    def of(self, stage: Ints, rank: Ints) -> Ints:
        """Per step, one rank's value of an n × R array."""
        return np.asarray(stage[np.arange(len(stage)), rank])


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """The ledger of all steps that (nearly) every rank measured and whose predecessor any rank did."""
    ranks = len(aligned.ranks)
    reduced_first = earliest(aligned.reduced)
    # Stamps that break causality must not make time negative, nor let it count twice.
    ended = np.maximum(reduced_first, aligned.ready.max(axis=1, initial=NULL))
    ended = np.where(reduced_first == NULL, NULL, ended)
    origin = _origins(aligned, ended)
    missing = ranks - aligned.measured.sum(axis=1)
    chosen = (missing * _RANKS_PER_MISSING <= ranks) & (missing < max(ranks, 1)) & (origin != NULL)
    cuts = _cuts(aligned, ended)
    begin, data, ready = (
        _rows(array, chosen) for array in (aligned.begin, aligned.data, aligned.ready)
    )
    measured = _rows(aligned.measured, chosen)
    start, reduced = origin[chosen], ended[chosen]
    arrival = ready - start[:, None]
    for rank_and_step, cut in cuts.nonzero(chosen):
        arrival[rank_and_step] -= cut
    fetch, compute = data - begin, ready - data
    reference, second, critical = in_order(arrival, measured)
    holes = np.nonzero(~measured) if not measured.all() else None
    if holes is not None:
        ready = np.where(measured, ready, NULL)
        stand_in = (holes[0], reference[holes[0]])
        for array in (arrival, fetch, compute):
            array[holes] = array[stand_in]
    steps = np.arange(len(start))
    last = arrival[steps, critical] if ranks else np.zeros(0, np.int64)
    allreduce = reduced - ready.max(axis=1, initial=NULL)
    total = last + allreduce
    return Ledger(
        ranks=aligned.ranks,
        steps=aligned.steps[chosen],
        epochs=aligned.epochs[chosen],
        reduced=reduced,
        total=total,
        input=fetch,
        compute=compute,
        arrival=arrival,
        measured=measured,
        samples=_rows(aligned.samples, chosen),
        allreduce=allreduce,
        critical=critical,
        second=second,
        reference=reference,
        gaps=_gaps(reduced - start - total, cuts.of(chosen, ready)),
        session_start=aligned.session_start[chosen],
        boundary_sd=aligned.clocks.by_chance,
    )


def of_last_world(ledgers: Sequence[Ledger]) -> list[int]:
    """Which of the generations' ledgers have the last one's ranks.

    A job whose world changed its size has no per-rank figures across that change.
    """
    filled = [index for index, ledger in enumerate(ledgers) if len(ledger)]
    return [index for index in filled if ledgers[index].ranks == ledgers[filled[-1]].ranks]


def concatenated(ledgers: Sequence[Ledger]) -> Ledger | None:
    """Ledgers of generations with the same ranks, one after the other; None where there is none."""
    if len(ledgers) < 2:
        return next(iter(ledgers), None)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(ledger, name) for ledger in ledgers])
        if isinstance(value, np.ndarray)
        else value
        for name, value in _fields(ledgers[-1]).items()
    }
    return Ledger(**joined)


def _fields(ledger: Ledger) -> dict[str, Any]:
    return {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__}


def _rows(array: Any, chosen: Bools) -> Any:
    """Some of the steps of an array, in the memory's order; a view where they follow each other."""
    if not isinstance(array, np.ndarray):
        return array
    at = np.flatnonzero(chosen)
    if len(at) and at[-1] - at[0] + 1 == len(at):
        return array[at[0] : at[-1] + 1]
    return np.compress(chosen, array.T, axis=-1).T


def earliest(reduced: Ints) -> Ints:
    """Per step the earliest ``reduced`` of any rank that measured it; NULL where none did."""
    first = reduced.min(axis=1, initial=np.iinfo(np.int64).max)
    holes = first == NULL
    if holes.any():
        own = reduced[holes]
        latest = np.iinfo(np.int64).max
        filled = np.where(own == NULL, latest, own).min(axis=1, initial=latest)
        first[holes] = np.where(filled == latest, NULL, filled)
    return np.asarray(first)


def _origins(aligned: AlignedSteps, ended: Ints) -> Ints:
    """Where each step begins: R(i−1), or for the first of a session its earliest begin."""
    origin = np.full(len(aligned.steps), NULL)
    follows = np.diff(aligned.steps) == 1
    origin[1:][follows] = ended[:-1][follows]
    for at in np.flatnonzero(aligned.session_start):
        begin = aligned.begin[at]
        known = begin[begin != NULL]
        origin[at] = known.min() if len(known) else NULL
    return origin


def in_order(arrival: Ints, measured: Bools) -> tuple[Ints, Ints, Ints]:
    """Per step the positions of the reference rank (lower median), the second to last and the last."""
    ranks = arrival.shape[1]
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    low, next_to_last = (ranks - 1) // 2, max(ranks - 2, 0)
    kth = sorted({low, next_to_last, ranks - 1})
    # Step by step for the partition: its lanes should lie together.
    order = np.argpartition(np.ascontiguousarray(arrival), kth, axis=1)
    reference, second, critical = (order[:, k].copy() for k in (low, next_to_last, ranks - 1))
    partly = np.flatnonzero(~measured.all(axis=1))
    if len(partly):
        # Missing ranks come first, so that the last ones are among those that are there.
        own = np.where(measured[partly], arrival[partly], NULL)
        order = np.argsort(own, axis=1, kind="stable")
        there = measured[partly].sum(axis=1)
        at = np.arange(len(partly))
        reference[partly] = order[at, ranks - there + (there - 1) // 2]
        second[partly] = order[at, ranks - np.minimum(there, 2)]
        critical[partly] = order[:, ranks - 1]
    return reference, second, critical


@dataclass(frozen=True)
class _Cuts:
    """What lies between a rank's last step and this one; there is nothing in most steps."""

    #: Positions of the steps with cuts, ascending, and per kind (as in GAPS) their nanoseconds × R.
    at: Ints
    ns: Ints

    def nonzero(self, chosen: Bools) -> list[tuple[tuple[int, slice], Ints]]:
        """Where in the chosen steps something is cut out of the ranks' arrivals, and how much."""
        position = np.cumsum(chosen) - 1
        return [
            ((int(position[at]), slice(None)), self.ns[index].sum(axis=0))
            for index, at in enumerate(self.at)
            if chosen[at]
        ]

    def of(self, chosen: Bools, ready: Ints) -> Ints:
        """n × 3: the cuts of the rank that came last, by kind."""
        result = np.zeros((len(ready), len(GAPS)), np.int64)
        position = np.cumsum(chosen) - 1
        for index, at in enumerate(self.at):
            if chosen[at]:
                own = int(position[at])
                result[own] = self.ns[index][:, ready[own].argmax()]
        return result


def _cuts(aligned: AlignedSteps, ended: Ints) -> _Cuts:
    steps, ranks = aligned.begin.shape
    intervals = aligned.intervals
    # At the end of an epoch everything between two steps is the epoch's, not the step's.
    boundary = np.zeros(steps, bool)
    boundary[1:] = (aligned.epochs[1:] != aligned.epochs[:-1]) & ~aligned.session_start[1:]
    position = np.searchsorted(aligned.steps, intervals.step)
    there = position < steps
    position = np.where(there, position, 0)
    if steps:
        there &= aligned.steps[position] == intervals.step
        there &= aligned.begin[position, intervals.rank_index] != NULL
        there &= ~aligned.session_start[position]
        there &= ended[position - 1] != NULL
    at = np.union1d(position[there], np.flatnonzero(boundary)).astype(np.int64)
    ns = np.zeros((len(at), len(GAPS), ranks), np.int64)
    for index, kind in enumerate(GAPS[:2]):
        chosen = there & (intervals.kind == kind)
        where = (position[chosen], intervals.rank_index[chosen])
        # What began before the step before was reduced, or outlasts this one's begin, is not between.
        low = np.maximum(intervals.begin[chosen], ended[where[0] - 1])
        high = np.minimum(intervals.end[chosen], aligned.begin[where])
        entry = (np.searchsorted(at, where[0]), index, where[1])
        np.add.at(ns, entry, np.maximum(high - low, 0))
    for entry_at in np.flatnonzero(boundary[at]):
        step = at[entry_at]
        between = aligned.begin[step] - aligned.end[step - 1]
        known = (aligned.begin[step] != NULL) & (aligned.end[step - 1] != NULL)
        rest = np.maximum(between - ns[entry_at, :2].sum(axis=0), 0)
        ns[entry_at, 2] = np.where(known, rest, 0)
    return _Cuts(at, ns)


def _gaps(gap: Ints, own: Ints) -> Ints:
    """The wall clock that was cut out, by kind, as the rank that came last spent it: n × 3."""
    gaps = np.zeros((len(gap), len(GAPS)), np.int64)
    whole = np.maximum(own.sum(axis=1), 1)
    for index in range(2):
        gaps[:, index] = (gap * (own[:, index] / whole)).astype(np.int64)
    gaps[:, 2] = gap - gaps[:, :2].sum(axis=1)
    return gaps
