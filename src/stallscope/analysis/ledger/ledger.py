"""The ledger: where the time of every step goes, exact to the nanosecond.

Step i lasts from R(i−1) to R(i), the earliest moment at which it is reduced on any rank. Its time is
input + compute + other of the reference rank, plus imbalance (how much later the critical rank was
ready), plus allreduce (from the last rank's gradients ready until reduced). Validation, checkpoints
and the ends of epochs lie between steps: they are cut out of every rank's arrival, and the wall time
of each cut has a row of its own.

Where a slow link makes completions late, a rank's work starts at its own completion of step i−1: what it
waits for beyond R(i−1) is allreduce of step i, and no work between steps.

A step that a few of many ranks lack is in the ledger, too: a rank without timestamps counts as the
reference rank there, so that it is never blamed. A step that more ranks lack is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Array, Block, Matrix
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints

from ..steps.alignment import AlignedSteps

#: Stages of a rank's own work, numbered as in ``Ledger.cause``.
STAGES = ("input", "compute", "other")
#: Entries of the ledger, in the order of a step.
ENTRIES = ("input", "compute", "other", "imbalance", "allreduce")
#: Entries of the ledger by cause.
CAUSES = ("input", "compute", "other", "allreduce")

#: Time between steps, by kind.
GAPS = ("validation", "checkpoint", "epoch_gap")

# With one rank in this many missing, the missing one was rarely the last.
_RANKS_PER_MISSING = 8
# From this number of ranks, sorting takes less than half of the time of numpy's argpartition.
_SORTED = 8
# Where ranks arrive together in more than so many of so many steps, sorting is in vain.
_MANY_TIES, _STEPS_FOR_TIES = 6, 16
# Quantities of the reference and the critical rank of each step.
_OF_ROLES = ("arrival", "input", "compute")


@dataclass(frozen=True)
class Ledger:
    """n steps of one generation (or several, one after the other), int64 nanoseconds."""

    ranks: tuple[int, ...]
    steps: Ints
    epochs: Ints
    #: R(i) on the reference clock.
    reduced: Ints
    #: The whole step, without cuts.
    total: Ints
    #: Of every rank in every step, n × R: ``input``; ``compute``; ``arrival``, when its gradients were
    #: ready, from the step's start; ``measured``, false where a timestamp is missing and the reference
    #: rank's figures are used; ``samples``, NULL where not known.
    cells: Matrix
    allreduce: Ints
    #: Positions in ``ranks`` of the critical rank, of the second last (the critical rank itself if it
    #: is alone), and of the reference rank.
    critical: Ints
    second: Ints
    reference: Ints
    #: Wall time between R(i−1) and R(i) outside of the step: n × 3, in the order of GAPS.
    gaps: Ints
    #: Whether a training session starts with this step.
    session_start: Bools
    #: Per step, how late a timestamp was at least.
    late: Ints
    #: The error of R(i) that all steps share, from the clocks, nanoseconds (SD).
    boundary_sd: float

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def input(self) -> Ints:
        """n × R."""
        return self.cells.whole("input")

    @property
    def compute(self) -> Ints:
        """n × R."""
        return self.cells.whole("compute")

    @property
    def arrival(self) -> Ints:
        """n × R."""
        return self.cells.whole("arrival")

    @property
    def measured(self) -> Bools:
        """n × R."""
        return self.cells.whole("measured")

    @property
    def samples(self) -> Ints:
        """n × R."""
        return self.cells.whole("samples")

    @property
    def other(self) -> Ints:
        """n × R: from R(i−1), or the rank's own completion, to the rank's start of the step."""
        return self.cells.whole("other")

    @property
    def wait(self) -> Ints:
        """n × R: from the rank's own gradients ready until the last rank's are."""
        return self.last[:, None] - self.arrival

    @cached_property
    def last(self) -> Ints:
        """Per step, when the last rank's gradients were ready, from the step's start."""
        return self._of_role("arrival", "critical")

    @property
    def imbalance(self) -> Ints:
        """Per step, how much later the critical rank was than the reference rank."""
        return self.last - self._of_role("arrival", "reference")

    def of(self, name: str, rank: Ints) -> Ints:
        """Return, per step, a quantity of ``cells`` or a stage of the rank at this position."""
        return self.cells.at(name, np.arange(len(self)), rank)

    def excess(self, name: str) -> Ints:
        """Return how much longer a stage of the critical rank is than the reference rank's, per step."""
        return self.by_cause(name) - self.entry(name)

    @property
    def cause(self) -> Ints:
        """Per step, the stage with the largest excess of the critical over the reference rank."""
        return np.asarray(np.argmax(np.stack([self.excess(name) for name in STAGES]), axis=0))

    def entry(self, name: str) -> Ints:
        """Return an entry of the ledger per step: input, compute, other, imbalance or allreduce."""
        if name in STAGES:
            return self._of_role(name, "reference")
        return self.imbalance if name == "imbalance" else self.allreduce

    def by_cause(self, name: str) -> Ints:
        """Return an entry of the ledger by cause per step: a stage of the critical rank, or allreduce.

        The critical rank's stages include the time that others wait, so the four entries add up to
        the step.
        """
        return self.allreduce if name == "allreduce" else self._of_role(name, "critical")

    def _of_role(self, name: str, role: str) -> Ints:
        """Return ``of`` for the critical or the reference rank of each step."""
        own = self._roles[role]
        if name == "other":
            return own["arrival"] - own["input"] - own["compute"]
        return own[name]

    @cached_property
    def _roles(self) -> dict[str, dict[str, Ints]]:
        """Quantities of the reference and critical ranks, looked up once for all figures."""
        found = np.concatenate(
            self.cells.by_steps(_of_roles, self.reference, self.critical), axis=-1
        )
        return {
            role: dict(zip(_OF_ROLES, own, strict=True))
            for role, own in zip(("reference", "critical"), found, strict=True)
        }

    def mean_ms(self, name: str, by_cause: bool = False) -> Mean:
        """Return the mean of an entry in milliseconds, with its interval."""
        per_step = self.by_cause(name) if by_cause else self.entry(name)
        return self.widened_by_clocks(name, mean_with_interval(per_step)).scaled(1e-6)

    def widened_by_clocks(self, name: str, mean: Mean) -> Mean:
        """Widen a mean in nanoseconds by the errors of clocks and late timestamps."""
        if name in ("other", "allreduce"):
            mean = mean.minus(Mean(0.0, (-2 * self.boundary_sd, 2 * self.boundary_sd)))
        if name in ("compute", "allreduce") and len(self):
            # Timestamps of other steps may be as late as those that causality reveals.
            mean = mean.widened(float(self.late.mean()))
        return mean

    @cached_property
    def rank_means(self) -> dict[str, Floats]:
        """Return means of the stages and of ``wait`` per rank, nanoseconds per measured step.

        NaN where a rank measured no step.
        """
        count, *sums = self.cells.summed(_rank_sums, self.last)
        measured = np.where(count, count, np.nan)
        return {name: total / measured for name, total in zip((*STAGES, "wait"), sums, strict=True)}

    def take(self, chosen: Bools) -> Ledger:
        """Return the ledger of the chosen steps."""
        return Ledger(**{name: _rows(value, chosen) for name, value in _fields(self).items()})


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """Build the ledger of all steps that nearly every rank measured, after a measured step."""
    ranks = len(aligned.ranks)
    found = aligned.cells.by_steps(_ends)
    first, last_ready, there = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # Clock errors must not make time negative, or count it twice.
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
        # From a rank's own completion to its own start nothing is compared between clocks.
        boundary_sd=0.0 if completes_late else aligned.clocks.by_chance,
    )


