"""Analyse one step of all ranks: the last rank, the reason, and the cost to the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL
from stallscope.arrays.types import Ints
from stallscope.run import Run
from stallscope.words import (
    INTERPRETER,
    PAUSES_IN_STEPS,
    STAGES,
    NotedInStep,
    PauseInStep,
    Stage,
)

from ..findings.delays_in_steps import looks_at_waits
from ..ledger.ledger import GAPS, Ledger
from ..result import Analysis, GenerationLedger
from ..steps.alignment import AlignedSteps, align
from .lanes import Lanes

_MS = 1e-6
_NEVER = np.iinfo(np.int64).max
# Half the width of a 95 % interval for the square root of a count, whose standard deviation is 0.5.
_OF_ROOTS = 0.98


@dataclass(frozen=True)
class RankInStep:
    """A rank's own stages in one step, milliseconds."""

    rank: int
    host: str
    other: float
    input: float
    compute: float
    wait: float
    #: From the step's start until its gradients were ready.
    arrival: float


@dataclass(frozen=True)
class OneStep:
    """An analysed step of a generation; milliseconds unless named otherwise."""

    #: Position among the steps of all generations, which follow each other.
    at: int
    step: int
    generation: int
    epoch: int
    warm_up: bool
    #: The generations that trained the step: a restarted job may repeat it.
    generations: tuple[int, ...]
    total: float
    allreduce: float
    #: Milliseconds by kind of GAPS; empty without gaps.
    gaps: tuple[tuple[str, float], ...]
    #: The measured ranks, the last one first.
    ranks: tuple[RankInStep, ...]
    unmeasured: tuple[int, ...]
    #: The last and the reference rank; the same if there is only one rank.
    last: int
    reference: int
    #: The stage that explains most of the last rank's delay against the reference rank.
    cause: Stage
    #: The time that all ranks waited for the last one, rank-seconds.
    waited_rank_s: float
    #: Whether the step is unusual: its last rank was later than usual and than chance explains.
    late: bool


class PauseOfRank(NamedTuple):
    """What paused a rank within a step."""

    kind: PauseInStep
    rank: int
    ms: float


class LockWaitsOfRank(NamedTuple):
    """How long a rank waited for Python's lock within a step, as looks at random moments tell."""

    rank: int
    #: Those that found it waiting.
    looks: int
    ms: float
    #: None if the looks are too few to tell how long it waited.
    ci95: tuple[float, float] | None


class StepOf(NamedTuple):
    """A step of a generation."""

    step: int
    generation: int


@dataclass(frozen=True)
class Neighbours:
    """The previous and next steps; None if there is none."""

    previous: StepOf | None
    next: StepOf | None
    previous_late: StepOf | None
    next_late: StepOf | None


def find_step(analysis: Analysis, step: int, number: int | None = None) -> OneStep | None:
    """Find a step by its number; None if it is not in a ledger.

    Args:
        analysis: of the run.
        step: its number.
        number: the number of its generation, by default the last one that trained it.
    """
    generations = analysis.generation_ledgers
    having = [
        at for at, generation in enumerate(generations) if (generation.ledger.steps == step).any()
    ]
    chosen = [at for at in having if number in (None, generations[at].number)]
    if not chosen:
        return None
    (position,) = np.flatnonzero(generations[chosen[-1]].ledger.steps == step)[-1:].tolist()
    trained = tuple(generations[at].number for at in having)
    return _at(generations, chosen[-1], position, trained)


def neighbours(analysis: Analysis, at: int) -> Neighbours:
    """Find the steps next to the one at a position among the steps of all generations."""
    generations = analysis.generation_ledgers
    late = late_steps(generations)
    before, after = late[late < at], late[late > at]
    return Neighbours(
        _step_at(generations, at - 1),
        _step_at(generations, at + 1),
        _step_at(generations, int(before[-1])) if len(before) else None,
        _step_at(generations, int(after[0])) if len(after) else None,
    )


def late_steps(generations: Sequence[GenerationLedger]) -> Ints:
    """Find unusual steps among the steady ones, as positions among the steps of all generations."""
    starts = np.cumsum([0, *(len(generation.ledger) for generation in generations)])
    positions = [
        start + generation.late_steps
        for start, generation in zip(starts[:-1], generations, strict=True)
    ]
    return np.concatenate([np.zeros(0, np.int64), *positions])


def _step_at(generations: Sequence[GenerationLedger], at: int) -> StepOf | None:
    for generation in generations:
        if 0 <= at < len(generation.ledger):
            return StepOf(int(generation.ledger.steps[at]), generation.number)
        at -= len(generation.ledger)
    return None


