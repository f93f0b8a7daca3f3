"""The ledger: what every step's time was spent on, exact to the nanosecond.

Step i lasts from R(i−1) to R(i), the earliest moment at which it is reduced on any rank. Its time is
input + compute + other of the reference rank, plus imbalance (how much later the critical rank was
ready), plus allreduce (from the last rank's gradients ready until reduced). Validation, checkpoints
and the ends of epochs lie between steps: they are cut out of every rank's arrival, and what the cut
takes from the wall clock has a row of its own.

A step that a few of many ranks lack is in the ledger, too: there, a rank without timestamps counts
as the reference rank, so that it is never blamed. A step that more of them lack is left out.
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

#: Stages of a rank's own work in a step, in the order in which ``cause`` counts them.
STAGES = ("input", "compute", "other")
#: Entries of the ledger, in the order in which a step goes through them.
ENTRIES = ("input", "compute", "other", "imbalance", "allreduce")
#: Entries of the ledger by cause.
CAUSES = ("input", "compute", "other", "allreduce")

#: What lies between steps.
GAPS = ("validation", "checkpoint", "epoch_gap")

# With one of so many ranks missing, the missing one is rarely the one that came last.
_RANKS_PER_MISSING = 8
# Of so many ranks, sorting a step's arrivals and looking them up takes a third of numpy's argpartition.
_SORTED = range(8, 401)
# What is looked up of the reference and the critical rank of each step.
_OF_ROLES = ("arrival", "input", "compute")


@dataclass(frozen=True)
class Ledger:
    """n steps of one generation (or several, one after the other), int64 nanoseconds."""

    ranks: tuple[int, ...]
    steps: Ints
    epochs: Ints
    #: R(i) on the reference clock.
    reduced: Ints
    #: The whole step, without what was cut out.
    total: Ints
    #: What is known of every rank in every step, n × R: ``input``, ``compute``, and ``arrival``, when
    #: its gradients were ready, counted from the step's begin; ``measured``, false where the rank lacks
    #: a timestamp and the reference rank's figures stand in for it; ``samples``, NULL where not known.
    cells: Matrix
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
    #: Per step, by how much a timestamp came late at least.
    late: Ints
    #: What R(i) may be off by chance on all steps alike, nanoseconds (SD): the clocks' part.
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
        """n × R: from R(i−1) to the rank's begin."""
        return self.cells.whole("other")

    @property
    def wait(self) -> Ints:
        """n × R: from the rank's own gradients ready until the last rank's are."""
        return self.last[:, None] - self.arrival

    @cached_property
    def last(self) -> Ints:
        """Per step, when the last rank's gradients were ready, counted from the step's begin."""
        return self._of_role("arrival", "critical")

    @property
    def imbalance(self) -> Ints:
        """Per step, by how much the critical rank was later than the reference rank."""
        return self.last - self._of_role("arrival", "reference")

    def of(self, name: str, rank: Ints) -> Ints:
        """Per step, a quantity of ``cells`` or a stage of the rank at this position."""
        return self.cells.at(name, np.arange(len(self)), rank)

    def excess(self, name: str) -> Ints:
        """Per step, by how much a stage of the critical rank exceeds the reference rank's."""
        return self.by_cause(name) - self.entry(name)

    @property
    def cause(self) -> Ints:
        """Per step: the stage with the largest excess of the critical over the reference rank."""
        return np.asarray(np.argmax(np.stack([self.excess(name) for name in STAGES]), axis=0))

    def entry(self, name: str) -> Ints:
        """One entry of the ledger, per step: input, compute, other, imbalance or allreduce."""
        if name in STAGES:
            return self._of_role(name, "reference")
        return self.imbalance if name == "imbalance" else self.allreduce

    def by_cause(self, name: str) -> Ints:
        """One entry of the ledger by cause, per step: a stage of the critical rank, or allreduce.

        The critical rank's stages contain what the other ranks wait for, so the four entries add up
        to the step.
        """
        return self.allreduce if name == "allreduce" else self._of_role(name, "critical")

    def _of_role(self, name: str, role: str) -> Ints:
        """Per step, what ``of`` gives of the critical or the reference rank."""
        own = self._roles[role]
        if name == "other":
            return own["arrival"] - own["input"] - own["compute"]
        return own[name]

    @cached_property
    def _roles(self) -> dict[str, dict[str, Ints]]:
        """Look them up once: nearly all figures of a step are about these ranks."""
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
        return self.as_sure_as_clocks(name, mean_with_interval(per_step)).scaled(1e-6)

    def as_sure_as_clocks(self, name: str, mean: Mean) -> Mean:
        """A mean in nanoseconds, less sure by what clocks and late timestamps may shift it."""
        if name in ("other", "allreduce"):
            mean = mean.minus(Mean(0.0, (-2 * self.boundary_sd, 2 * self.boundary_sd)))
        if name in ("compute", "allreduce") and len(self):
            # In other steps timestamps may be as late as in those where causality shows it.
            mean = mean.widened(float(self.late.mean()))
        return mean

    @cached_property
    def rank_means(self) -> dict[str, Floats]:
        """Means of the stages and of ``wait`` per rank, nanoseconds per measured step.

        NaN where a rank measured no step.
        """
        count, *sums = self.cells.summed(_rank_sums, self.last)
        measured = np.where(count, count, np.nan)
        return {name: total / measured for name, total in zip((*STAGES, "wait"), sums, strict=True)}

    def take(self, chosen: Bools) -> Ledger:
        """The same for some of the steps."""
        return Ledger(**{name: _rows(value, chosen) for name, value in _fields(self).items()})


