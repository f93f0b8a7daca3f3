"""Cards of one job's runs in order: how its steps changed, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.analysis.history.regression import History
from stallscope.charts.comparison import figure_charts, runs_chart
from stallscope.formatting.plain import plain
from stallscope.reports.comparison.histories import (
    changes_table,
    figures_table,
    headline,
    runs_table,
    since,
    title,
)

from .basics import outcome_card
from .chart_card import chart_card
from .notices import warnings_card
from .tables import text_table_card


def history_cards(history: History, index: int, addresses: Sequence[str]) -> list[Any]:
    """List the cards of one job, from the top down.

    Args:
        history: the job's runs.
        index: which of the page's jobs it is, from 0.
        addresses: where each of the runs is shown.
    """
    return [
        outcome_card(
            plain(headline(history)), map(plain, since(history)), label=plain(title(history))
        ),
        *(
            chart_card(f"over-runs-{index}-{name}", chart)
            for name, chart in figure_charts(history).items()
        ),
        text_table_card(figures_table(history)),
        text_table_card(changes_table(history)),
        chart_card(f"ledgers-{index}", runs_chart(history)),
        text_table_card(runs_table(history), addresses),
        warnings_card([plain(one) for one in history.warnings]),
    ]
