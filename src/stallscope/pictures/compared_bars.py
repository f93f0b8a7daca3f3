"""The same stages of several runs beside each other, with intervals."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.stats import Mean


@dataclass(frozen=True)
class ComparedBars:
    """Groups of bars with whiskers: one bar per series in every group.

    A group's name is a key of TITLES and of the palette; None is what was not measured.
    """

    title: str
    sentence: str
    unit: str
    series: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Mean | None, ...]], ...]


def stages_chart(analysis: Analysis) -> ComparedBars | None:
    """A step's entries in this run, its baseline and the run on one rank. None without two of them."""
    runs = compared_runs(analysis)
    if len(runs) < 2 or not any(run.entries for _, run in runs):
        return None
    names = [name for name, _ in runs]
    return ComparedBars(
        "Stage by stage",
        f"What a step's time is spent on in {', '.join(names[:-1])} and {names[-1]}; whiskers are "
        "95% intervals of the means.",
        "ms",
        tuple(names),
        tuple((entry, tuple(_mean(run, entry) for _, run in runs)) for entry in ENTRIES),
    )


def compared_runs(analysis: Analysis) -> list[tuple[str, Analysis]]:
    """The run and those that it is held against, by what they are called beside each other."""
    runs = (("this run", analysis), ("baseline", analysis.baseline), ("one rank", analysis.single))
    return [(name, run) for name, run in runs if run is not None]


def _mean(analysis: Analysis, name: str) -> Mean | None:
    entry = analysis.entry(name)
    if entry is None:
        return None
    # What one rank has none of is no estimate.
    return Mean(entry.ms, None if entry.ci95_ms == (0.0, 0.0) else entry.ci95_ms)
