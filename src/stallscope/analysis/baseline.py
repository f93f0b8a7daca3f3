"""A run against its baseline: the same job on synthetic data."""

from __future__ import annotations

from collections.abc import Iterable

from stallscope.run import Run, newest_first

from .result import BaselineMatch

# What must be alike for a comparison to say something; the rest of the facts may differ.
_COMPARED = (
    "model",
    "parameters",
    "batch_size",
    "optimizer",
    "backward_passes_per_step",
    "steps_per_execution",
    "framework",
    "versions",
    "threads",
)


def match_baseline(run: Run, baseline: Run) -> BaselineMatch:
    """Which facts are the same and which differ, the latter with both values."""
    pairs = [("ranks", run.size, baseline.size), ("hosts", len(run.hosts), len(baseline.hosts))]
    pairs += [(name, run.fact(name), baseline.fact(name)) for name in _COMPARED]
    same = tuple(name for name, own, other in pairs if own == other and own is not None)
    differs = tuple(
        f"{name}: {own} here, {other} in the baseline" for name, own, other in pairs if own != other
    )
    return BaselineMatch(same, differs)


def find_baseline(run: Run, candidates: Iterable[Run]) -> Run | None:
    """The newest synthetic run that is the same job; None where there is none."""
    if run.synthetic:
        return None
    for candidate in newest_first(candidates):
        if candidate.synthetic and not match_baseline(run, candidate).differs:
            return candidate
    return None