def mean_over_ranks(block: Block, name: str, ranks: Ints | None = None) -> Floats:
    """Kernel: compute the mean of a quantity over all ranks, or some of them, per step."""
    return np.asarray((block[name] if ranks is None else block.of(name, ranks)).mean(axis=1))


def _rank_sums(block: Block, last: Ints) -> Ints:
    """Kernel: count measured steps and add up each stage and the wait, per rank."""
    measured = block["measured"]
    times, lasts = [block[name] for name in _OF_ROLES], last[block.steps]
    count, last_sum = np.full(len(block.ranks), len(lasts)), lasts.sum()
    if not measured.all():
        times = [np.where(measured, one, 0) for one in times]
        count, last_sum = measured.sum(axis=0), measured.T @ lasts
    arrival, fetch, compute = (one.sum(axis=0) for one in times)
    return np.array([count, fetch, compute, arrival - fetch - compute, last_sum - arrival])


def _of_roles(block: Block, *roles: Ints) -> Ints:
    """Kernel: look up quantities of the ranks in each role: roles × quantities × steps."""
    at = np.arange(block.shape[0])
    if not len(block.ranks):
        return np.zeros((len(roles), len(_OF_ROLES), 0), np.int64)
    return np.array(
        [[block.at(name, at, role[block.steps]) for name in _OF_ROLES] for role in roles]
    )


