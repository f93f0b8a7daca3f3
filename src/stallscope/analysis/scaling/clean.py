"""Decide whether a run is healthy enough to represent its job."""

from __future__ import annotations

from ..result import Analysis


def is_clean(analysis: Analysis) -> bool:
    """Whether a run has no fault in its verdict and no error among its findings."""
    return fault_of(analysis) is None


def fault_of(analysis: Analysis) -> str | None:
    """Describe the fault in a few words (``imbalance of rank 3``); None for a clean run."""
    verdict = analysis.bottleneck
    if verdict.fault:
        ranks = ", ".join(map(str, verdict.ranks))
        noun = "rank" if len(verdict.ranks) == 1 else "ranks"
        return f"{verdict.kind} of {noun} {ranks}" if ranks else verdict.kind
    return next((one.title for one in analysis.findings if one.severity == "error"), None)
