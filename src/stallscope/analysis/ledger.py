"""The ledger: what every step's time was spent on, exact to the nanosecond.

Step i lasts from R(i−1) to R(i), the earliest moment at which it is reduced on any rank. Its time is
input + compute + other of the reference rank, plus imbalance (how much later the critical rank was
ready), plus allreduce (from the last rank's gradients ready until reduced). Validation, checkpoints
and the ends of epochs lie between steps: they are cut out of every rank's arrival, and what the cut
takes from the wall clock has a row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .alignment import NULL, AlignedSteps, Ints

#: Stages of a rank's own work in a step, in the order in which ``cause`` counts them.
STAGES = ("input", "compute", "other")

#: What lies between steps.
GAPS = ("validation", "checkpoint", "epoch_gap")


@dataclass(frozen=True)
class Ledger:
    """n steps of one generation (or several, one after the other) × R ranks, int64 nanoseconds."""

    ranks: tuple[int, ...]
    steps: Ints
    epochs: Ints
    #: R(i) on the reference clock.
    reduced: Ints
    #: The whole step, without what was cut out.
    total: Ints
    #: Per rank: S × R.
    input: Ints
    compute: Ints
    other: Ints
    wait: Ints
    allreduce: Ints
    #: Positions of the critical and of the reference rank in ``ranks``.
    critical: Ints
    reference: Ints
    samples: Ints
    #: Wall clock between R(i−1) and R(i) that is no part of the step: n × 3, in the order of GAPS.
    gaps: Ints
    #: Whether a training session begins with this step.
    session_start: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def arrival(self) -> Ints:
        """n × R: when a rank's gradients were ready, counted from the step's begin."""
        return self.input + self.compute + self.other

    @property
    def imbalance(self) -> Ints:
        return self._of(self.arrival, self.critical) - self._of(self.arrival, self.reference)

    @property
    def cause(self) -> Ints:
        """Per step: the stage with the largest excess of the critical over the reference rank."""
        excess = [
            self._of(getattr(self, stage), self.critical)
            - self._of(getattr(self, stage), self.reference)
            for stage in STAGES
        ]
        return np.asarray(np.argmax(np.stack(excess), axis=0))

    def entry(self, name: str) -> Ints:
        """One entry of the ledger, per step: input, compute, other, imbalance or allreduce."""
        if name in STAGES:
            return self._of(getattr(self, name), self.reference)
        return self.imbalance if name == "imbalance" else self.allreduce

    def take(self, chosen: npt.NDArray[np.bool_]) -> Ledger:
        """The same for some of the steps."""
        values: dict[str, Any] = {
            name: value[chosen] if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        return Ledger(**values)

    def _of(self, stage: Ints, rank: Ints) -> Ints:
        return stage[np.arange(len(stage)), rank]


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """The ledger of all steps that every rank measured and whose predecessor any rank measured."""
    reduced_first = _earliest(aligned.reduced)
    origin = _origins(aligned, reduced_first)
    chosen = aligned.measured & (origin != NULL)
    cuts = _cuts(aligned, reduced_first)[chosen]
    cut = cuts.sum(axis=2)

    begin, data = aligned.begin[chosen], aligned.data[chosen]
    ready, reduced = aligned.ready[chosen], reduced_first[chosen]
    start = origin[chosen]
    other = begin - start[:, None] - cut
    arrival = ready - start[:, None] - cut
    # A faulty clock can put a completion before the last arrival: the time is not negative.
    last_ready = ready.max(axis=1, initial=NULL)
    allreduce = np.maximum(reduced - last_ready, 0)
    order = np.argsort(arrival, axis=1, kind="stable")
    ranks = arrival.shape[1]
    critical = order[:, -1] if ranks else np.zeros(0, np.int64)
    reference = order[:, (ranks - 1) // 2] if ranks else np.zeros(0, np.int64)
    total = arrival.max(axis=1, initial=NULL) + allreduce
    elapsed = np.maximum(reduced, last_ready) - start
    return Ledger(
        ranks=aligned.ranks,
        steps=aligned.steps[chosen],
        epochs=aligned.epochs[chosen],
        reduced=reduced,
        total=total,
        input=data - begin,
        compute=ready - data,
        other=other,
        wait=arrival.max(axis=1, initial=NULL)[:, None] - arrival,
        allreduce=allreduce,
        critical=critical,
        reference=reference,
        samples=_samples(aligned, chosen),
        gaps=_gaps(elapsed - total, cuts, ready),
        session_start=aligned.session_start[chosen],
    )


def _earliest(reduced: Ints) -> Ints:
    """R(i): the earliest ``reduced`` of any rank that measured it; NULL where none did."""
    latest = np.iinfo(np.int64).max
    first = np.where(reduced == NULL, latest, reduced).min(axis=1, initial=latest)
    return np.where(first == latest, NULL, first)


def _origins(aligned: AlignedSteps, reduced_first: Ints) -> Ints:
    """Where each step begins: R(i−1), or for the first of a session its earliest begin."""
    origin = np.full(len(aligned.steps), NULL)
    follows = np.diff(aligned.steps) == 1
    origin[1:][follows] = reduced_first[:-1][follows]
    starts = aligned.session_start & (aligned.begin != NULL).all(axis=1)
    origin[starts] = aligned.begin[starts].min(axis=1)
    return origin


def _cuts(aligned: AlignedSteps, reduced_first: Ints) -> Ints:
    """S × R × 3: what lies between a rank's last step and this one, by kind as in GAPS."""
    steps, ranks = aligned.begin.shape
    cuts = np.zeros((steps, ranks, len(GAPS)), np.int64)
    intervals = aligned.intervals
    position = np.searchsorted(aligned.steps, intervals.step)
    there = position < steps
    position = np.where(there, position, 0)
    there &= aligned.steps[position] == intervals.step if steps else there
    there &= aligned.begin[position, intervals.rank_index] != NULL if steps else there
    there &= ~aligned.session_start[position] if steps else there
    for index, kind in enumerate(GAPS[:2]):
        chosen = there & (intervals.kind == kind)
        where = (position[chosen], intervals.rank_index[chosen])
        # What began before the step before was reduced, or outlasts this one's begin, is not between.
        low = np.maximum(intervals.begin[chosen], reduced_first[where[0] - 1])
        high = np.minimum(intervals.end[chosen], aligned.begin[where])
        np.add.at(cuts[:, :, index], where, np.maximum(high - low, 0))
    if steps > 1:
        # At the end of an epoch everything between two steps is the epoch's, not the step's.
        boundary = (aligned.epochs[1:] != aligned.epochs[:-1]) & ~aligned.session_start[1:]
        between = aligned.begin[1:] - aligned.end[:-1]
        known = (aligned.begin[1:] != NULL) & (aligned.end[:-1] != NULL) & boundary[:, None]
        rest = np.maximum(between - cuts[1:, :, :2].sum(axis=2), 0)
        cuts[1:, :, 2] = np.where(known, rest, 0)
    return cuts


def _gaps(gap: Ints, cuts: Ints, ready: Ints) -> Ints:
    """The wall clock that was cut out, by kind, as the rank that came last spent it."""
    gaps = np.zeros((len(gap), len(GAPS)), np.int64)
    if not len(gap) or not ready.shape[1]:
        return gaps
    last = ready.argmax(axis=1)
    own = cuts[np.arange(len(gap)), last]
    whole = np.maximum(own.sum(axis=1), 1)
    for index in range(2):
        gaps[:, index] = (gap * (own[:, index] / whole)).astype(np.int64)
    gaps[:, 2] = gap - gaps[:, :2].sum(axis=1)
    return gaps


def _samples(aligned: AlignedSteps, chosen: npt.NDArray[np.bool_]) -> Ints:
    """Samples of all ranks together, per step; NULL where a rank's are not known."""
    samples = aligned.samples[chosen]
    known = (samples != NULL).all(axis=1)
    return np.where(known, np.where(samples == NULL, 0, samples).sum(axis=1), NULL)
