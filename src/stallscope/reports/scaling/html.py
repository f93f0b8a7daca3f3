"""HTML: one page for all series that needs nothing else, neither network nor scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.analysis.scaling import Series
from stallscope.charts.charts import Chart
from stallscope.charts.scaling import efficiency_chart, rate_chart, steps_chart

from ..base import ReportOptions
from ..html import environment, picture_of
from .contents import difference, headline, lost_table, published_table, rates_table, title


def html_text(series: Sequence[Series], options: ReportOptions) -> str:
    template = environment().get_template("scaling.html.j2")
    shown = [_view(one, index) for index, one in enumerate(series)]
    return template.render(series=shown, published=published_table(), options=options)


def _view(series: Series, index: int) -> dict[str, Any]:
    charts: list[Chart | None] = [
        rate_chart(series),
        efficiency_chart(series),
        steps_chart(series),
    ]
    return {
        "title": title(series),
        "headline": headline(series),
        "difference": difference(series),
        "warnings": series.warnings,
        "pictures": [
            picture_of(chart, f"{index}-{at}") for at, chart in enumerate(charts) if chart
        ],
        "rates": rates_table(series),
        "lost": lost_table(series),
    }
