"""CSV for spreadsheets: one row per run and figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain

from stallscope.analysis import Analysis
from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import Figure, History
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import finite

from ..base import ReportOptions
from ..csv_report import cell
from .compared import Compared

COLUMNS = (
    "job",
    "number",
    "run_id",
    "run",
    "figure",
    "value",
    "ci_low",
    "ci_high",
    "by",
    "by_ci_low",
    "by_ci_high",
    "found",
)

Row = dict[str, str | int | float | bool | None]


def csv_text(compared: Compared, _options: ReportOptions) -> str:
    """Milliseconds, and samples per second. ``by`` is what a figure differs by from the first run of a
    pair, or from the level before where it changed; cells of what is not known are empty.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    pair = () if compared.pair is None else _pair(compared.pair)
    writer.writerows(chain(pair, *(_history(one) for one in compared.histories)))
    return text.getvalue()


def _pair(pair: Comparison) -> Iterator[Row]:
    changes = [*pair.entries, *([] if pair.step is None else [pair.step])]
    for change in changes:
        yield {**_run(1, pair.first), "figure": change.name, **_mean(change.first)}
        row: Row = {**_run(2, pair.second), "figure": change.name, **_mean(change.second)}
        yield {**row, **_by(change.by), "found": change.is_real}


def _history(history: History) -> Iterator[Row]:
    for figure in history.figures:
        for row in _figure(figure, history):
            yield {"job": cell(history.name), **row}


def _figure(figure: Figure, history: History) -> Iterator[Row]:
    changes = {change.run: change for change in figure.changes}
    for at, (run, mean) in enumerate(zip(history.runs, figure.values, strict=True)):
        row: Row = {**_run(at + 1, run.analysis), "figure": figure.name}
        row |= {} if mean is None else _mean(mean)
        if at in changes:
            row |= {**_by(changes[at].by), "found": True}
        yield row


def _run(number: int, analysis: Analysis) -> Row:
    return {"number": number, "run_id": cell(analysis.run.id), "run": cell(analysis.run.name)}


def _mean(mean: Mean) -> Row:
    low, high = mean.ci95 or (None, None)
    return {"value": finite(mean.value), "ci_low": finite(low), "ci_high": finite(high)}


def _by(mean: Mean) -> Row:
    return {f"by_{name}".removesuffix("_value"): value for name, value in _mean(mean).items()}
