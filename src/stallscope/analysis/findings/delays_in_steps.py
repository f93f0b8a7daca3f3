"""How recorded pauses of ranks, waits for Python's lock, and work beside training delay steps.

Pauses have a begin and an end. Waits for the lock are sampled: each row has the first moment at which
the training thread was seen waiting, and the time that it stands for. Steps beside saves and evaluations
on other threads are compared with the steps just before and after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import Block
from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted, joined, ranks_in_words
from stallscope.formatting.numbers import amount
from stallscope.run import Log, Run
from stallscope.words import (
    BESIDE_STEPS,
    CAUSES,
    INTERPRETER,
    STAGES,
    NotedInStep,
    PartByCause,
    PauseInStep,
    Stage,
    StepCauseCode,
    WorkBesideSteps,
)

from ..ledger.ledger import Ledger
from ..steps.alignment import AlignedSteps

# The mean of similar steps needs this number of moments, and more groups tell no more.
_MOMENTS, _MOST_GROUPS = 20, 20
# Fewer looks that found a wait tell too little; more in one wait tell no more.
_FEWEST_LOOKS, _MOST_LOOKS = 10, 1_000
# The variance of the ends of a wait, in squares of the time between looks.
_ENDS = 0.25
# The half width of a 95 % interval, in standard deviations.
_SDS = 1.96
# A step is beside a save or an evaluation that covers this share of it.
_BESIDE = 0.5
# At least so many steps on either side are compared with those beside it, and at most so many times as
# many as are beside it.
_FEWEST_NEIGHBOURS, _TIMES = 5, 1
# Fewer saves or evaluations have no interval of their own: their steps have.
_FEWEST_EPISODES = 4
# Parts of a step that have this share of what is longer are named.
_LARGE = 0.2


@dataclass(frozen=True)
class Delays:
    """The parts of pauses of one kind that delayed a rank's gradients."""

    kind: NotedInStep
    #: How many there were and how long they took; None where they are sampled.
    count: int | None
    took_ms: float | None
    #: The stage that has most of their time.
    stage: Stage
    #: Positions of steps and ranks in the ledger, and nanoseconds.
    step: Ints = field(repr=False)
    rank: Ints = field(repr=False)
    by: Ints = field(repr=False)
    #: Half the interval of their sum, as a share of it, where they are sampled.
    sampling_error: float = 0.0


def pauses_in_steps(
    run: Run, aligned: AlignedSteps, ledger: Ledger, kind: PauseInStep
) -> Delays | None:
    """Return the pauses of a kind within the steps of a ledger; None without any."""
    rank, begin, end = _merged(*_noted(run, aligned, ledger, kind))
    if not len(rank):
        return None
    first, last = (np.searchsorted(ledger.reduced, edge) for edge in (begin, end))
    # A pause may go on into the next steps.
    steps_of = last - first + 1
    which = np.repeat(np.arange(len(rank)), steps_of)
    step = (
        first[which] + np.arange(len(which)) - np.repeat(np.cumsum(steps_of) - steps_of, steps_of)
    )
    which, step = which[step < len(ledger)], step[step < len(ledger)]
    by, of_stages = _delays(ledger, step, rank[which], begin[which], end[which])
    delays = by > 0
    number = len(np.unique(which[delays]))
    if not number:
        return None
    took_ms = float(by[delays].sum()) / 1e6 / number
    stage = STAGES[int(of_stages[delays].sum(axis=0).argmax())]
    return Delays(kind, number, took_ms, stage, step[delays], rank[which][delays], by[delays])


def _noted(
    run: Run, aligned: AlignedSteps, ledger: Ledger, kind: StepCauseCode
) -> tuple[Ints, Ints, Ints]:
    """Return the ranks' positions, begins and ends of intervals of a kind, on the ledger's clock."""
    table = _rows(run, aligned, ledger, kind)
    rank = np.searchsorted(ledger.ranks, arrow.numbers(table["rank"]))
    return rank, *aligned.times_of(table)


def _rows(run: Run, aligned: AlignedSteps, ledger: Ledger, kind: StepCauseCode) -> pa.Table:
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], kind))
    table = table.filter(arrow.equal(table["generation"], aligned.generation))
    return table.filter(pc.is_in(table["rank"], arrow.array(np.array(ledger.ranks, np.int32))))


