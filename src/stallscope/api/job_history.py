"""Offer jobs over their runs, two runs compared, and the runs of a store to analysts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from stallscope.analysis import ENTRIES, comparison, regression
from stallscope.catalogue.entry import SHARES
from stallscope.catalogue.index import Catalogue
from stallscope.catalogue.listing import Baselines, entry_content, local_store
from stallscope.catalogue.where import parse_where
from stallscope.charts.charts import Chart, changes_chart, figure_charts, ledgers_chart, runs_chart
from stallscope.formatting.plain import plain
from stallscope.reports.comparison.histories import headline
from stallscope.reports.comparison.pair import caveats, outcome
from stallscope.words import WorkUnit

from .analysis import Analysis, AnalysisLike, analyse, each_analysis
from .frames import CAUSE, ENTRY, Columns, Kind, figures_of, frame, interval, interval_columns

_TIMES = ("step", *ENTRIES)
_POINTS: Columns = {
    "job": "name",
    "number": "index",
    "run_id": "text",
    "run": "text",
    "started_at": "moment",
    **{column: "number" for name in _TIMES for column in interval_columns(name, "_ms")},
    **interval_columns(regression.RATE),
    **interval_columns(regression.TOKENS),
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
_CHANGES_OF_PAIR: Columns = {
    **interval_columns("first", "_ms"),
    **interval_columns("second", "_ms"),
    **interval_columns("by", "_ms"),
    "more_than_noise": "flag",
}

_SHARES = {f"{name}_share": name for name in SHARES}
_COLUMNS: Columns = {
    "id": "text",
    "name": "text",
    "path": "text",
    "source": "text",
    "framework": "name",
    "model": "name",
    "ranks": "count",
    "hosts": "tuple",
    "steps": "count",
    "epochs": "count",
    "batch_size": "count",
    "synthetic": "flag",
    "status": "name",
    "started_at": "moment",
    "collected_at": "moment",
    "bytes": "index",
    "samples_per_second": "number",
    "step_ms": "number",
    "verdict": "name",
    "cause": "name",
    "fault": "flag",
    "goodput": "number",
    "named_ranks": "tuple",
    "named_hosts": "tuple",
    **dict.fromkeys(_SHARES, "number"),
    "baseline": "text",
}


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """Jobs over their runs, the job with the most runs first; ``history`` makes it."""

    _jobs: Sequence[regression.History]

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


def _names(job: regression.History, figure: regression.Figure) -> dict[str, str]:
    return {"job": job.name, "figure": figure.name, "unit": figure.unit}


def _trend(trend: regression.Trend | None) -> dict[str, float | None]:
    per_run, p = (None, None) if trend is None else (trend.per_run, trend.p)
    return {**interval(per_run, "per_run"), "p": p}


def _point(job: regression.History, at: int) -> dict[str, Any]:
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
    return History(regression.regression(analysis._analysis for analysis in each_analysis(runs)))


# -- Offer the comparison of two runs to analysts -------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The changes from the first run to the second; ``compare`` makes it."""

    first: Analysis
    second: Analysis
    _comparison: comparison.Comparison

    @property
    def outcome(self) -> str:
        """The result in one sentence, as the report begins: ``B's steps are 35% shorter``."""
        return outcome(self._comparison)[0]

    @property
    def caveats(self) -> list[str]:
        """Reasons to be careful with the figures, a sentence each."""
        return caveats(self._comparison)

    @property
    def speedup(self) -> float | None:
        """The second run's throughput over the first one's; None if either is unknown."""
        ratio = self._comparison.speedup
        return None if ratio is None else ratio.value

    @property
    def unit(self) -> WorkUnit | None:
        """Return the unit of ``same_work``; None where steps hold as much work in both runs."""
        work = self._comparison.same_work
        return None if work is None else work.unit

    @property
    def same_work(self) -> pd.DataFrame:
        """Changes of the step and of each cause, for as much work as the first run's steps hold.

        Empty where steps hold as much in both runs.
        """
        work = self._comparison.same_work
        step = None if work is None else work.changes.step
        return _changes([step, *work.changes.by_cause] if work and step else [], "text")

    @property
    def step(self) -> pd.DataFrame:
        """One row: the change of the whole step."""
        step = self._comparison.step
        return _changes([] if step is None else [step], "text")

    @property
    def by_cause(self) -> pd.DataFrame:
        """A row per cause: its change, which add up to the step's."""
        return _changes(self._comparison.by_cause, CAUSE)

    @property
    def ledger(self) -> pd.DataFrame:
        """A row per entry of the ledger: its change, which add up to the step's."""
        return _changes(self._comparison.entries, ENTRY)

    @property
    def differences(self) -> pd.DataFrame:
        """A row per fact that differs: settings, versions, hosts."""
        columns: Columns = {"name": "text", "first": "tuple", "second": "tuple"}
        facts = frame(map(vars, self._comparison.differences), columns)
        return facts.rename(columns={"name": "fact"}).set_index("fact")

    def figures(self, *, dark: bool = False) -> dict[str, go.Figure]:
        """Return the report's charts by name, as Plotly figures.

        Args:
            dark: whether the page is dark.
        """
        charts = {
            "by_cause": ledgers_chart(self._comparison),
            "changes": changes_chart(self._comparison),
        }
        return figures_of(charts, dark=dark)

    def __repr__(self) -> str:
        names = (plain(analysis.run.name) for analysis in (self.first, self.second))
        return f"Comparison({' → '.join(names)}: {plain(self.outcome)})"


def _changes(
    changes: Sequence[comparison.Change], name: Kind | pd.CategoricalDtype
) -> pd.DataFrame:
    rows = (
        {
            "name": change.name,
            **interval(change.first, "first", "_ms"),
            **interval(change.second, "second", "_ms"),
            **interval(change.by, "by", "_ms"),
            "more_than_noise": change.is_real,
        }
        for change in changes
    )
    return frame(rows, {"name": name, **_CHANGES_OF_PAIR}, ["name"])


def compare(
    first: AnalysisLike, second: AnalysisLike, baseline: AnalysisLike | None = None
) -> Comparison:
    """Compare the second run with the first.

    Args:
        first: a run, its analysis, or what ``open_run`` takes.
        second: likewise.
        baseline: the same job on synthetic data, for runs that are not analysed yet.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if it cannot be read.
    """
    a, b = (run if isinstance(run, Analysis) else analyse(run, baseline) for run in (first, second))
    return Comparison(a, b, comparison.compare(a._analysis, b._analysis))


# -- The runs of a store as a DataFrame -----------------------------------------------------------


def runs(store: str | PathLike[str] = ".", where: str = "", sort: str = "age") -> pd.DataFrame:
    """List the collected runs of a store by id, without reading their steps.

    Args:
        store: a folder that runs were collected into, or its URL.
        where: only matching runs, as ``stallscope runs --where`` takes it:
            ``model=resnet50 ranks>=8``.
        sort: the field to sort by: numbers from the largest, times from the newest, text from A.

    Raises:
        NotFoundError: if no runs were collected there.
        UsageError: if ``where`` or ``sort`` names an unknown field.
    """
    wanted = parse_where(where)
    with local_store(fspath(store)) as folder, Catalogue.open(folder) as catalogue:
        baselines = Baselines(catalogue)
        rows = [
            _row(entry_content(folder, entry, baselines.of(entry)))
            for entry in catalogue.entries(wanted, sort)
        ]
    return frame(rows, _COLUMNS, ["id"])


def _row(content: Mapping[str, Any]) -> dict[str, Any]:
    shares = content["shares"]
    return {**content, **{column: shares[name] for column, name in _SHARES.items()}}
