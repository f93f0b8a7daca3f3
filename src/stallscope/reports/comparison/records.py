"""The figures of compared runs for spreadsheets: one row per run and figure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stallscope.analysis import Analysis
from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import Figure, History

from ..base import Records, Row, mean_cells
from .document import Compared

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


def records(compared: Compared) -> Records:
    """List the figures in milliseconds and in samples per second.

    ``by`` is the difference to the first run of a pair, or to the level before a change.
    """
    pair = () if compared.pair is None else _pair(compared.pair)
    return Records(COLUMNS, chain(pair, *(_history(one) for one in compared.histories)))


def _pair(pair: Comparison) -> Iterator[Row]:
    for change in (*pair.entries, *([] if pair.step is None else [pair.step])):
        yield {**_run(1, pair.first), "figure": change.name, **mean_cells(change.first)}
        row: Row = {**_run(2, pair.second), "figure": change.name, **mean_cells(change.second)}
        yield {**row, **mean_cells(change.by, "by", "by_ci"), "found": change.is_real}


def _history(history: History) -> Iterator[Row]:
    for figure in history.figures:
        for row in _figure(figure, history):
            yield {"job": history.name, **row}


def _figure(figure: Figure, history: History) -> Iterator[Row]:
    changes = {change.run: change for change in figure.changes}
    for at, (run, mean) in enumerate(zip(history.runs, figure.values, strict=True)):
        row: Row = {**_run(at + 1, run.analysis), "figure": figure.name, **mean_cells(mean)}
        if at in changes:
            row |= {**mean_cells(changes[at].by, "by", "by_ci"), "found": True}
        yield row


def _run(number: int, analysis: Analysis) -> Row:
    return {"number": number, "run_id": analysis.run.id, "run": analysis.run.name}