def _at(
    generations: Sequence[GenerationLedger], index: int, position: int, trained: tuple[int, ...]
) -> OneStep:
    generation = generations[index]
    ledger = generation.ledger.take(np.arange(len(generation.ledger)) == position)
    last, reference = int(ledger.critical[0]), int(ledger.reference[0])
    cause = STAGES[int(ledger.cause[0])]
    measured = ledger.measured[0]
    return OneStep(
        at=sum(len(before.ledger) for before in generations[:index]) + position,
        step=int(ledger.steps[0]),
        generation=generation.number,
        epoch=int(ledger.epochs[0]),
        warm_up=bool(generation.warm_up[position]),
        generations=trained,
        total=float(ledger.total[0]) * _MS,
        allreduce=float(ledger.allreduce[0]) * _MS,
        gaps=tuple(
            (kind, float(ledger.gaps[0, index]) * _MS)
            for index, kind in enumerate(GAPS)
            if ledger.gaps[0, index] > 0
        ),
        ranks=_ranks(generation, ledger),
        unmeasured=tuple(np.asarray(ledger.ranks)[~measured].tolist()),
        last=ledger.ranks[last],
        reference=ledger.ranks[reference],
        cause=cause,
        waited_rank_s=float(ledger.wait[0][measured].sum()) / 1e9,
        late=position in generation.late_steps,
    )


def _ranks(generation: GenerationLedger, ledger: Ledger) -> tuple[RankInStep, ...]:
    names = ("other", "input", "compute", "wait", "arrival")
    latest_first = np.argsort(-ledger.arrival[0], kind="stable")
    ranks = latest_first[ledger.measured[0, latest_first]]
    columns = [(getattr(ledger, name)[0, ranks] * _MS).tolist() for name in names]
    return tuple(
        RankInStep(ledger.ranks[r], generation.hosts[r], **dict(zip(names, stages, strict=True)))
        for r, *stages in zip(ranks.tolist(), *columns, strict=True)
    )


# -- Pauses within the step ------------------------------------------------------------------------


def pauses_of_step(run: Run, step: OneStep) -> tuple[PauseOfRank, ...]:
    """Return what paused ranks from the end of the step before to its end, the longest first.

    The rows of a rank have one clock, so that this is exact on any number of hosts.
    """
    noted, since, until = _noted_in_step(run, step, PAUSES_IN_STEPS)
    columns = (noted[name].to_pylist() for name in ("kind", "rank", "begin", "end"))
    pauses = [
        PauseOfRank(kind, rank, (min(end, last) - max(begin, first)) * _MS)
        for kind, rank, begin, end, first, last in zip(
            *columns, since.tolist(), until.tolist(), strict=True
        )
    ]
    return tuple(sorted(pauses, key=lambda pause: -pause.ms))


def lock_waits_of_step(run: Run, step: OneStep) -> tuple[LockWaitsOfRank, ...]:
    """Estimate how long ranks waited for Python's lock in a step, the longest first.

    Looks in garbage collections, which hold the lock and are pauses, do not count.
    """
    noted, since, until = _noted_in_step(run, step, (INTERPRETER,))
    collected = _noted_in_step(run, step, ("garbage_collection",)).rows
    ranks, begin, end, number = (
        arrow.numbers(noted[name]) for name in ("rank", "begin", "end", "steps")
    )
    looks = looks_at_waits(begin, end, number)
    inside = (looks.moment > since[looks.row]) & (looks.moment <= until[looks.row]) & (looks.ns > 0)
    columns = (arrow.numbers(collected[name]) for name in ("rank", "begin", "end"))
    for rank, first, last in zip(*columns, strict=True):
        is_in_it = (looks.moment >= first) & (looks.moment < last)
        inside &= ~(is_in_it & (ranks[looks.row] == rank))
    looks, waits = looks.at(inside), []
    for rank in np.unique(ranks[looks.row]).tolist():
        of_rank = looks.at(ranks[looks.row] == rank)
        ns, variance = float(of_rank.ns.sum()), float(of_rank.variance.sum())
        low, high = _interval_of_looks(ns, variance)
        row = int(of_rank.row[0])
        longest = float(until[row] - since[row])
        # Rare looks stand for longer than the step, and tell only that there was a wait.
        is_known = ns < longest
        ci95 = (low * _MS, min(high, longest) * _MS) if is_known else None
        waits.append(LockWaitsOfRank(rank, len(of_rank.ns), min(ns, longest) * _MS, ci95))
    return tuple(sorted(waits, key=lambda wait: -wait.ms))


def _interval_of_looks(value: float, variance: float) -> tuple[float, float]:
    """Return the 95 % interval of a time from looks, which is not symmetric for few of them."""
    number = value**2 / variance
    low, high = max(number**0.5 - _OF_ROOTS, 0.0), (number + 1) ** 0.5 + _OF_ROOTS
    return value * low**2 / number, value * high**2 / number


class _NotedInStep(NamedTuple):
    """Rows of intervals that overlap a step of their ranks, and that step's begin and end."""

    rows: pa.Table
    since: Ints
    until: Ints


