"""Verdicts and fixes in words."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analysis.result import Bottleneck

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
    "input": "Input holds this run back: batches come late on all ranks",
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
    "imbalance": "With all ranks as fast as most",
}


def headline(bottleneck: Bottleneck) -> str:
    """The verdict as a sentence."""
    if bottleneck.kind != "imbalance":
        return _HEADLINES.get(bottleneck.kind, bottleneck.kind)
    who = _listed("rank", bottleneck.ranks)
    where = f" of {_listed('host', bottleneck.hosts)}" if bottleneck.hosts else ""
    one = len(bottleneck.ranks) == 1
    cause = _CAUSES.get(bottleneck.cause or "", "work")
    return (
        f"{who.capitalize()}{where} {'holds' if one else 'hold'} this run back: "
        f"{'its' if one else 'their'} {cause} is slow"
    )


def short_verdict(bottleneck: Bottleneck) -> str:
    """The verdict in a word or two."""
    if bottleneck.kind == "imbalance":
        return f"Slow {_listed('rank', bottleneck.ranks)}"
    return _KINDS.get(bottleneck.kind, bottleneck.kind)


def fix_title(fix: str) -> str:
    """The condition under which a gain is had."""
    return _FIXES.get(fix, f"With {fix.replace(':', ' ', 1)} as fast as the others")


def counted(number: int, noun: str) -> str:
    """1 rank, 1,000 ranks"""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listed(noun: str, names: Sequence[object]) -> str:
    """``rank 3``, ``ranks 3 and 5``, ``ranks 3, 5, 7, 9 and 12 more``."""
    words = [str(name) for name in names]
    if len(words) > _MOST_NAMED:
        words = [*words[:_MOST_NAMED], f"{len(words) - _MOST_NAMED} more"]
    *first, last = words
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{noun if len(names) == 1 else noun + 's'} {listed}"
