"""Causes inside steps: pauses, waits for the lock, work beside training, unequal work, and padding.

A cause is judged by what it costs the job: the steps are replayed without it, and all other ranks stay
as they were. Pauses are measured, and waits for the lock are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from stallscope.arrays.blocks import Block
from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Ints
from stallscope.formatting.lists import capitalised, clipped, counted, ranks_in_words
from stallscope.formatting.numbers import amount, percent
from stallscope.run import Run
from stallscope.words import (
    BESIDE_STEPS,
    PAUSES_IN_STEPS,
    STAGES,
    NotedInStep,
    Stage,
    StepCauseCode,
)

from ..gains.verdict import WORTHWHILE
from ..gains.what_if import Advice, Bottleneck, Reason
from ..ledger.by_generation import Generations, steady_of
from ..ledger.ledger import Ledger
from ..stragglers.replay import mean_saved
from .delays_in_steps import (
    BesideSteps,
    Delays,
    lock_waits_in_steps,
    pauses_in_steps,
    take_off,
    thread_with_the_lock,
    what_it_does,
    work_beside_steps,
)
from .finding import Finding
from .step_advice import ADVICE, COMPILE_ONCE, padding_advice
from .step_amounts import (
    SMALLEST_BATCH,
    Padding,
    Work,
    noted_padding,
    relative_work,
    routed_tokens,
    unequal_work,
)

#: A cause that costs a smaller share of the step is not named.
WORTH = 0.01
# Less padding is not worth a finding, if its cost is unknown.
_MUCH_PADDING = 0.1
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
    #: How often it happened in the steady steps, and how long it took; None where it is estimated.
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
    #: Tokens and padding in batches; None if no recorder has counted them.
    padding: Padding | None = None
    padding_advice: tuple[Advice, ...] = ()


def step_causes(run: Run, generations: Generations) -> StepCauses:
    """Find what recorders have noted about single steps and what delayed the job by it."""
    aligned, filled = generations.last_aligned, generations.filled
    if aligned is None or not filled:
        return StepCauses()
    last = filled[-1]
    ledger = steady_of(generations.ledgers[last], generations.unsteady[last])
    if ledger is None or not len(ledger):
        return StepCauses()
    noted = [pauses_in_steps(run, aligned, ledger, kind) for kind in PAUSES_IN_STEPS]
    noted.append(lock_waits_in_steps(run, aligned, ledger))
    every = [delays for delays in noted if delays is not None]
    routed = routed_tokens(run, aligned, ledger)
    sources = (None,) if routed is None else (None, routed)
    works = [work for source in sources if (work := unequal_work(ledger, every, source))]
    causes = [_of_delays(delays, ledger, run) for delays in every]
    saving = next((delays for delays in every if delays.kind == "saving"), None)
    for kind in BESIDE_STEPS:
        beside = work_beside_steps(run, aligned, ledger, kind, saving)
        if beside is not None:
            causes.append(_of_work_beside(beside, ledger))
    causes += [_of_work(work, ledger) for work in works]
    padding = noted_padding(run, aligned, ledger)
    known = StepCauses(padding=padding, padding_advice=padding_advice(run))
    if padding is not None and padding.saved_ms is not None:
        causes.append(_of_padding(padding, padding.saved_ms, known.padding_advice, ledger))
    named = [cause for cause in causes if _is_worth(cause)]
    if not named:
        return known
    named.sort(key=lambda cause: -cause.saved_ms.value)
    codes = {cause.code for cause in named}
    together = _last_without(
        ledger,
        [pauses for pauses in every if pauses.kind in codes],
        [work for work in works if _code_of(work) in codes],
    )
    # Padding is on all ranks alike.
    explained = _of_imbalance(ledger, together) if codes - {"padding"} else None
    return replace(known, causes=tuple(named), explained=explained)


def _is_worth(cause: StepCause) -> bool:
    ci95 = cause.saved_ms.ci95
    # Pauses were timed; an estimate without an interval tells nothing.
    is_certain = cause.code in PAUSES_IN_STEPS if ci95 is None else ci95[0] > 0
    return cause.share >= WORTH and is_certain


# -- what causes cost ------------------------------------------------------------------------------


def _of_delays(delays: Delays, ledger: Ledger, run: Run) -> StepCause:
    last = _last_without(ledger, [delays], ())
    saved = mean_saved(ledger.last - last)
    saved = saved.with_error(saved.value * delays.sampling_error).scaled(1e-6)
    share = saved.value * 1e6 / float(ledger.total.mean())
    by_rank = np.bincount(delays.rank, delays.by, len(ledger.ranks))
    ranks = tuple(
        ledger.ranks[at] for at in np.flatnonzero(by_rank >= _ALSO * by_rank.max()).tolist()
    )
    everywhere = len(ranks) == len(ledger.ranks)
    who = "all ranks" if everywhere and len(ranks) > 1 else ranks_in_words(ranks)
    text = (
        f"{_what_delays(delays, who, ranks, run)} cost {amount(saved.value, 'ms', saved.ci95)} per "
        f"step, {percent(share)} of it."
    )
    advice = ADVICE[delays.kind]
    if delays.kind == "compilation":
        text += _why_compiled(run, ranks)
        advice = COMPILE_ONCE.get(str(run.fact("framework")), advice)
    return StepCause(
        delays.kind,
        ranks,
        delays.stage,
        delays.count,
        delays.took_ms,
        saved,
        share,
        _of_imbalance(ledger, last),
        text,
        advice,
    )


def _what_delays(delays: Delays, who: str, ranks: Sequence[int], run: Run) -> str:
    """Return the beginning of a sentence about delays."""
    if delays.count is None or delays.took_ms is None:
        thread = thread_with_the_lock(run.last_logs[rank] for rank in ranks)
        holder = f", mostly {thread}" if thread else ""
        return f"Training on {who} waits for Python's lock, which other threads have{holder}: the waits"
    what = capitalised(counted(delays.count, _NAMES[delays.kind]))
    each = amount(delays.took_ms, "ms")
    return f"{what} in the steady steps, of {each} each, on {who}: they"


def _of_work_beside(work: BesideSteps, ledger: Ledger) -> StepCause:
    saved, share = work.saved.scaled(1e-6), work.saved.value / float(ledger.total.mean())
    text = (
        f"{what_it_does(work, ledger)} That costs {amount(saved.value, 'ms', saved.ci95)} per step, "
        f"{percent(share)} of it."
    )
    stage = max(STAGES, key=lambda stage: work.of_parts[stage])
    return StepCause(
        work.kind,
        work.ranks,
        stage,
        work.count,
        work.took_ms,
        saved,
        share,
        None,
        text,
        ADVICE[work.kind],
    )


def _of_work(work: Work, ledger: Ledger) -> StepCause:
    slope, ci95 = work.slope.value, work.slope.ci95
    last = _last_without(ledger, [], [work])
    saved = mean_saved(ledger.last - last)
    if ci95 is not None:
        saved = saved.with_error(saved.value * (ci95[1] - ci95[0]) / 2 / slope)
    saved = saved.scaled(1e-6)
    share = saved.value * 1e6 / float(ledger.total.mean())
    of_imbalance = _of_imbalance(ledger, last)
    ranks = tuple(ledger.ranks[at] for at, _ in work.larger)
    code = _code_of(work)
    unequal, of_rank, who, equal = _UNEQUAL[code]
    if ranks:
        most, more = max(work.larger, key=lambda rank: rank[1])
        who = of_rank.format(ledger.ranks[most], percent(more))
    part = "" if of_imbalance is None else f" and {percent(of_imbalance)} of the imbalance"
    text = (
        f"{unequal}, and {who}. {equal} {amount(saved.value, 'ms', saved.ci95)} per step "
        f"({percent(share)}){part}."
    )
    return StepCause(
        code,
        ranks,
        "compute",
        None,
        None,
        saved,
        share,
        of_imbalance,
        text,
        ADVICE[code],
    )


def _code_of(work: Work) -> Literal["unequal_work", "uneven_routing"]:
    return "unequal_work" if work.routed is None else "uneven_routing"


def _of_padding(
    padding: Padding, saved: Mean, advice: tuple[Advice, ...], ledger: Ledger
) -> StepCause:
    share = saved.value * 1e6 / float(ledger.total.mean())
    text = (
        f"{padding.in_words()} Batches without padding would save "
        f"{_saved_without(padding, saved)} per step ({percent(share)})."
    )
    return StepCause(
        "padding",
        ledger.ranks,
        "compute",
        None,
        None,
        saved,
        share,
        None,
        text,
        advice,
    )


def _saved_without(padding: Padding, saved: Mean) -> str:
    least = "at least " if padding.share.value > 1 - SMALLEST_BATCH else ""
    return f"{least}{amount(saved.value, 'ms', saved.ci95)}"


# -- the job without causes ------------------------------------------------------------------------


def _last_without(ledger: Ledger, every: Sequence[Delays], works: Sequence[Work]) -> Ints:
    """Return when the last rank would be ready without pauses and with equal work, per step.

    Args:
        ledger: steady steps.
        every: the pauses to leave out.
        works: what to make equal: all ranks have the mean of each step.
    """
    return ledger.cells.per_step(_last_of_block, every, works)


def _last_of_block(block: Block, every: Sequence[Delays], works: Sequence[Work]) -> Ints:
    """Kernel: see ``_last_without``."""
    arrival = block["arrival"].astype(np.float64)
    for pauses in every:
        take_off(block, arrival, pauses)
    for work in works:
        arrival -= work.slope.value * relative_work(block, (), work.routed)[1]
    return np.asarray(np.rint(arrival.max(axis=1)), np.int64)


def _of_imbalance(ledger: Ledger, last: Ints) -> float | None:
    """Return the share of the imbalance that vanishes if the last rank is ready then."""
    imbalance = float(ledger.imbalance.mean())
    if imbalance < WORTH * float(ledger.total.mean()):
        return None
    return float(np.clip((ledger.last - last).mean() / imbalance, 0.0, 1.0))


_TITLES: dict[StepCauseCode, str] = {
    "interpreter": "Training waits for other Python threads",
    "saving": "Saves pause steps",
    "background_saving": "Steps are slower beside saves in the background",
    "background_evaluation": "Steps are slower beside evaluations in the background",
    "garbage_collection": "Python's garbage collector delays steps",
    "compilation": "The model is compiled again while it trains",
    "unequal_work": "Ranks have unequal work in each step",
    "uneven_routing": "Experts get unequal numbers of tokens",
    "padding": "Batches are padded",
}
# What is unequal, who has more on average, who has if no rank does so, and what would help.
_UNEQUAL = {
    "unequal_work": (
        "Batches are unequal",
        "those of rank {} are {} larger than the mean",
        "which ranks have larger batches changes from step to step",
        "Equal ones would save",
    ),
    # Ranks wait for each other between layers: those with most tokens in each would be what counts.
    "uneven_routing": (
        "Tokens are routed unevenly",
        "the experts of rank {} get {} more than the mean",
        "which ranks' experts get more changes from step to step",
        "Even routing would save at least",
    ),
}
_NAMES: dict[NotedInStep, str] = {
    "garbage_collection": "garbage collection",
    "compilation": "compilation",
    "saving": "save",
    "interpreter": "wait for Python's lock",
}


def _why_compiled(run: Run, ranks: Sequence[int]) -> str:
    """Return the first reason that a framework has told, and how many others; empty without any."""
    told = (
        run.last_logs[rank].facts.get("compilations") for rank in ranks if rank in run.last_logs
    )
    reasons = [
        reason
        for fact in told
        if isinstance(fact, dict) and isinstance(fact.get("reasons"), list)
        for reason in fact["reasons"]
    ]
    different = list(dict.fromkeys(map(str, reasons)))
    if not different:
        return ""
    others = f", and {counted(len(different) - 1, 'other reason')}" if different[1:] else ""
    return f" The first reason: {clipped(different[0])}{others}."


# -- In the verdict, or as findings ---------------------------------------------------------------


def with_step_causes(verdict: Bottleneck, causes: StepCauses) -> Bottleneck:
    """Return a verdict about a stage with the causes in it that are about its ranks.

    They come first: a pause that was timed says more than a counter. Without another fault, much padding
    is the verdict.
    """
    if verdict.healthy:
        return _on_padding(causes) or verdict
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


def _on_padding(causes: StepCauses) -> Bottleneck | None:
    """Return the verdict on padding, which costs all ranks alike; None if it may cost little."""
    padding = causes.padding
    cause = next((cause for cause in causes.causes if cause.code == "padding"), None)
    if padding is None or cause is None:
        return None
    saved = cause.saved_ms
    if saved.ci95 is None or cause.share * saved.ci95[0] / saved.value < WORTHWHILE:
        return None
    evidence = (
        f"{percent(padding.share.value)} of the places in batches are padding. Batches without it would "
        f"save {_saved_without(padding, saved)} per step ({percent(cause.share)})."
    )
    return Bottleneck("compute", "padding", evidence, advice=cause.advice, fault=True)


def _explains(cause: StepCause, verdict: Bottleneck) -> bool:
    about = not cause.ranks or not verdict.ranks or bool({*cause.ranks} & {*verdict.ranks})
    return verdict.fault and verdict.cause == cause.stage and about


def cause_findings(causes: StepCauses, verdict: Bottleneck) -> Iterator[Finding]:
    """Yield the causes that do not explain the verdict."""
    for cause in causes.causes:
        if not _explains(cause, verdict):
            yield Finding(cause.code, "warning", _TITLES[cause.code], cause.text, cause.advice)
    padding = causes.padding
    if padding is not None and padding.unknown and padding.share.value >= _MUCH_PADDING:
        text = f"{padding.in_words()} What that costs is unknown: {padding.unknown}."
        yield Finding(
            "padding",
            "info",
            _TITLES["padding"],
            text,
            causes.padding_advice,
        )
