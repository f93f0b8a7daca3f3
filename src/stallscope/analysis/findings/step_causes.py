"""Causes inside steps: pauses that recorders noted, and batches of unequal work.

A cause is judged by what it costs the job: the steps are replayed without it, and all other ranks stay
as they were. Pauses are measured. Unequal work is estimated: in each step, ranks with larger batches
than the others compute for longer, and the slope is the time of an element.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import capitalised, counted, ranks_in_words
from stallscope.formatting.numbers import amount, percent
from stallscope.run import Run
from stallscope.words import PAUSES_IN_STEPS, STAGES, PauseInStep, Stage, StepCauseCode

from ..gains.what_if import Advice, Bottleneck, Reason
from ..ledger.by_generation import Generations, steady_of
from ..ledger.ledger import Ledger
from ..steps.alignment import AlignedSteps
from ..stragglers.replay import mean_saved
from .finding import Finding

#: A cause that costs a smaller share of the step is not named.
WORTH = 0.01
# A pause lies in one step, or goes on into the next one.
_STEPS_OF_A_PAUSE = 2
# Batches differ if their sizes within a step do by this share, and one rank's are larger from this on.
_VARIES, _LARGER = 0.01, 0.02
# A rank has a pause if it has this share of what the rank with most of it has.
_ALSO = 0.2


@dataclass(frozen=True)
class StepCause:
    """A cause of slow steps, and what it costs the job per step."""

    code: StepCauseCode
    #: The ranks that have it; empty if work is unequal and no rank's is larger on average.
    ranks: tuple[int, ...]
    #: The stage in which most of it is.
    stage: Stage
    #: How often it happened in the steady steps, and how long it took; None for unequal work.
    count: int | None
    took_ms: float | None
    #: The time per step that the job would save without it.
    saved_ms: Mean
    #: Its share of the step, and by how much the imbalance would shrink.
    share: float
    of_imbalance: float | None
    #: A sentence.
    text: str
    advice: tuple[Advice, ...]


@dataclass(frozen=True)
class StepCauses:
    """The causes inside the steady steps, the costliest first."""

    causes: tuple[StepCause, ...] = ()
    #: The share of the imbalance that the causes together explain; None without imbalance or causes.
    explained: float | None = None


@dataclass(frozen=True)
class _Pauses:
    """The parts of pauses of one kind that delayed a rank's gradients."""

    kind: PauseInStep
    count: int
    took_ms: float
    #: The stage that has most of their time.
    stage: Stage
    #: Positions of steps and ranks in the ledger, and nanoseconds.
    step: Ints = field(repr=False)
    rank: Ints = field(repr=False)
    by: Ints = field(repr=False)


def step_causes(run: Run, generations: Generations) -> StepCauses:
    """Find what recorders have noted about single steps and what delayed the job by it."""
    aligned, filled = generations.last_aligned, generations.filled
    if aligned is None or not filled:
        return StepCauses()
    last = filled[-1]
    ledger = steady_of(generations.ledgers[last], generations.unsteady[last])
    if ledger is None or not len(ledger):
        return StepCauses()
    noted = [_pauses(run, aligned, ledger, kind) for kind in PAUSES_IN_STEPS]
    every = [pauses for pauses in noted if pauses is not None]
    work = _unequal_work(ledger, every)
    causes = [_of_pauses(pauses, ledger) for pauses in every]
    if work is not None:
        causes.append(_of_work(work, ledger))
    named = [cause for cause in causes if _is_worth(cause)]
    if not named:
        return StepCauses()
    named.sort(key=lambda cause: -cause.saved_ms.value)
    codes = {cause.code for cause in named}
    together = _last_without(
        ledger,
        [pauses for pauses in every if pauses.kind in codes],
        work.slope.value if work is not None and "unequal_work" in codes else 0.0,
    )
    return StepCauses(tuple(named), _of_imbalance(ledger, together))


def _is_worth(cause: StepCause) -> bool:
    ci95 = cause.saved_ms.ci95
    return cause.share >= WORTH and (ci95 is None or ci95[0] > 0)