def build_ledger(aligned: AlignedSteps) -> Ledger:
    """The ledger of all steps that (nearly) every rank measured and whose predecessor any rank did."""
    ranks = len(aligned.ranks)
    found = aligned.cells.by_steps(_ends)
    first, last_ready, there = (np.concatenate(parts) for parts in zip(*found, strict=True))
    # Clocks that are off must not make time negative, nor let it count twice.
    ended = np.where(first == NULL, NULL, np.maximum(first, last_ready))
    origin = _origins(aligned, ended)
    missing = ranks - there
    chosen = (missing * _RANKS_PER_MISSING <= ranks) & (missing < max(ranks, 1)) & (origin != NULL)
    cuts = _cuts(aligned, ended).of(chosen)
    stamps = aligned.cells.take(chosen)
    start, reduced = origin[chosen], ended[chosen]
    made, parts = stamps.made_by_steps(_taken_apart, start, cuts)
    of_steps = (np.concatenate(own) for own in zip(*parts, strict=True))
    reference, second, critical, last, last_ready, latest = of_steps
    allreduce = reduced - last_ready
    total = last + allreduce
    return Ledger(
        ranks=aligned.ranks,
        steps=aligned.steps[chosen],
        epochs=aligned.epochs[chosen],
        reduced=reduced,
        total=total,
        cells=stamps.only("measured", "samples").merged_with(made),
        allreduce=allreduce,
        critical=critical,
        second=second,
        reference=reference,
        gaps=_gaps(reduced - start - total, cuts, latest),
        session_start=aligned.session_start[chosen],
        late=aligned.late.per_step(len(aligned.steps))[chosen],
        boundary_sd=aligned.clocks.by_chance,
    )


def mean_over_ranks(block: Block, name: str, ranks: Ints | None = None) -> Floats:
    """A kernel: per step, the mean over all ranks, or over those at some positions."""
    return np.asarray((block[name] if ranks is None else block.of(name, ranks)).mean(axis=1))


def _rank_sums(block: Block, last: Ints) -> Ints:
    """(Measured steps, nanoseconds of each stage, of waiting) × ranks."""
    measured = block["measured"]
    times = [*(block[name] for name in STAGES), last[block.steps, None] - block["arrival"]]
    if not measured.all():
        times = [np.where(measured, one, 0) for one in times]
    return np.array([measured.sum(axis=0), *(one.sum(axis=0) for one in times)])


def _of_roles(block: Block, *roles: Ints) -> Ints:
    """Roles × quantities × steps."""
    arrays = [block[name] for name in _OF_ROLES]
    at = np.arange(block.shape[0])
    if not len(block.ranks):
        return np.zeros((len(roles), len(arrays), 0), np.int64)
    return np.array([[array[at, role[block.steps]] for array in arrays] for role in roles])


def _ends(block: Block) -> tuple[Ints, Ints, Ints]:
    """Per step: the first rank reduced, the last one ready, and how many ranks measured it."""
    last = block["ready"].max(axis=1, initial=NULL)
    (steps, ranks), measured = block.shape, block["measured"]
    there = np.full(steps, ranks) if measured.all() else measured.sum(axis=1)
    return earliest(block["reduced"]), last, there


def _taken_apart(
    block: Block, start: Ints, cuts: Cuts
) -> tuple[dict[str, Array], tuple[Ints, ...]]:
    """Stages of every rank, and per step the figures of all of them."""
    begin, data, ready, measured = (block[name] for name in ("begin", "data", "ready", "measured"))
    arrival = ready - start[block.steps, None]
    own = block.within(cuts.at)
    arrival[cuts.at[own] - block.steps.start] -= cuts.ns[own].sum(axis=1)
    fetch, compute = data - begin, ready - data
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
    per_step = (reference, second, critical, last, ready.max(axis=1, initial=NULL), latest)
    return {"arrival": arrival, "input": fetch, "compute": compute}, per_step


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
    cells = ledgers[0].cells.followed_by([ledger.cells for ledger in ledgers[1:]])
    return Ledger(**{**joined, "cells": cells})


def _fields(ledger: Ledger) -> dict[str, Any]:
    return {name: getattr(ledger, name) for name in Ledger.__dataclass_fields__}


