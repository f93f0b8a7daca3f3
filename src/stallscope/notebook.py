"""A run in a notebook: Jupyter, Databricks, and whatever else shows HTML. No server is needed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from os import PathLike, fspath

import plotly.graph_objects as go

from stallscope.analysis import Analysis, analyse
from stallscope.charts.charts import charts_of
from stallscope.charts.palette import Colour
from stallscope.charts.plotly_figures import figure
from stallscope.formatting.plain import plain
from stallscope.reports import registry
from stallscope.reports.base import ReportOptions
from stallscope.reports.run import parts
from stallscope.run import Run
from stallscope.runs import open_run
from stallscope.text.verdicts import headline

# Where the notebook lets no handler run, the report scrolls in a frame of this height.
_HEIGHT = 900

# Figures have a ground of their own: a light one is read on a dark page, too.
_GROUND = Colour("#ffffff", "#1b1f24")

# The frame is light or dark as the notebook around it is, whatever the system is. It grows with what is
# in it, also when a part of the report is unfolded. The report itself has no scripts, and the sandbox
# would let none run.
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
    """What a cell shows of a run, and what was found."""

    analysis: Analysis

    def figures(self, *, dark: bool = False) -> list[go.Figure]:
        """The report's pictures as Plotly figures, in its order.

        Args:
            dark: whether the notebook's pages are dark.
        """
        ground = _GROUND.dark if dark else _GROUND.light
        return [
            figure(chart, dark=dark).update_layout(paper_bgcolor=ground)
            for chart in charts_of(self.analysis)
        ]

    def _repr_html_(self) -> str:
        """The HTML report in a frame of its own: its styles and the notebook's stay apart."""
        options = ReportOptions(generated_at=datetime.now(UTC))
        page = registry.render("html", parts(self.analysis), options)
        title = escape(f"Stallscope report of {plain(self.analysis.run.name)}")
        return (
            f'<iframe title="{title}" sandbox="allow-same-origin" '
            f'style="width:100%;height:{_HEIGHT}px;border:0" '
            f'onload="{escape(_FIT)}" srcdoc="{escape(page)}"></iframe>'
        )

    def __repr__(self) -> str:
        analysis = self.analysis
        said = headline(analysis.bottleneck, analysis.stragglers)
        return f"{plain(analysis.run.name)}: {plain(said)}"


def shown(
    run: Run | str | PathLike[str], baseline: Run | str | PathLike[str] | None = None
) -> Shown:
    """Analyse a run for a cell: ``stallscope.show``.

    Raises:
        NotFoundError: if nothing is there.
        UnreadableError: if it cannot be read.
    """
    return Shown(analyse(_opened(run), None if baseline is None else _opened(baseline)))


def _opened(run: Run | str | PathLike[str]) -> Run:
    return run if isinstance(run, Run) else open_run(fspath(run))
