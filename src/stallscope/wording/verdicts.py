"""Verdicts and fixes in sentences: headlines, names of fixes, how sure a figure is."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.result import Bottleneck
from stallscope.analysis.what_if import WhatIf

from .numbers import amount, between, significant

_MOST_NAMED = 4

_KINDS = {
    "input": "Input",
    "compute": "Compute",
    "other": "Between steps",
    "imbalance": "Slow ranks",
    "allreduce": "Exposed allreduce",
    "balanced": "Balanced",
    "insufficient_data": "Insufficient data",
}

_HEADLINES = {
    "input": "Input holds this run back: batches come late",
    "compute": "This run is bound by compute, as its baseline is",
    "other": "Work between steps holds this run back",
    "allreduce": "Exposed allreduce holds this run back",
    "balanced": "No single fault stands out",
    "insufficient_data": "These logs cannot tell what holds the run back",
}

_CAUSES = {"input": "input", "compute": "compute", "other": "work between steps"}

_FIXES = {
    "input": "Without input stalls",
    "other": "Without extra work between steps",
    "allreduce": "If allreduce cost nothing",
}


def kind_title(kind: str) -> str:
    """The verdict in two words."""
    return _KINDS.get(kind, kind)


def short_verdict(bottleneck: Bottleneck) -> str:
    """The verdict in a few words, with the ranks that it names."""
    if bottleneck.kind == "imbalance":
        return f"Slow {listed('rank', bottleneck.ranks)}"
    return kind_title(bottleneck.kind)


def headline(bottleneck: Bottleneck) -> str:
    """The verdict as a sentence."""
    if bottleneck.kind != "imbalance":
        return _HEADLINES.get(bottleneck.kind, kind_title(bottleneck.kind))
    where = f" of {listed('host', bottleneck.hosts)}" if bottleneck.hosts else ""
    who = listed("rank", bottleneck.ranks)
    one = len(bottleneck.ranks) == 1
    cause = _CAUSES.get(bottleneck.cause or "", "work")
    return (
        f"{who[0].upper()}{who[1:]}{where} {'holds' if one else 'hold'} this run back: "
        f"{'its' if one else 'their'} {cause} is slow"
    )


def listed(noun: str, names: Sequence[object]) -> str:
    """``rank 3``, ``ranks 3 and 5``, ``ranks 3, 5, 7, 9 and 12 more``."""
    return f"{noun if len(names) == 1 else noun + 's'} {joined([str(name) for name in names])}"


def joined(words: Sequence[str]) -> str:
    """``a``, ``a and b``, ``a, b, c, d and 12 more``."""
    if len(words) > _MOST_NAMED:
        words = [*words[:_MOST_NAMED], f"{len(words) - _MOST_NAMED} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def fix_title(fix: str, slow: Sequence[str]) -> str:
    """The condition under which a gain is had: ``With rank 3 as fast as the others``.

    Args:
        fix: the name of the fix.
        slow: fixes of single ranks and hosts, which the fix ``imbalance`` brings together.
    """
    if fix in _FIXES:
        return _FIXES[fix]
    healed = slow if fix == "imbalance" and slow else [fix]
    return f"With {joined([one.replace(':', ' ', 1) for one in healed])} as fast as the others"


def speedup(gain: WhatIf) -> str:
    """1.25×, or that nothing is gained: replayed with the baseline's stage, steps are no faster."""
    return f"{significant(gain.speedup)}×" if gain.saved_ms.value > 0 else "no gain"


def speedup_interval(gain: WhatIf) -> str:
    """1.24–1.26×, or why there is none."""
    if gain.ci95 is None:
        return "no interval: too few independent steps"
    return f"{between(*gain.ci95)}×"


def saving(gain: WhatIf, analysis: Analysis) -> str:
    """10.9 ± 0.1 ms of the step's 54.1 ms"""
    saved = amount(gain.saved_ms.value, "ms", gain.saved_ms.ci95)
    step = analysis.step
    return saved if step is None else f"{saved} of the step's {amount(step.mean, 'ms')}"


def basis(analysis: Analysis) -> str:
    """What the figures rest on: 299 steady steps of 4 ranks"""
    steady = analysis.steady
    steps = counted(len(steady), "steady step") if steady else f"{analysis.steps:,} unstamped steps"
    recorded, size = len(analysis.run.ranks), analysis.run.size
    ranks = counted(size, "rank") if recorded == size else f"{recorded} of {size} ranks"
    return f"{steps} of {ranks}"


def counted(number: int, noun: str) -> str:
    """1 rank, 1,000 ranks"""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