def _noted_in_step(run: Run, step: OneStep, kinds: Sequence[NotedInStep]) -> _NotedInStep:
    """Return rows between the end of the step before, on their rank, and its end."""
    noted = run.intervals.filter(pc.is_in(run.intervals["kind"], arrow.texts([*kinds])))
    noted = noted.filter(arrow.equal(noted["generation"], step.generation))
    none = np.zeros(0, np.int64)
    if not noted.num_rows:
        return _NotedInStep(noted, none, none)
    rows = run.ends_of(step.generation, (step.step - 1, step.step))
    ends = [_ends_by_rank(rows, number) for number in (step.step - 1, step.step)]
    ranks = noted["rank"].to_pylist()
    # Nothing overlaps a step of which an end is unknown.
    since, until = (
        np.array([of_rank.get(rank, unknown) for rank in ranks])
        for of_rank, unknown in zip(ends, (_NEVER, 0), strict=True)
    )
    begin, end = (arrow.numbers(noted[name]) for name in ("begin", "end"))
    overlap = np.minimum(end, until) > np.maximum(begin, since)
    return _NotedInStep(noted.filter(pa.array(overlap)), since[overlap], until[overlap])


def _ends_by_rank(rows: pa.Table, step: int) -> dict[int, int]:
    chosen = rows.filter(pc.and_(arrow.equal(rows["step"], step), pc.is_valid(rows["end"])))
    return dict(zip(chosen["rank"].to_pylist(), chosen["end"].to_pylist(), strict=True))


# -- Pauses of all steps ---------------------------------------------------------------------------


@dataclass(frozen=True)
class PauseOnAxis:
    """A pause on the timeline's axis, in nanoseconds, and the row of its rank."""

    kind: PauseInStep
    row: int
    begin: int
    end: int


def pauses_on_axis(run: Run, lanes: Lanes, most: int) -> list[PauseOnAxis]:
    """Return the longest pauses within steps, in the order of their starts."""
    noted = run.intervals.filter(pc.is_in(run.intervals["kind"], arrow.texts([*PAUSES_IN_STEPS])))
    took = pc.subtract(noted["end"], noted["begin"])
    noted = noted.take(pc.sort_indices(took, sort_keys=[("", "descending")])[:most])
    pauses: list[PauseOnAxis] = []
    for position, generation in enumerate(lanes.generations):
        rows = noted.filter(arrow.equal(noted["generation"], generation.number))
        if rows.num_rows:
            pauses += _on_axis(rows, align(run, generation.number), lanes, position)
    return sorted(pauses, key=lambda pause: pause.begin)


def _on_axis(
    rows: pa.Table, aligned: AlignedSteps, lanes: Lanes, position: int
) -> Iterator[PauseOnAxis]:
    """Place pauses by the ends of their steps, which all ranks share."""
    ledger, first = lanes.generations[position].ledger, int(lanes.starts[position])
    rows = rows.filter(pc.is_in(rows["rank"], arrow.array(np.array(aligned.ranks, np.int32))))
    begins, ends = aligned.times_of(rows)
    steps = np.searchsorted(ledger.reduced, begins)
    columns = (rows[name].to_pylist() for name in ("kind", "rank"))
    for kind, rank, begin, end, at in zip(*columns, begins, ends, steps, strict=True):
        row = lanes.row_of(rank, position)
        if row is None or at == len(ledger):
            continue
        shift = int(lanes.end[first + at] - ledger.reduced[at])
        if begin + shift >= lanes.gap_begin[first + at]:
            yield PauseOnAxis(kind, row, int(begin) + shift, int(end) + shift)


def pauses_by_step(run: Run, aligned: AlignedSteps, rank: int) -> dict[PauseInStep, Ints]:
    """Return the nanoseconds of each kind of pause in each step of the rank at this position.

    A step lasts from the end of the step before, as the rank's rows have them. A kind that the rank's
    recorder does not note is missing.
    """
    number = aligned.ranks[rank]
    log = run.last_logs_of(aligned.generation).get(number)
    told = () if log is None else log.facts.get("interruptions") or ()
    noted = run.intervals.filter(arrow.equal(run.intervals["rank"], number))
    noted = noted.filter(arrow.equal(noted["generation"], aligned.generation))
    starts, ends = (aligned.cells.columns(name, [rank])[:, 0] for name in ("begin", "end"))
    recorded = np.flatnonzero(ends != NULL)
    until = ends[recorded]
    since = np.append(starts[recorded[:1]], until[:-1])
    spent: dict[PauseInStep, Ints] = {}
    for kind in PAUSES_IN_STEPS:
        if kind not in told:
            continue
        spent[kind] = np.zeros(len(ends), np.int64)
        rows = noted.filter(arrow.equal(noted["kind"], kind))
        for begin, end in zip(*aligned.times_of(rows), strict=True):
            steps = slice(np.searchsorted(until, begin), np.searchsorted(until, end) + 1)
            inside = np.minimum(until[steps], end) - np.maximum(since[steps], begin)
            spent[kind][recorded[steps]] += np.maximum(inside, 0)
    return spent