def _ends(block: Block) -> tuple[Ints, Ints, Ints]:
    """Kernel: find per step the first *reduced*, the last *ready*, and how many ranks measured it."""
    last = block["ready"].max(axis=1, initial=NULL)
    (steps, ranks), measured = block.shape, block["measured"]
    there = np.full(steps, ranks) if measured.all() else measured.sum(axis=1)
    return earliest(block["reduced"]), last, there


def _completions_before(aligned: AlignedSteps, chosen: Bools, start: Ints) -> Matrix:
    """Return by how much each rank completed the step before a chosen one after R(i−1)."""
    reduced = aligned.cells.only("reduced")
    before = reduced.take(np.append(chosen[1:], False))
    if chosen[:1].any():
        # No step is before the first one: any row stands for it, as a session starts there.
        before = reduced.take(np.arange(len(chosen)) == 0).followed_by([before])
    made, _ = before.compute_by_steps(_delays, start, aligned.session_start[chosen])
    return made


def _delays(block: Block, start: Ints, first: Bools) -> tuple[dict[str, Array], None]:
    """Kernel: how late each rank's completion was; 0 where a session starts, or it was not measured."""
    reduced = block["reduced"]
    unknown = (reduced == NULL) | first[block.steps, None]
    delay = np.where(unknown, 0, reduced - start[block.steps, None])
    return {"delay": np.maximum(delay, 0)}, None


def _taken_apart(
    block: Block, start: Ints, cuts: Cuts, completes_late: bool
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
    reference, second, critical = in_order(arrival, measured)
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


def concatenated(ledgers: Sequence[Ledger]) -> Ledger | None:
    """Concatenate ledgers of generations with the same ranks; None if there are none."""
    if len(ledgers) < 2:
        return next(iter(ledgers), None)
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(ledger, name) for ledger in ledgers])
        if isinstance(value, np.ndarray)
        else value
        for name, value in _fields(ledgers[-1]).items()
    }
    cells = ledgers[0].cells.followed_by([ledger.cells for ledger in ledgers[1:]])
    return Ledger(**{**joined, "cells": cells})


def _fields(ledger: Ledger) -> dict[str, Any]:
    return {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__}


def _rows(value: Any, chosen: Bools) -> Any:
    """Return the chosen steps of a ledger's field."""
    if isinstance(value, Matrix):
        return value.take(chosen)
    return value[chosen] if isinstance(value, np.ndarray) else value


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
    """Return when each step starts: R(i−1), or the earliest start of a session's first step."""
    origin = np.full(len(aligned.steps), NULL)
    follows = np.diff(aligned.steps) == 1
    origin[1:][follows] = ended[:-1][follows]
    at = np.flatnonzero(aligned.session_start)
    begin = aligned.cells.rows("begin", at)
    first = np.where(begin == NULL, LATEST, begin).min(axis=1, initial=LATEST)
    origin[at] = np.where(first == LATEST, NULL, first)
    return origin


