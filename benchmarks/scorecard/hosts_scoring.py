"""Score how a slow host is found: which one, why, and whether its clock is within its bound."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from hosts_plan import CLEAN, REASONS, Case

from stallscope.analysis import Analysis

#: A line of the scores: the case, and what was found.
Score = dict[str, Any]

# Hosts of the lab are started so many seconds one after the other.
_APART_MS = 86_400_000.0


def score(case: Case, analysis: Analysis) -> Score:
    """Score one run."""
    verdict = analysis.bottleneck
    clocks = [
        [rank.clock_offset_ms - at * _APART_MS, rank.clock_uncertainty_ms]
        for at, rank in enumerate(analysis.ranks)
        if at and rank.clock_offset_ms is not None and rank.clock_uncertainty_ms is not None
    ]
    return {
        "name": case.name,
        **asdict(case),
        "kind": verdict.kind,
        "cause": verdict.cause,
        "ranks": list(verdict.ranks),
        "on_hosts": list(verdict.hosts),
        "why": [reason.code for reason in verdict.why],
        "clocks_ms": [[round(error, 4), round(bound, 4)] for error, bound in clocks],
        "evidence": verdict.evidence,
    }


def host_right(one: Score) -> bool:
    """Whether this host alone is named, by its rank or its name. In a clean run: whether no host is."""
    if one["what"] == CLEAN:
        return not one["ranks"] and not one["on_hosts"]
    host = f"h{one['rank'] + 1}"
    if one["what"] == "link":
        return one["cause"] == "network" and one["on_hosts"] == [host] and not one["ranks"]
    return one["ranks"] == [one["rank"]] and one["on_hosts"] in ([], [host])


def why_right(one: Score) -> bool:
    """Whether the first reason is right."""
    return bool(one["why"]) and one["why"][0] in REASONS[one["what"]]


def clocks_within(one: Score) -> list[bool]:
    """Return for each clock but the first whether its error is within its bound."""
    return [abs(error) <= bound for error, bound in one["clocks_ms"]]
