"""Offer analyses to analysts as DataFrames: of one run, and of jobs on several numbers of ranks.

One run has ledgers, ranks, stragglers, gains and findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from stallscope import analysis as analysing
from stallscope.analysis import scaling as sizes
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.charts.charts import Chart, named_charts
from stallscope.charts.scaling_curves import efficiency_chart, rate_chart, steps_chart
from stallscope.formatting.numbers import finite
from stallscope.formatting.plain import plain
from stallscope.opening import open_runs
from stallscope.reports.report_formats import fields_of
from stallscope.reports.run.json_content import finding_content, json_content
from stallscope.reports.scaling.scaling_document import COLUMNS, records
from stallscope.text.gain_words import answers, gains, is_throughput
from stallscope.text.verdicts import headline

from .frames import STAGE, Columns, Kind, figures_of, frame, interval, interval_columns
from .ledgers import by_cause_frame, epochs_frame, ledger_frame, series_frame, steps_frame
from .opened_run import Run, RunLike, as_run

_RANK_FIELDS = (
    "rank host input_ms compute_ms wait_ms allreduce_ms other_ms critical_share "
    "clock_offset_ms clock_uncertainty_ms validation_s checkpoint_s"
)
_RANKS: Columns = {
    **dict.fromkeys(_RANK_FIELDS.split(), "number"),
    "rank": "index",
    "host": "name",
}
_STRAGGLERS: Columns = {
    "pattern": "name",
    "stage": STAGE,
    "ranks": "tuple",
    "hosts": "tuple",
    "place": "text",
    **interval_columns("excess", "_ms"),
    "late_share": "number",
    **interval_columns("cost", "_ms"),
    "work": "number",
}
_CAUSES: Columns = {
    "name": "text",
    "ranks": "tuple",
    "stage": STAGE,
    "count": "count",
    "took_ms": "number",
    **interval_columns("saved", "_ms"),
    "share": "number",
    "of_imbalance": "number",
    "evidence": "text",
}
_GAINS: Columns = {
    "fix": "text",
    "title": "text",
    **interval_columns("saved", "_ms"),
    **interval_columns("speedup"),
    "bound": "flag",
    "estimate": "number",
    "extrapolated": "flag",
    "overlaps": "tuple",
}
_FINDINGS: Columns = {
    "code": "name",
    "severity": pd.CategoricalDtype(["info", "warning", "error"], ordered=True),
    "title": "text",
    "evidence": "text",
    "advice": "text",
}


@dataclass(frozen=True, eq=False, repr=False)
class Analysis:
    """The analysis of a run; ``analyse`` makes it.

    Every access to a property builds a new DataFrame that the caller may change. Values that were not
    measured are missing: NaN, ``pd.NA`` or ``pd.NaT``.
    """

    run: Run
    baseline: Analysis | None
    _analysis: analysing.Analysis

    @property
    def verdict(self) -> str:
        """The bottleneck: ``input``, ``compute``, ``other``, ``imbalance``, ``allreduce``, …"""
        return self._analysis.bottleneck.kind

    @property
    def headline(self) -> str:
        """The verdict in words, as reports begin."""
        return headline(self._analysis.bottleneck, self._analysis.stragglers)

    @property
    def step_ms(self) -> float | None:
        """The mean steady step in milliseconds; None without timed steps."""
        return None if self._analysis.step is None else self._analysis.step.mean

    @property
    def samples_per_second(self) -> float | None:
        """The throughput of all ranks together in steady steps; None if unknown."""
        return self._analysis.samples_per_second

    @property
    def tokens_per_second(self) -> float | None:
        """The same in tokens, without padding; None where no recorder counts them."""
        tokens = self._analysis.tokens_per_second
        return None if tokens is None else tokens.value

    @property
    def goodput(self) -> float | None:
        """The fraction of ranks × wall time that went into steps that count; None without stages."""
        return None if self._analysis.goodput is None else self._analysis.goodput.fraction

    @property
    def ledger(self) -> pd.DataFrame:
        """The mean steady step: a row per entry, which add up to the step."""
        return ledger_frame(self._analysis)

    @property
    def by_cause(self) -> pd.DataFrame:
        """The mean steady step by cause: the slowest rank's stages, which add up to the step."""
        return by_cause_frame(self._analysis)

    @property
    def steps(self) -> pd.DataFrame:
        """A row per step of the job: both ledgers, the slowest rank, and pauses before the step."""
        return steps_frame(self._analysis)

    @property
    def epochs(self) -> pd.DataFrame:
        """A row per epoch: the means of ``steps`` without warm-up, and its pauses."""
        return epochs_frame(self._analysis)

    @property
    def series(self) -> pd.DataFrame:
        """A row per window of steps, 2,000 at most: step time over the run."""
        return series_frame(self._analysis, self.run._selected(None, None))

    @property
    def ranks(self) -> pd.DataFrame:
        """A row per rank: its mean stages per steady step."""
        rows = [fields_of(rank, _RANK_FIELDS) for rank in self._analysis.ranks]
        for row in rows:
            # A clock without a common completed collective has an infinite uncertainty.
            row["clock_uncertainty_ms"] = finite(row["clock_uncertainty_ms"])
        return frame(rows, _RANKS, ["rank"])

    @property
    def stragglers(self) -> pd.DataFrame:
        """A row per straggler: the slow ranks, the stage, its excess and its cost."""
        return frame(map(_straggler, self._analysis.stragglers), _STRAGGLERS)

    @property
    def causes(self) -> pd.DataFrame:
        """A row per cause inside the steps, the costliest first: pauses, and what batches hold."""
        return frame(map(_cause, self._analysis.step_causes.causes), _CAUSES, ["name"])

    @property
    def gains(self) -> pd.DataFrame:
        """A row per fix: the time that it saves per step, and the speed-up."""
        titled = [*gains(self._analysis), *answers(self._analysis)]
        rows = (_gain(gain.title, gain.what_if) for gain in titled)
        return frame(rows, _GAINS, ["fix"])

    @property
    def findings(self) -> pd.DataFrame:
        """A row per finding, the most severe first."""
        return frame(map(finding_content, self._analysis.findings), _FINDINGS)

    def figures(self, *, dark: bool = False) -> dict[str, go.Figure]:
        """Return the report's charts by name, as Plotly figures.

        Args:
            dark: whether the page is dark.
        """
        return figures_of(named_charts(self._analysis), dark=dark)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as ``stallscope report --format json`` writes it."""
        return json_content(self._analysis)

    def __repr__(self) -> str:
        return f"Analysis({plain(self.run.name)!r}: {plain(self.headline)})"


AnalysisLike = Analysis | RunLike


def analyse(run: RunLike, baseline: AnalysisLike | None = None) -> Analysis:
    """Analyse a run.

    Args:
        run: a run, or what ``open_run`` takes.
        baseline: the same job on synthetic data; its analysis can be shared by many runs.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if it cannot be read.
    """
    opened = as_run(run)
    base = None if baseline is None else as_analysis(baseline)
    analysis = analysing.analyse(opened._recorded, None if base is None else base._analysis)
    return Analysis(opened, base, analysis)


def as_analysis(run: AnalysisLike) -> Analysis:
    """Return an analysis unchanged, or analyse a run without a baseline."""
    return run if isinstance(run, Analysis) else analyse(run)


def each_analysis(runs: Iterable[AnalysisLike] | str | PathLike[str]) -> Iterator[Analysis]:
    """Yield the analyses of all runs; a folder or a store that is named is all of its runs."""
    for run in [runs] if isinstance(runs, (str, PathLike)) else runs:
        if isinstance(run, (str, PathLike)):
            yield from (analyse(opened) for opened in open_runs(fspath(run)))
        else:
            yield as_analysis(run)


def _straggler(straggler: Straggler) -> dict[str, Any]:
    return {
        **vars(straggler),
        **interval(straggler.excess_ms, "excess", "_ms"),
        **interval(straggler.cost_ms, "cost", "_ms"),
    }


def _cause(cause: StepCause) -> dict[str, Any]:
    return {
        **fields_of(cause, "name=code ranks stage count took_ms share of_imbalance evidence=text"),
        **interval(cause.saved_ms, "saved", "_ms"),
    }


def _gain(title: str, gain: WhatIf) -> dict[str, Any]:
    low, high = gain.ci95 or (None, None)
    return {
        "fix": str(gain.fix),
        "overlaps": tuple(map(str, gain.overlaps)),
        **fields_of(gain, "speedup bound estimate extrapolated"),
        "title": title,
        # On other numbers of ranks, steps take another time: no time is saved per step.
        **interval(None if is_throughput(gain) else gain.saved_ms, "saved", "_ms"),
        "speedup_ci_low": low,
        "speedup_ci_high": high,
    }


# -- Jobs on several numbers of ranks ---------------------------------------------------------------

_KINDS: dict[str, Kind] = {
    "series": "name",
    "synthetic": "flag",
    "ranks": "index",
    "projected": "flag",
    "runs": "count",
}
# Columns of the report's table with the interval of throughput.
_ENDS = ("ci_low", "ci_high")
_SIZES: Columns = {name: _KINDS.get(name, "number") for name in COLUMNS}


@dataclass(frozen=True, eq=False, repr=False)
class Scaling:
    """How jobs scale; ``scaling`` makes it."""

    _series: Sequence[sizes.ScalingSeries]

    @property
    def points(self) -> pd.DataFrame:
        """A row per job and number of ranks: throughput, efficiency, and losses by cause.

        Projected sizes come after measured ones.
        """
        points = frame(records(self._series).rows, _SIZES, ["series", "ranks"])
        return points.rename(columns={end: f"samples_per_second_{end}" for end in _ENDS})

    @property
    def warnings(self) -> list[str]:
        """Reasons to be careful with the figures, a sentence each."""
        return [sentence for series in self._series for sentence in series.warnings]

    def figures(self, *, dark: bool = False) -> dict[str, go.Figure]:
        """Return the charts of the largest job by name, as Plotly figures.

        Args:
            dark: whether the page is dark.
        """
        if not self._series:
            return {}
        job = self._series[0]
        charts: dict[str, Chart | None] = {
            "throughput": rate_chart(job),
            "efficiency": efficiency_chart(job),
            "steps": steps_chart(job),
        }
        return figures_of(charts, dark=dark)

    def __repr__(self) -> str:
        jobs = (f"{series.name} on {_ranks_of(series)}" for series in self._series)
        return f"Scaling({'; '.join(jobs)})"


def _ranks_of(series: sizes.ScalingSeries) -> str:
    return ", ".join(str(size.point.ranks) for size in series.points) + " ranks"


def scaling(runs: Iterable[AnalysisLike] | str | PathLike[str]) -> Scaling:
    """Compare runs of one or more jobs on different numbers of ranks.

    Args:
        runs: runs, their analyses, or RUN arguments of the commands; a folder is all of its runs.

    Raises:
        NotFoundError: if nothing is at a place.
        UnreadableError: if a run cannot be read.
    """
    return Scaling(sizes.scaling([analysis._analysis for analysis in each_analysis(runs)]))
