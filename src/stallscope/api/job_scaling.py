"""Offer the scaling of jobs over numbers of ranks to analysts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike

import pandas as pd
import plotly.graph_objects as go

from stallscope.analysis import scaling as sizes
from stallscope.charts.charts import Chart
from stallscope.charts.scaling_curves import efficiency_chart, rate_chart, steps_chart
from stallscope.reports.scaling.scaling_document import COLUMNS, records

from .analysis import AnalysisLike, each_analysis
from .frames import Columns, Kind, figures_of, frame

_KINDS: dict[str, Kind] = {
    "series": "name",
    "synthetic": "flag",
    "ranks": "index",
    "projected": "flag",
    "runs": "count",
}
# Columns of the report's table with the interval of throughput.
_ENDS = ("ci_low", "ci_high")
_POINTS: Columns = {name: _KINDS.get(name, "number") for name in COLUMNS}


@dataclass(frozen=True, eq=False, repr=False)
class Scaling:
    """How jobs scale; ``scaling`` makes it."""

    _series: Sequence[sizes.ScalingSeries]

    @property
    def points(self) -> pd.DataFrame:
        """A row per job and number of ranks: throughput, efficiency, and losses by cause.

        Projected sizes come after measured ones.
        """
        points = frame(records(self._series).rows, _POINTS, ["series", "ranks"])
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
        jobs = (f"{series.name} on {_sizes(series)}" for series in self._series)
        return f"Scaling({'; '.join(jobs)})"


def _sizes(series: sizes.ScalingSeries) -> str:
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
