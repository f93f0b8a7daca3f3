"""Show a run in a notebook that displays HTML, such as Jupyter or Databricks, without a server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import plotly.graph_objects as go

from stallscope.analysis import Analysis
from stallscope.api import Analysis as Analysed
from stallscope.api import analyse
from stallscope.api.analysis import AnalysisLike
from stallscope.api.frames import figures_of
from stallscope.charts.charts import named_charts
from stallscope.formatting.plain import plain
from stallscope.reports import report_formats
from stallscope.reports.report_formats import ReportOptions
from stallscope.reports.run import parts
from stallscope.text.verdicts import headline

# If the notebook blocks scripts, the report scrolls in a frame of this height.
_HEIGHT = 900

# The frame takes the notebook's colour scheme, and resizes with its content when parts of the report are
# unfolded. The report has no scripts, and the sandbox would block them.
_FIT = (
    "const frame=this,page=frame.contentDocument;"
    "let at=frame,ground='';"
    "for(;at&&!ground.startsWith('rgb(');at=at.parentElement)"
    "ground=getComputedStyle(at).backgroundColor;"
    "if(ground.startsWith('rgb(')){const sum=ground.match(/\\d+/g).reduce((a,b)=>a+Number(b),0);"
    "frame.style.colorScheme=sum<384?'dark':'light'}"
    "if(page){const fit=()=>{frame.style.height="
    "Math.ceil(page.documentElement.getBoundingClientRect().height)+'px'};"
    "fit();new ResizeObserver(fit).observe(page.documentElement)}"
)


@dataclass(frozen=True)
class Shown:
    """A run in a notebook cell, with its analysis."""

    analysis: Analysis

    def figures(self, *, dark: bool = False) -> list[go.Figure]:
        """Return the report's charts as Plotly figures, in the report's order.

        Args:
            dark: whether the notebook has a dark theme.
        """
        return [*figures_of(named_charts(self.analysis), dark=dark).values()]

    def _repr_html_(self) -> str:
        """Return the HTML report in a frame, which separates its styles from the notebook's."""
        options = ReportOptions(generated_at=datetime.now(UTC))
        page = report_formats.render("html", parts(self.analysis), options)
        title = escape(f"Stallscope report of {plain(self.analysis.run.name)}")
        return (
            f'<iframe title="{title}" sandbox="allow-same-origin" '
            f'style="width:100%;height:{_HEIGHT}px;border:0" '
            f'onload="{escape(_FIT)}" srcdoc="{escape(page)}"></iframe>'
        )

    def __repr__(self) -> str:
        analysis = self.analysis
        text = headline(analysis.bottleneck, analysis.stragglers)
        return f"{plain(analysis.run.name)}: {plain(text)}"


def show(run: AnalysisLike, baseline: AnalysisLike | None = None) -> Shown:
    """Show a run in a notebook cell: its report, and Plotly figures.

    Args:
        run: a run, its analysis, or what ``open_run`` takes.
        baseline: the same job on synthetic data, for a run that is not analysed yet.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if it cannot be read.
    """
    return Shown((run if isinstance(run, Analysed) else analyse(run, baseline))._analysis)
