"""Offer the history of jobs that ran many times to analysts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from stallscope.analysis import ENTRIES
from stallscope.analysis.history import regression as over_time
from stallscope.charts.charts import Chart
from stallscope.charts.comparison import figure_charts, runs_chart
from stallscope.formatting.plain import plain
from stallscope.reports.comparison.histories import headline

from .analysis import AnalysisLike, each_analysis
from .figures import figures_of
from .frames import Columns, frame, interval, interval_columns

_TIMES = ("step", *ENTRIES)
_POINTS: Columns = {
    "job": "name",
    "number": "index",
    "run_id": "text",
    "run": "text",
    "started_at": "moment",
    **{column: "number" for name in _TIMES for column in interval_columns(name, "_ms")},
    **interval_columns(over_time.RATE),
}
_OUTCOMES: Columns = {
    "job": "name",
    "figure": "name",
    "unit": "name",
    "status": pd.CategoricalDtype(["change", "trend", "steady", "insufficient_data"]),
    "why": "text",
    **interval_columns("per_run"),
    "p": "number",
    "spread": "number",
}
_CHANGES: Columns = {
    "job": "name",
    "figure": "name",
    "unit": "name",
    "number": "index",
    "run_id": "text",
    "before": "number",
    "after": "number",
    **interval_columns("by"),
    "p": "number",
}


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """Jobs over their runs, the job with the most runs first; ``history`` makes it."""

    _jobs: Sequence[over_time.History]

    @property
    def headlines(self) -> list[str]:
        """The result for each job in one sentence: ``Steps are 9.7% longer since nightly-09``."""
        return [headline(job) for job in self._jobs]

    @property
    def points(self) -> pd.DataFrame:
        """A row per job and run, the oldest first: step, entries of the ledger, throughput."""
        rows = (
            {"job": job.name, **_point(job, at)}
            for job in self._jobs
            for at in range(len(job.runs))
        )
        return frame(rows, _POINTS, ["job", "number"])

    @property
    def outcomes(self) -> pd.DataFrame:
        """A row per job and figure: whether it changed for good, drifts, or is steady.

        ``per_run`` and ``p`` are the trend's; ``spread`` is the standard deviation from run to run.
        """
        rows = (
            {
                **_names(job, figure),
                "status": figure.status,
                "why": figure.why or None,
                **_trend(figure.trend),
                "spread": None if figure.spread is None else figure.spread.value,
            }
            for job in self._jobs
            for figure in job.figures
        )
        return frame(rows, _OUTCOMES, ["job", "figure"])

    @property
    def changes(self) -> pd.DataFrame:
        """A row per lasting change of a figure, with the first run of the new level."""
        rows = (
            {
                **_names(job, figure),
                "number": change.run + 1,
                "run_id": job.runs[change.run].analysis.run.id,
                "before": change.before,
                "after": change.after,
                **interval(change.by, "by"),
                "p": change.p,
            }
            for job in self._jobs
            for figure in job.figures
            for change in figure.changes
        )
        return frame(rows, _CHANGES, ["job", "figure"])

    @property
    def differences(self) -> pd.DataFrame:
        """A row per fact in which a run differs from the one before: settings, versions, hosts."""
        columns: Columns = {
            "job": "name",
            "number": "index",
            "fact": "text",
            "before": "tuple",
            "after": "tuple",
        }
        return frame(self._differences(), columns, ["job", "number", "fact"])

    def _differences(self) -> Iterator[dict[str, Any]]:
        for job in self._jobs:
            for number, run in enumerate(job.runs, 1):
                for difference in run.differences:
                    facts = {
                        "fact": difference.name,
                        "before": difference.first,
                        "after": difference.second,
                    }
                    yield {"job": job.name, "number": number, **facts}

    @property
    def warnings(self) -> list[str]:
        """Reasons to be careful with the figures, a sentence each."""
        return [sentence for job in self._jobs for sentence in job.warnings]

    def figures(self, *, dark: bool = False) -> dict[str, go.Figure]:
        """Return charts of the job with the most runs by name, as Plotly figures.

        They are ``step``, every entry that changed or drifts, and ``by_cause``.

        Args:
            dark: whether the page is dark.
        """
        if not self._jobs:
            return {}
        job = self._jobs[0]
        charts: dict[str, Chart | None] = {**figure_charts(job), "by_cause": runs_chart(job)}
        return figures_of(charts, dark=dark)

    def __repr__(self) -> str:
        jobs = (
            f"{len(job.runs)} of {plain(job.name)}: {plain(sentence)}"
            for job, sentence in zip(self._jobs, self.headlines, strict=True)
        )
        return f"History({'; '.join(jobs)})"


def _names(job: over_time.History, figure: over_time.Figure) -> dict[str, str]:
    return {"job": job.name, "figure": figure.name, "unit": figure.unit}


def _trend(trend: over_time.Trend | None) -> dict[str, float | None]:
    per_run, p = (None, None) if trend is None else (trend.per_run, trend.p)
    return {**interval(per_run, "per_run"), "p": p}


def _point(job: over_time.History, at: int) -> dict[str, Any]:
    run = job.runs[at].analysis.run
    row: dict[str, Any] = {"number": at + 1, "run_id": run.id, "run": run.name}
    row["started_at"] = run.started_at
    for figure in job.figures:
        row |= interval(figure.values[at], figure.name, "" if figure.is_rate else "_ms")
    return row


def history(runs: Iterable[AnalysisLike] | str | PathLike[str]) -> History:
    """Find what changed over many runs of one or more jobs, such as those of every night.

    Runs are the same job if the facts that decide the work of a step are the same. Steps are not kept,
    so that any number of runs fits into memory.

    Args:
        runs: runs, their analyses, or RUN arguments of the commands; a folder is all of its runs.

    Raises:
        NotFoundError: if nothing is at a place.
        UnreadableError: if a run cannot be read.
    """
    return History(over_time.regression(analysis._analysis for analysis in each_analysis(runs)))