def _rows(value: Any, chosen: Bools) -> Any:
    """Some of the steps of a ledger's field."""
    if isinstance(value, Matrix):
        return value.take(chosen)
    return value[chosen] if isinstance(value, np.ndarray) else value


def earliest(reduced: Ints) -> Ints:
    """Per step the earliest ``reduced`` of any rank that measured it; NULL where none did."""
    first = reduced.min(axis=1, initial=LATEST)
    holes = first == NULL
    if holes.any():
        own = reduced[holes]
        filled = np.where(own == NULL, LATEST, own).min(axis=1, initial=LATEST)
        first[holes] = np.where(filled == LATEST, NULL, filled)
    return np.asarray(first)


def _origins(aligned: AlignedSteps, ended: Ints) -> Ints:
    """Where each step begins: R(i−1), or for the first of a session its earliest begin."""
    origin = np.full(len(aligned.steps), NULL)
    follows = np.diff(aligned.steps) == 1
    origin[1:][follows] = ended[:-1][follows]
    at = np.flatnonzero(aligned.session_start)
    begin = aligned.cells.rows("begin", at)
    first = np.where(begin == NULL, LATEST, begin).min(axis=1, initial=LATEST)
    origin[at] = np.where(first == LATEST, NULL, first)
    return origin


def in_order(arrival: Ints, measured: Bools) -> tuple[Ints, Ints, Ints]:
    """Per step the positions of the reference rank (lower median), the second to last and the last."""
    ranks = arrival.shape[1]
    if not ranks:
        return (np.zeros(0, np.int64),) * 3
    # Step by step: its arrivals should lie together.
    lanes = np.ascontiguousarray(arrival)
    reference, second, critical = _ranks_at(lanes, ((ranks - 1) // 2, max(ranks - 2, 0), ranks - 1))
    if not measured.all():
        partly = np.flatnonzero(~measured.all(axis=1))
        # Missing ranks come first, so that the last ones are among those that are there.
        own = np.where(measured[partly], arrival[partly], NULL)
        order = np.argsort(own, axis=1, kind="stable")
        there = measured[partly].sum(axis=1)
        at = np.arange(len(partly))
        reference[partly] = order[at, ranks - there + (there - 1) // 2]
        second[partly] = order[at, ranks - np.minimum(there, 2)]
        critical[partly] = order[:, ranks - 1]
    return reference, second, critical


def _ranks_at(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    """3 × steps: the positions of the ranks whose arrivals are at these places of a step's order."""
    if arrival.shape[1] not in _SORTED:
        return _ranks_partitioned(arrival, kth)
    ordered = np.sort(arrival, axis=1)
    ranks = np.array([(arrival == ordered[:, k, None]).argmax(axis=1) for k in kth])
    # Where several ranks have that arrival, the lowest one must not always be the one.
    at = np.array([kth[0], kth[0] + 1, *kth[1:]])
    tied = np.flatnonzero((ordered[:, at] == ordered[:, at - 1]).any(axis=1))
    if len(tied):
        ranks[:, tied] = _ranks_partitioned(arrival[tied], kth)
    return ranks


def _ranks_partitioned(arrival: Ints, kth: tuple[int, int, int]) -> Ints:
    order = np.argpartition(arrival, sorted(set(kth)), axis=1)
    return np.array([order[:, k] for k in kth])


@dataclass(frozen=True)
class Cuts:
    """What lies between a rank's last step and this one; there is nothing in most steps."""

    #: Positions of the steps with cuts, ascending, and per kind (as in GAPS) their nanoseconds × R.
    at: Ints
    ns: Ints

    def of(self, chosen: Bools) -> Cuts:
        """The cuts of some of the steps."""
        own = chosen[self.at]
        position = np.cumsum(chosen) - 1
        return Cuts(position[self.at[own]], self.ns[own])

    def of_ranks(self, rank: Ints) -> Ints:
        """By kind, the cuts of one rank (its position) in each of the steps that have any."""
        return np.asarray(self.ns[np.arange(len(self.at)), :, rank])


def _cuts(aligned: AlignedSteps, ended: Ints) -> Cuts:
    steps, ranks = aligned.cells.shape
    intervals = aligned.intervals
    # At the end of an epoch everything between two steps is the epoch's, not the step's.
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
        # What began before the step before was reduced, or outlasts this one's begin, is not between.
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
    """The wall clock that was cut out, by kind, as the rank that came last spent it: n × 3.

    Args:
        gap: per step, what was cut out.
        cuts: what lies before some of the steps.
        last: per one of these, the position of the rank that came last.
    """
    gaps = np.zeros((len(gap), len(GAPS)), np.int64)
    own = cuts.of_ranks(last)
    whole = np.maximum(own.sum(axis=1), 1)
    for index in range(2):
        gaps[cuts.at, index] = (gap[cuts.at] * (own[:, index] / whole)).astype(np.int64)
    gaps[:, 2] = gap - gaps[:, :2].sum(axis=1)
    return gaps