# -- pauses ----------------------------------------------------------------------------------------


def _pauses(run: Run, aligned: AlignedSteps, ledger: Ledger, kind: PauseInStep) -> _Pauses | None:
    """Return the pauses of a kind within the steps of a ledger; None without any."""
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], kind))
    table = table.filter(arrow.equal(table["generation"], aligned.generation))
    table = table.filter(pc.is_in(table["rank"], arrow.array(np.array(ledger.ranks, np.int32))))
    if not table.num_rows:
        return None
    rank = np.searchsorted(ledger.ranks, arrow.numbers(table["rank"]))
    begin, end = (arrow.numbers(table[name]).astype(np.int64) for name in ("begin", "end"))
    at = np.searchsorted(aligned.steps, arrow.numbers(table["step"]))
    clock = aligned.clocks.of_rank[rank]
    ahead = aligned.clocks.offset[np.minimum(at, len(aligned.steps) - 1), clock]
    rank, begin, end = _merged(rank, begin - ahead, end - ahead)
    first = np.searchsorted(ledger.reduced, begin)
    parts = []
    for step in (first + more for more in range(_STEPS_OF_A_PAUSE)):
        inside = np.flatnonzero(step < len(ledger))
        by, of_stages = _delays(ledger, step[inside], rank[inside], begin[inside], end[inside])
        kept = by > 0
        parts.append(
            (inside[kept], step[inside][kept], rank[inside][kept], by[kept], of_stages[kept])
        )
    which, steps, ranks, delays, of_stages = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    number = len(np.unique(which))
    if not number:
        return None
    stage = STAGES[int(of_stages.sum(axis=0).argmax())]
    return _Pauses(kind, number, float(delays.sum()) / 1e6 / number, stage, steps, ranks, delays)


