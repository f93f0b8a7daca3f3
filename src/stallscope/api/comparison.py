"""Offer the comparison of two runs to analysts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from stallscope.analysis.history import comparison as comparing
from stallscope.charts.comparison import changes_chart, ledgers_chart
from stallscope.formatting.plain import plain
from stallscope.reports.comparison.pair import caveats, outcome

from .analysis import Analysis, AnalysisLike, analyse
from .figures import figures_of
from .frames import CAUSE, ENTRY, Columns, Kind, frame, interval, interval_columns

_CHANGES: Columns = {
    **interval_columns("first", "_ms"),
    **interval_columns("second", "_ms"),
    **interval_columns("by", "_ms"),
    "more_than_noise": "flag",
}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The changes from the first run to the second; ``compare`` makes it."""

    first: Analysis
    second: Analysis
    _comparison: comparing.Comparison

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


def _changes(changes: Sequence[comparing.Change], name: Kind | pd.CategoricalDtype) -> pd.DataFrame:
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
    return frame(rows, {"name": name, **_CHANGES}, ["name"])


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
    return Comparison(a, b, comparing.compare(a._analysis, b._analysis))