def in_order(arrival: Ints, measured: Bools) -> tuple[Ints, Ints, Ints]:
    """Return per step the positions of the reference rank (lower median), second last and last."""
    ranks = arrival.shape[1]
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    # Row by row: the arrivals of a step should be contiguous.
    lanes = np.ascontiguousarray(arrival)
    reference, second, critical = _ranks_at(lanes, ((ranks - 1) // 2, max(ranks - 2, 0), ranks - 1))
    if not measured.all():
        partly = np.flatnonzero(~measured.all(axis=1))
        # Missing ranks sort first, so that the last ones are measured.
        own = np.where(measured[partly], arrival[partly], NULL)
        order = np.argsort(own, axis=1, kind="stable")
        there = measured[partly].sum(axis=1)
        at = np.arange(len(partly))
        reference[partly] = order[at, ranks - there + (there - 1) // 2]
        second[partly] = order[at, ranks - np.minimum(there, 2)]
        critical[partly] = order[:, ranks - 1]
    return reference, second, critical


def _ranks_at(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    """Return the ranks at these places of a step's order of arrivals: 3 × steps."""
    if arrival.shape[1] < _SORTED:
        return _ranks_partitioned(arrival, kth)
    if _tied(np.sort(arrival[:_STEPS_FOR_TIES], axis=1), kth).sum() > _MANY_TIES:
        return _ranks_partitioned(arrival, kth)
    ordered = np.sort(arrival, axis=1)
    ranks = np.array([(arrival == ordered[:, k, None]).argmax(axis=1) for k in kth])
    # Among ranks with the same arrival, the lowest must not always be chosen.
    tied = np.flatnonzero(_tied(ordered, kth))
    if len(tied):
        ranks[:, tied] = _ranks_partitioned(arrival[tied], kth)
    return ranks


def _tied(ordered: Ints, kth: tuple[int, int, int]) -> Bools:
    """Mark the steps in which several ranks have the arrival at one of these places."""
    at = np.array([kth[0], kth[0] + 1, *kth[1:]])
    return np.asarray((ordered[:, at] == ordered[:, at - 1]).any(axis=1))


def _ranks_partitioned(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    order = np.argpartition(arrival, sorted(set(kth)), axis=1)
    return np.array([order[:, k] for k in kth])


@dataclass(frozen=True)
class Cuts:
    """Validation, checkpoints and epoch ends before steps; most steps have none."""

    #: Positions of the steps with cuts, ascending, and per kind (as in GAPS) their nanoseconds × R.
    at: Ints
    ns: Ints

    def of(self, chosen: Bools) -> Cuts:
        """Return the cuts of the chosen steps."""
        own = chosen[self.at]
        position = np.cumsum(chosen) - 1
        return Cuts(position[self.at[own]], self.ns[own])

    def of_ranks(self, rank: Ints) -> Ints:
        """Return the cuts by kind of one rank per step; ``ranks`` are positions."""
        return np.asarray(self.ns[np.arange(len(self.at)), :, rank])


def _cuts(aligned: AlignedSteps, ended: Ints) -> Cuts:
    steps, ranks = aligned.cells.shape
    intervals = aligned.intervals
    # At the end of an epoch, everything between two steps belongs to the epoch.
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
    for index, kind in enumerate(GAPS[:2]):
        chosen = there & (intervals.kind == kind)
        where = (position[chosen], intervals.rank_index[chosen])
        # Only intervals after the previous step's reduction and before this one's start are between.
        low = np.maximum(intervals.begin[chosen], ended[where[0] - 1])
        high = np.minimum(intervals.end[chosen], begins[chosen])
        entry = (np.searchsorted(at, where[0]), index, where[1])
        np.add.at(ns, entry, np.maximum(high - low, 0))
    entries = np.flatnonzero(boundary[at])
    begin = aligned.cells.rows("begin", at[entries])
    end = aligned.cells.rows("end", at[entries] - 1)
    known = (begin != NULL) & (end != NULL)
    rest = np.maximum(begin - end - ns[entries, :2].sum(axis=1), 0)
    ns[entries, 2] = np.where(known, rest, 0)
    return Cuts(at, ns)


def _gaps(gap: Ints, cuts: Cuts, last: Ints) -> Ints:
    """Split the wall time that was cut out by kind, as the last rank spent it: n × 3.

    Args:
        gap: per step, the time that was cut out.
        cuts: what lies before some of the steps.
        last: for each of these steps, the position of the rank that came last.
    """
    gaps = np.zeros((len(gap), len(GAPS)), np.int64)
    own = cuts.of_ranks(last)
    whole = np.maximum(own.sum(axis=1), 1)
    for index in range(2):
        gaps[cuts.at, index] = (gap[cuts.at] * (own[:, index] / whole)).astype(np.int64)
    gaps[:, 2] = gap - gaps[:, :2].sum(axis=1)
    return gaps