def _merged(rank: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Join intervals of one rank that overlap, as those of a compiler that compiles within compiling."""
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


def _of_pauses(pauses: _Pauses, ledger: Ledger) -> StepCause:
    last = _last_without(ledger, [pauses], 0.0)
    saved = mean_saved(ledger.last - last).scaled(1e-6)
    share = saved.value * 1e6 / float(ledger.total.mean())
    delays = np.bincount(pauses.rank, pauses.by, len(ledger.ranks))
    ranks = tuple(
        ledger.ranks[at] for at in np.flatnonzero(delays >= _ALSO * delays.max()).tolist()
    )
    everywhere = len(ranks) == len(ledger.ranks)
    what = counted(pauses.count, _NAMES[pauses.kind])
    who = "all ranks" if everywhere and len(ranks) > 1 else ranks_in_words(ranks)
    of_imbalance = _of_imbalance(ledger, last)
    text = (
        f"{capitalised(what)} in the steady steps, of {amount(pauses.took_ms, 'ms')} each, on {who}: "
        f"they cost {amount(saved.value, 'ms', saved.ci95)} per step, {percent(share)} of it."
    )
    return StepCause(
        pauses.kind,
        ranks,
        pauses.stage,
        pauses.count,
        pauses.took_ms,
        saved,
        share,
        of_imbalance,
        text,
        _ADVICE[pauses.kind],
    )


# -- unequal work ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Work:
    """How much longer ranks compute for larger batches."""

    #: Nanoseconds per element.
    slope: Mean
    #: The mean elements of each rank's batches, relative to the mean of all ranks.
    of_ranks: Floats


def _unequal_work(ledger: Ledger, every: Sequence[_Pauses]) -> _Work | None:
    """Estimate the time of an element from batches of different sizes within steps.

    Ranks may differ in speed, so that each rank is compared with itself: its mean difference from the
    other ranks is taken off. Without batches whose differences change, nothing is estimated.
    """
    if "elements" not in ledger.cells.names or len(ledger.ranks) < 2:
        return None
    count, work, compute, total = ledger.cells.summed(_differences, every)
    if not count.any() or not total.any():
        return None
    known = np.maximum(count, 1)
    means = work / known, compute / known
    products = ledger.cells.gathered(_products, every, *means)
    of_both, of_work = (part.astype(np.float64) for part in products)
    usual = float(total.sum() / max(count.sum(), 1))
    variance = float(of_work.mean()) / len(ledger.ranks)
    if not usual or np.sqrt(variance) < _VARIES * usual:
        return None
    slope = float(of_both.mean() / of_work.mean())
    # The error of a ratio of means is that of the mean of the residuals.
    error = mean_with_interval((of_both - slope * of_work) / float(of_work.mean()))
    if error.ci95 is None:
        return None
    estimate = Mean(
        slope, (slope + error.ci95[0] - error.value, slope + error.ci95[1] - error.value)
    )
    assert estimate.ci95 is not None
    if estimate.ci95[0] <= 0:
        return None
    return _Work(estimate, 1 + means[0] / usual)


def _differences(block: Block, every: Sequence[_Pauses]) -> Ints:
    """Kernel: sum, per rank, the steps, the differences of work and of compute, and the work."""
    known, work, compute = _relative(block, every)
    total = np.where(known[:, None], block["elements"], 0)
    count = np.broadcast_to(known[:, None], work.shape)
    return np.array([part.sum(axis=0) for part in (count, work, compute, total)], np.float64)


def _products(
    block: Block, every: Sequence[_Pauses], mean_work: Floats, mean_compute: Floats
) -> tuple[Floats, Floats]:
    """Kernel: return, per step, the sums over ranks of work × compute and of work²."""
    known, work, compute = _relative(block, every)
    work = np.where(known[:, None], work - mean_work, 0.0)
    return np.asarray((work * (compute - mean_compute)).sum(axis=1)), (work**2).sum(axis=1)


def _relative(block: Block, every: Sequence[_Pauses]) -> tuple[Bools, Floats, Floats]:
    """Return the steps whose work is known, and work and compute relative to the mean of all ranks."""
    elements, compute = block["elements"], block["compute"].astype(np.float64)
    for pauses in every:
        _take_off(block, compute, pauses)
    known = (elements != NULL).all(axis=1) & block["measured"].all(axis=1)
    work = np.where(known[:, None], elements, 0).astype(np.float64)
    compute[~known] = 0.0
    return (
        known,
        work - work.mean(axis=1, keepdims=True),
        compute - compute.mean(axis=1, keepdims=True),
    )


def _of_work(work: _Work, ledger: Ledger) -> StepCause:
    slope, ci95 = work.slope.value, work.slope.ci95
    last = _last_without(ledger, [], slope)
    saved = mean_saved(ledger.last - last)
    if ci95 is not None:
        saved = saved.with_error(saved.value * (ci95[1] - ci95[0]) / 2 / slope)
    saved = saved.scaled(1e-6)
    share = saved.value * 1e6 / float(ledger.total.mean())
    of_imbalance = _of_imbalance(ledger, last)
    larger = np.flatnonzero(work.of_ranks > 1 + _LARGER)
    ranks = tuple(ledger.ranks[at] for at in larger.tolist())
    whose = "which ranks have larger batches changes from step to step"
    if ranks:
        most = int(larger[np.argmax(work.of_ranks[larger])])
        larger_by = percent(work.of_ranks[most] - 1)
        whose = f"those of rank {ledger.ranks[most]} are {larger_by} larger than the mean"
    part = "" if of_imbalance is None else f" and {percent(of_imbalance)} of the imbalance"
    text = (
        f"Batches are unequal, and {whose}. Equal ones would save "
        f"{amount(saved.value, 'ms', saved.ci95)} per step ({percent(share)}){part}."
    )
    return StepCause(
        "unequal_work",
        ranks,
        "compute",
        None,
        None,
        saved,
        share,
        of_imbalance,
        text,
        _ADVICE["unequal_work"],
    )


# -- the job without causes ------------------------------------------------------------------------


def _last_without(ledger: Ledger, every: Sequence[_Pauses], slope: float) -> Ints:
    """Return when the last rank would be ready without pauses and with equal work, per step.

    Args:
        ledger: steady steps.
        every: the pauses to leave out.
        slope: nanoseconds per element, to give all ranks the mean of each step; 0 to leave work.
    """
    return ledger.cells.per_step(_last_of_block, every, slope)


def _last_of_block(block: Block, every: Sequence[_Pauses], slope: float) -> Ints:
    """Kernel: see ``_last_without``."""
    arrival = block["arrival"].astype(np.float64)
    for pauses in every:
        _take_off(block, arrival, pauses)
    if slope:
        arrival -= slope * _relative(block, ())[1]
    return np.asarray(np.rint(arrival.max(axis=1)), np.int64)


def _take_off(block: Block, times: Floats, pauses: _Pauses) -> None:
    """Subtract pauses from times of a block's cells."""
    inside = (pauses.step >= block.steps.start) & (pauses.step < block.steps.stop)
    at = (pauses.step[inside] - block.steps.start, pauses.rank[inside])
    np.subtract.at(times, at, pauses.by[inside])


def _of_imbalance(ledger: Ledger, last: Ints) -> float | None:
    """Return the share of the imbalance that vanishes if the last rank is ready then."""
    imbalance = float(ledger.imbalance.mean())
    if imbalance < WORTH * float(ledger.total.mean()):
        return None
    return float(np.clip((ledger.last - last).mean() / imbalance, 0.0, 1.0))


_TITLES: dict[StepCauseCode, str] = {
    "garbage_collection": "Python's garbage collector delays steps",
    "compilation": "The model is compiled again while it trains",
    "unequal_work": "Ranks have unequal work in each step",
}
_NAMES: dict[PauseInStep, str] = {
    "garbage_collection": "garbage collection",
    "compilation": "compilation",
}
_ADVICE: dict[StepCauseCode, tuple[Advice, ...]] = {
    "garbage_collection": (
        Advice(
            "Keep Python's collector from looking at the objects that stay, once the model is built",
            "gc.collect(); gc.freeze()",
        ),
        Advice(
            "Or collect on all ranks in the same step, so that they do not wait for each other",
            "gc.disable()  # and gc.collect(1) in every 100th step",
        ),
    ),
    "compilation": (
        Advice(
            "Compile once for all shapes",
            "torch.compile(model, dynamic=True)",
            unless="With JAX, pad batches to a few lengths: each new shape is compiled.",
        ),
    ),
    "unequal_work": (
        Advice(
            "Give all ranks as much work in each step",
            detail=": sort samples by length within a window and deal them out in turn, or fill batches "
            "by tokens instead of samples",
        ),
    ),
}


# -- In the verdict, or as findings ---------------------------------------------------------------


def with_step_causes(verdict: Bottleneck, causes: StepCauses) -> Bottleneck:
    """Return a verdict about a stage with the causes in it that are about its ranks.

    They come first: a pause that was timed says more than a counter.
    """
    explaining = [cause for cause in causes.causes if _explains(cause, verdict)]
    reasons = [
        Reason(
            cause.code,
            cause.text,
            cause.ranks,
            (),
            "time per step",
            "ms",
            "",
            cause.saved_ms.value,
            None,
            cause.saved_ms.ci95,
        )
        for cause in explaining
    ]
    advice = [piece for cause in explaining for piece in cause.advice]
    return replace(verdict, why=(*reasons, *verdict.why), advice=(*advice, *verdict.advice))


def _explains(cause: StepCause, verdict: Bottleneck) -> bool:
    about = not cause.ranks or not verdict.ranks or bool({*cause.ranks} & {*verdict.ranks})
    return verdict.fault and verdict.cause == cause.stage and about


def cause_findings(causes: StepCauses, verdict: Bottleneck) -> Iterator[Finding]:
    """Yield the causes that do not explain the verdict."""
    for cause in causes.causes:
        if not _explains(cause, verdict):
            yield Finding(cause.code, "warning", _TITLES[cause.code], cause.text, cause.advice)