def _merged(rank: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Join intervals of one rank that overlap, as those of a compiler that compiles within compiling."""
    if not len(rank):
        return rank, begin, end
    order = np.lexsort((begin, rank))
    rank, begin, end = rank[order], begin[order], end[order]
    # Later ranks are after all times of earlier ones.
    apart = (int(end.max()) - int(begin.min()) + 1) * rank
    until = np.maximum.accumulate(end + apart)
    starts = np.append(True, (begin + apart)[1:] > until[:-1])
    first = np.flatnonzero(starts)
    last = np.append(first[1:], len(rank)) - 1
    return rank[first], begin[first], (until - apart)[last]


def _delays(ledger: Ledger, step: Ints, rank: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the part of each interval in which its rank worked towards its gradients of a step.

    Returns:
        The part, not above 0 without any, and its parts in each of STAGES.
    """
    arrival, fetch, compute = (
        ledger.cells.at(name, step, rank) for name in ("arrival", "input", "compute")
    )
    ready = ledger.reduced[step] - ledger.allreduce[step] - (ledger.last[step] - arrival)
    data = ready - compute
    edges = {"input": (data - fetch, data), "compute": (data, ready)}
    edges["other"] = (ready - arrival, data - fetch)

    def inside(since: Ints, until: Ints) -> Ints:
        return np.asarray(np.minimum(end, until) - np.maximum(begin, since))

    of_stages = [np.maximum(inside(*edges[stage]), 0) for stage in STAGES]
    return inside(ready - arrival, ready), np.stack(of_stages, axis=1)


def take_off(block: Block, times: Floats, delays: Delays) -> None:
    """Subtract delays from times of a block's cells."""
    inside = (delays.step >= block.steps.start) & (delays.step < block.steps.stop)
    at = (delays.step[inside] - block.steps.start, delays.rank[inside])
    np.subtract.at(times, at, delays.by[inside])


# -- Waits for Python's lock, which are sampled ----------------------------------------------------


class LooksAtWaits(NamedTuple):
    """The looks that found the training thread waiting."""

    #: The row of each look's wait, its moment, and the nanoseconds that it stands for.
    row: Ints
    moment: Ints
    ns: Ints
    #: Of the nanoseconds, by chance.
    variance: Floats

    def at(self, chosen: Bools) -> LooksAtWaits:
        """Return some of the looks."""
        return LooksAtWaits(
            self.row[chosen], self.moment[chosen], self.ns[chosen], self.variance[chosen]
        )


def looks_at_waits(begin: Ints, end: Ints, number: Ints) -> LooksAtWaits:
    """Return the looks of rows, of which each has a first moment, nanoseconds, and a number."""
    number = np.clip(number, 1, _MOST_LOOKS)
    # Each look stands for the time since the one before.
    gap = (end - begin) // number
    # A look finds a wait that is shorter than its time or not; of a longer one it misses the ends.
    variance = np.where(number > 1, _ENDS, 1.0) * gap.astype(np.float64) ** 2 / number
    row = np.repeat(np.arange(len(number)), number)
    at = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    return LooksAtWaits(row, begin[row] + at * gap[row], gap[row], variance[row])


def lock_waits_in_steps(run: Run, aligned: AlignedSteps, ledger: Ledger) -> Delays | None:
    """Estimate from looks that found a wait by how much waits delayed each step; None from too few."""
    rank, begin, end = _noted(run, aligned, ledger, INTERPRETER)
    number = arrow.numbers(_rows(run, aligned, ledger, INTERPRETER)["steps"])
    collects = _inside_of_collections(run, aligned, ledger, rank, begin)
    rank, begin, end, number = (column[~collects] for column in (rank, begin, end, number))
    looks = looks_at_waits(begin, end, number)
    step = np.searchsorted(ledger.reduced, looks.moment)
    known = step < len(ledger)
    looks, step = looks.at(known), step[known]
    inside, of_stages = _delays(ledger, step, rank[looks.row], looks.moment, looks.moment + 1)
    works = inside > 0
    looks, step, of_stages = looks.at(works), step[works], of_stages[works]
    rank, weight = rank[looks.row], looks.ns
    if len(rank) < _FEWEST_LOOKS:
        return None
    parts, variances, totals = [], [], []
    for position in np.unique(rank).tolist():
        chosen = rank == position
        of_looks = looks.variance[chosen]
        by = _of_similar_steps(ledger, position, step[chosen], weight[chosen], of_looks)
        steps = np.flatnonzero(by)
        parts.append((steps, np.full(len(steps), position), by[steps]))
        totals.append(float(weight[chosen].sum()))
        variances.append(float(of_looks.sum()) / totals[-1] ** 2)
    steps, ranks, delays = (np.concatenate(part) for part in zip(*parts, strict=True))
    stage = STAGES[int((of_stages * weight[:, None]).sum(axis=0).argmax())]
    # Each rank has its own error, and those that wait most count.
    error = _SDS * float(np.sqrt(np.average(variances, weights=totals)))
    return Delays(INTERPRETER, None, None, stage, steps, ranks, delays, error)


def _inside_of_collections(
    run: Run, aligned: AlignedSteps, ledger: Ledger, rank: Ints, moment: Ints
) -> Bools:
    """Return which moments lie in garbage collections of their rank: these hold the lock, and count."""
    of_rank, since, until = _merged(*_noted(run, aligned, ledger, "garbage_collection"))
    inside = np.zeros(len(rank), bool)
    for position in np.intersect1d(of_rank, rank).tolist():
        collections, moments = of_rank == position, rank == position
        before = np.searchsorted(since[collections], moment[moments], "right") - 1
        ended = np.append(until[collections], np.iinfo(np.int64).min)[before]
        inside[moments] = moment[moments] < ended
    return inside


def _of_similar_steps(
    ledger: Ledger, rank: int, step: Ints, weight: Ints, variance: Floats
) -> Ints:
    """Return by how much each step of a rank was delayed.

    Looks say little about their own step where they are rare. But waits make steps longer, so the mean
    of similar steps counts, and the looks of a step as far as steps differ by more than chance.

    Args:
        ledger: steady steps.
        rank: the rank's position.
        step: the step of each look.
        weight: the nanoseconds that each look stands for.
        variance: of their sum, by look.
    """
    work = ledger.cells.at("arrival", np.arange(len(ledger)), np.full(len(ledger), rank))
    waited, by_chance = (np.bincount(step, values, len(ledger)) for values in (weight, variance))
    delays = np.zeros(len(ledger))
    groups = max(1, min(len(step) // _MOMENTS, _MOST_GROUPS))
    for similar in np.array_split(np.argsort(work, kind="stable"), groups):
        mean, spread = waited[similar].mean(), waited[similar].var()
        reliable = max(0.0, 1 - by_chance[similar].mean() / spread) if spread else 0.0
        delays[similar] = mean + reliable * (waited[similar] - mean)
    return np.rint(np.minimum(delays, work)).astype(np.int64)


def thread_with_the_lock(logs: Iterable[Log]) -> str:
    """Return, in words, the thread and the line that had the lock most often in these logs, or ""."""
    had: dict[str, float] = {}
    for log in logs:
        fact = log.facts.get(INTERPRETER)
        threads = fact.get("threads") if isinstance(fact, dict) else None
        for thread in threads if isinstance(threads, list) else []:
            words = _line_in_words(thread)
            had[words] = had.get(words, 0.0) + float(thread.get("waits") or 0)
    return max(had, key=lambda words: had[words], default="")


def _line_in_words(thread: dict[str, object]) -> str:
    file = str(thread.get("file") or "").replace("\\", "/").rsplit("/", 1)[-1]
    where = f" in {thread.get('function')} ({file}:{thread.get('line')})" if file else ""
    return f"{thread.get('name')}{where}"


# -- Saves and evaluations on other threads, while training goes on --------------------------------


@dataclass(frozen=True)
class BesideSteps:
    """Saves or evaluations on other threads, and how much longer steps take beside them."""

    kind: WorkBesideSteps
    ranks: tuple[int, ...]
    #: Those that overlap, on any ranks, count once.
    count: int
    took_ms: float
    #: Nanoseconds that a step beside one takes longer than its neighbours.
    longer: Mean
    #: The same per step of all steps.
    saved: Mean
    #: The part of ``longer`` in each stage of the critical rank, and in the allreduce.
    of_parts: Mapping[PartByCause, float]


def work_beside_steps(
    run: Run,
    aligned: AlignedSteps,
    ledger: Ledger,
    kind: WorkBesideSteps,
    pauses: Delays | None,
) -> BesideSteps | None:
    """Compare steps beside work on other threads with their neighbours; None without such steps.

    Args:
        run: the run.
        aligned: its last generation.
        ledger: steady steps.
        kind: the work; steps beside other work are left out.
        pauses: saves that pause a rank, whose steps are left out.
    """
    rank, begin, end = _merged(*_noted(run, aligned, ledger, kind))
    # Work in pauses, as at the end of an epoch, are beside no step.
    on_steps = _are_beside(ledger, begin, end)
    rank, begin, end = rank[on_steps], begin[on_steps], end[on_steps]
    if not len(rank):
        return None
    ranks = tuple(ledger.ranks[at] for at in np.unique(rank).tolist())
    _, begin, end = _merged(np.zeros_like(rank), begin, end)
    share = _covered(ledger, begin, end)
    is_left_out = np.zeros(len(ledger), bool)
    if pauses is not None:
        is_left_out[pauses.step] = True
    for other_kind in BESIDE_STEPS:
        if other_kind != kind:
            at, since, until = _noted(run, aligned, ledger, other_kind)
            _, since, until = _merged(np.zeros_like(at), since, until)
            is_left_out |= _covered(ledger, since, until) > 0
    beside = np.flatnonzero((share >= _BESIDE) & ~is_left_out)
    clean = np.flatnonzero((share == 0) & ~is_left_out)
    episode = np.searchsorted(begin, ledger.reduced[beside], "right")
    groups = np.split(beside, np.flatnonzero(np.diff(episode)) + 1) if len(beside) else []
    pairs = [pair for group in groups if (pair := _with_neighbours(group, clean)) is not None]
    if not pairs:
        return None
    weights = np.array([len(group) for group, _ in pairs], np.float64)

    def longer(times: Ints) -> Floats:
        """Return by how much steps beside each episode exceed its neighbours, in the mean."""
        return np.array([times[group].mean() - times[near].mean() for group, near in pairs])

    def mean(times: Ints) -> float:
        return float(np.average(longer(times), weights=weights))

    of_parts = {part: mean(ledger.by_cause(part)) for part in CAUSES}
    estimate = Mean(
        mean(ledger.total), _interval(ledger.total, pairs, longer(ledger.total), weights)
    )
    part = float(weights.sum()) / len(ledger)
    took_ms = float((end - begin).mean()) / 1e6
    return BesideSteps(kind, ranks, len(pairs), took_ms, estimate, estimate.scaled(part), of_parts)


def _are_beside(ledger: Ledger, begin: Ints, end: Ints) -> Bools:
    """Tell which intervals overlap a step."""
    first = np.searchsorted(ledger.reduced, begin, "right")
    starts = np.append(ledger.reduced - ledger.total, np.iinfo(np.int64).max)
    return np.asarray(starts[first] < end)


def _covered(ledger: Ledger, begin: Ints, end: Ints) -> Floats:
    """Return the share of each step that is within intervals, which do not overlap."""
    if not len(begin):
        return np.zeros(len(ledger))
    starts = ledger.reduced - ledger.total
    corners = np.stack([begin, end], axis=1).reshape(-1)
    sums = np.stack([np.zeros_like(begin), end - begin], axis=1).reshape(-1).cumsum()
    within = np.interp(ledger.reduced, corners, sums) - np.interp(starts, corners, sums)
    return np.asarray(within / np.maximum(ledger.total, 1))


def _with_neighbours(beside: Ints, clean: Ints) -> tuple[Ints, Ints] | None:
    """Return the steps of an episode, and clean ones just before and after; None without these."""
    number = max(_FEWEST_NEIGHBOURS, _TIMES * len(beside))
    before = clean[clean < beside[0]][-number:]
    after = clean[clean > beside[-1]][:number]
    near = np.concatenate([before, after])
    return (beside, near) if len(near) >= _FEWEST_NEIGHBOURS else None


def _interval(
    total: Ints, pairs: list[tuple[Ints, Ints]], longer: Floats, weights: Floats
) -> tuple[float, float] | None:
    """Return the 95 % interval of the mean over episodes of the time that steps take longer."""
    value, number = float(np.average(longer, weights=weights)), len(pairs)
    if number < _FEWEST_EPISODES:
        beside, near = (
            mean_with_interval(np.concatenate([total[pair[side]] for pair in pairs]))
            for side in (0, 1)
        )
        ci95 = beside.minus(near).ci95
        half = None if ci95 is None else (ci95[1] - ci95[0]) / 2
    else:
        shares = weights / weights.sum()
        variance = float((shares**2 * (longer - value) ** 2).sum()) * number / (number - 1)
        half = float(student_quantile(0.975, number - 1)) * float(np.sqrt(variance))
    return None if half is None else (value - half, value + half)


_NAMES: dict[WorkBesideSteps, str] = {
    "background_saving": "save",
    "background_evaluation": "evaluation",
}


def what_it_does(work: BesideSteps, ledger: Ledger) -> str:
    """Return a sentence on the steps beside saves or evaluations."""
    longer = work.longer.scaled(1e-6)
    everywhere = len(work.ranks) == len(ledger.ranks) > 1
    who = "all ranks" if everywhere else ranks_in_words(work.ranks)
    parts = [
        f"{amount(work.of_parts[part] * 1e-6, 'ms')} in {part}"
        for part in sorted(CAUSES, key=lambda part: -work.of_parts[part])
        if work.of_parts[part] > _LARGE * max(work.longer.value, 0.0)
    ]
    where = f", {joined(parts)}" if parts else ""
    return (
        f"Beside {counted(work.count, _NAMES[work.kind])} in the background, of "
        f"{amount(work.took_ms, 'ms')} each, on {who}, steps take "
        f"{amount(longer.value, 'ms', longer.ci95)} longer than just before and after{where}."
    )


# -- Advice on them --------------------------------------------------------------------------------
