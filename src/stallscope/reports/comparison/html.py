"""HTML: one page that needs nothing else, neither network nor scripts."""

from __future__ import annotations

from typing import Any

from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import History
from stallscope.charts import comparison, history
from stallscope.charts.charts import Chart

from ..base import ReportOptions
from ..html import environment, picture_of
from . import histories
from .compared import Compared
from .contents import NOTHING_ELSE, changes_table, facts_table, runs_table
from .sentences import caveats, outcome, speedup


def html_text(compared: Compared, options: ReportOptions) -> str:
    template = environment().get_template("comparison.html.j2")
    sections = [] if compared.pair is None else [_pair(compared.pair)]
    sections += [_history(one, index) for index, one in enumerate(compared.histories)]
    return template.render(sections=sections, options=options)


def _pair(pair: Comparison) -> dict[str, Any]:
    words, sentence = outcome(pair)
    charts: list[Chart | None] = [comparison.ledgers_chart(pair), comparison.changes_chart(pair)]
    ratio = speedup(pair)
    tables = [runs_table(pair), changes_table(pair), facts_table(pair)]
    return {
        "badge": f"A: {pair.first.run.name}, B: {pair.second.run.name}",
        "headline": words,
        "sentences": [sentence, *([f"Throughput of B over A's: {ratio}."] if ratio else [])],
        "notes": [*caveats(pair), *([] if pair.differences else [NOTHING_ELSE])],
        "pictures": [picture_of(chart, f"pair-{at}") for at, chart in enumerate(charts) if chart],
        "tables": [table for table in tables if table is not None],
    }


def _history(own: History, index: int) -> dict[str, Any]:
    charts: list[Chart | None] = [*history.figure_charts(own), history.ledgers_chart(own)]
    tables = [
        histories.figures_table(own),
        histories.changes_table(own),
        histories.runs_table(own),
    ]
    return {
        "badge": histories.title(own),
        "headline": histories.headline(own),
        "sentences": histories.since(own),
        "notes": own.warnings,
        "pictures": [
            picture_of(chart, f"{index}-{at}") for at, chart in enumerate(charts) if chart
        ],
        "tables": [table for table in tables if table is not None],
    }
