"""Draw charts as Plotly figures with a background, so that they are readable anywhere."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from stallscope.charts.charts import Chart
from stallscope.charts.palette import Colour
from stallscope.charts.plotly_figures import figure

_BACKGROUND = Colour("#ffffff", "#1b1f24")


def figures_of(charts: Mapping[str, Chart | None], *, dark: bool) -> dict[str, go.Figure]:
    """Draw charts by name.

    Args:
        charts: the charts; None if there is nothing to draw.
        dark: whether the page is dark.
    """
    background = _BACKGROUND.dark if dark else _BACKGROUND.light
    return {
        name: figure(chart, dark=dark).update_layout(paper_bgcolor=background)
        for name, chart in charts.items()
        if chart is not None
    }
