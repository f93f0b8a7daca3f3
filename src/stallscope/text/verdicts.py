"""Write verdicts: what holds a run back, and which ranks cause it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import Bottleneck, Loss
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.formatting.lists import capitalised, counted, joined, listed
from stallscope.formatting.numbers import percent
from stallscope.words import LOST_TIME, LOST_TIME_CAUSES, OUTSIDE_STEPS, Cause, Pattern, known

from .vocabulary import VERDICT_WORDS, cause_name, short_title, verdict_title

Status = Literal["neutral", "warning", "error"]

_NO_FAULT = "No fault found"

_SLOW: dict[Pattern, str] = {
    "persistent": "is slow",
    "ramp": "gets slower and slower",
    "bursts": "is slow at times",
    "rotating": "is slow",
}


def badge(bottleneck: Bottleneck) -> str:
    """Write the verdict in two words."""
    kind, cause, ranks = bottleneck.kind, bottleneck.cause, bottleneck.ranks
    return verdict_title(kind, cause, ranks, healthy=bottleneck.healthy)


def status(bottleneck: Bottleneck) -> Status:
    """Return how bad a verdict is: ``error`` for a job that hangs, ``warning`` for any other fault."""
    if bottleneck.kind == "stopped":
        return "error"
    return "warning" if bottleneck.fault else "neutral"


def short_verdict(bottleneck: Bottleneck) -> str:
    """Write the verdict in a few words, with the ranks that it names."""
    kind, cause, ranks = bottleneck.kind, bottleneck.cause, bottleneck.ranks
    return short_title(kind, cause, ranks, healthy=bottleneck.healthy)


def reason(bottleneck: Bottleneck) -> str:
    """Say in a few words why a run is slow; empty for a run without a fault."""
    if bottleneck.healthy:
        return ""
    if bottleneck.cause == "cores":
        return "ranks share too few CPU cores"
    if bottleneck.cause == "padding":
        return "batches hold much padding"
    if known(bottleneck.cause, LOST_TIME_CAUSES) is not None:
        outside = known(bottleneck.cause, OUTSIDE_STEPS) is not None
        return "a large share of the job" if outside else "a large share of the steps' time"
    if bottleneck.kind != "imbalance" or not bottleneck.ranks:
        return VERDICT_WORDS[bottleneck.kind].reason
    if bottleneck.hosts:
        return f"{cause_name(bottleneck.cause)} is slow on {listed('host', bottleneck.hosts)}"
    their = "its" if len(bottleneck.ranks) == 1 else "their"
    return f"{their} {cause_name(bottleneck.cause)} is slow"


def headline(bottleneck: Bottleneck, stragglers: Sequence[Straggler]) -> str:
    """Write the verdict as a sentence; ``stragglers`` are those of the same analysis."""
    if bottleneck.healthy:
        return _NO_FAULT
    if bottleneck.cause == "cores":
        return "The ranks of a host share too few CPU cores"
    if bottleneck.cause == "padding":
        return "Padding in batches holds this run back"
    if bottleneck.loss is not None:
        return _lost_time(bottleneck.loss)
    if bottleneck.kind != "imbalance" or not bottleneck.ranks:
        sentence = VERDICT_WORDS[bottleneck.kind].sentence
        return capitalised(sentence.format(cause=cause_name(bottleneck.cause)))
    stragglers = [straggler for straggler in stragglers if straggler.holds_back]
    verb = "holds" if len(bottleneck.ranks) == 1 else "hold"
    return f"{capitalised(_named(bottleneck, stragglers))} {verb} this run back: " + _fault(
        bottleneck, stragglers
    )


def _lost_time(loss: Loss) -> str:
    """Write what a printed log loses: ``Evaluations take 38% of this job``."""
    what = f"{LOST_TIME[loss.cause]}{' and the start of the job' if loss.with_start else ''}"
    if loss.of == "job":
        return f"{capitalised(what)} take {percent(loss.share)} of this job"
    return f"{capitalised(what)} cost {percent(loss.share)} of all steps' time"


def _named(bottleneck: Bottleneck, stragglers: Sequence[Straggler]) -> str:
    """Name ranks and hosts, the costliest first: ``ranks 4, 5 and 6 of host b and rank 1``."""
    of_hosts = sorted(
        {rank for straggler in stragglers if straggler.hosts for rank in straggler.ranks}
    )
    alone = sorted(
        {rank for straggler in stragglers if not straggler.hosts for rank in straggler.ranks}
    )
    parts = []
    if of_hosts:
        parts.append(f"{listed('rank', of_hosts)} of {listed('host', bottleneck.hosts)}")
    if alone:
        parts.append(listed("rank", alone))
    worst = next((straggler for straggler in stragglers if straggler.ranks), None)
    if worst is not None and not worst.hosts:
        parts.reverse()
    return joined(parts)


def _fault(bottleneck: Bottleneck, stragglers: Sequence[Straggler]) -> str:
    """Describe the fault: ``their compute is slow``."""
    named = [straggler for straggler in stragglers if straggler.ranks]
    it = len(bottleneck.ranks) == 1
    if named and all(straggler.work is not None for straggler in named):
        return f"{'it has' if it else 'they have'} more to do than the others"
    patterns = {straggler.pattern for straggler in named}
    stages: set[Cause | None] = {straggler.stage for straggler in named} or {bottleneck.cause}
    what = cause_name(stages.pop()) if len(stages) == 1 else "work"
    slow = _SLOW[patterns.pop()] if len(patterns) == 1 else "is slow"
    return f"{'its' if it else 'their'} {what} {slow}"


def basis(analysis: Analysis) -> str:
    """Describe the basis of the figures: 299 steady steps of 4 ranks."""
    known = analysis.epoch_times
    if known is not None:
        epochs = f"{counted(analysis.epochs, 'epoch')}: " if analysis.epochs else ""
        return f"{epochs}{known.known_from}"
    steady = analysis.steady
    steps = f"{counted(analysis.steps, 'step')} without timestamps"
    if steady:
        steps = counted(len(steady), "steady step")
    size = analysis.run.size
    recorded = len(analysis.run.compared_ranks)
    ranks = counted(size, "rank") if recorded == size else f"{recorded} of {size} ranks"
    for_all = f", standing for {analysis.steps:,}" if analysis.coverage.sampled_out else ""
    return f"{steps} of {ranks}{for_all}"
