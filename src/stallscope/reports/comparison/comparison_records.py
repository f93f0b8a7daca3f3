"""Compared runs for programs and spreadsheets: one object, and one row per run and figure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import Change, Comparison, Difference
from stallscope.analysis.regression import Figure, History, Rerun
from stallscope.catalogue.entry import moment

from ..parts import Content, ReportRecords, Row, content_of, fields_of, mean_cells
from .comparison_document import Compared
from .histories import headline
from .pair import caveats, outcome

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


def json_content(compared: Compared) -> Content:
    """Return one object; unknown values are None."""
    pair = compared.pair
    return content_of(
        pair=None if pair is None else _pair(pair),
        histories=[_history(history) for history in compared.histories],
        warnings=[*compared.warnings],
    )


def _pair(pair: Comparison) -> dict[str, Any]:
    words, sentence = outcome(pair)
    return {
        "outcome": words,
        "sentence": sentence,
        "same_run": pair.same_run,
        "runs": [_run(pair.first), _run(pair.second)],
        "speedup": pair.speedup,
        "step": None if pair.step is None else _change(pair.step),
        "by_cause": [_change(change) for change in pair.by_cause],
        "ledger": [_change(change) for change in pair.entries],
        "input_wait": None if pair.input_wait is None else _change(pair.input_wait),
        "differences": [_difference(difference) for difference in pair.differences],
        "caveats": caveats(pair),
    }


def _run(analysis: Analysis) -> dict[str, Any]:
    run = analysis.run
    return {
        **fields_of(run, "id name source size"),
        "steps": analysis.steps,
        "synthetic": run.synthetic,
        "started_at": moment(run.started_at),
        "goodput": None if analysis.goodput is None else analysis.goodput.fraction,
        "bottleneck": fields_of(analysis.bottleneck, "kind cause ranks hosts"),
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "name": change.name,
        "first_ms": change.first,
        "second_ms": change.second,
        "by_ms": change.by,
        "more_than_noise": change.is_real,
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "fact": difference.name,
        "first": _plain(difference.first),
        "second": _plain(difference.second),
    }


def _plain(value: Any) -> Any:
    """Convert a fact of a log to JSON."""
    return json.loads(json.dumps(value, default=str))


def _history(history: History) -> dict[str, Any]:
    run = history.runs[0].analysis.run
    return {
        "job": history.name,
        "size": run.size,
        "synthetic": run.synthetic,
        "headline": headline(history),
        "runs": [
            {**_run(rerun.analysis), "differences": [*map(_difference, rerun.differences)]}
            for rerun in history.runs
        ],
        "figures": [_figure(figure, history.runs) for figure in history.figures],
        "warnings": history.warnings,
    }


def _figure(figure: Figure, runs: Sequence[Rerun]) -> dict[str, Any]:
    trend = figure.trend
    return {
        "name": figure.name,
        "unit": figure.unit,
        "status": figure.status,
        "why": figure.why or None,
        "values": figure.values,
        "changes": [
            {**vars(change), "run_id": runs[change.run].analysis.run.id}
            for change in figure.changes
        ],
        "trend": None if trend is None else {"per_run": trend.per_run, "p": trend.p},
        "spread": figure.spread,
    }


def records(compared: Compared) -> ReportRecords:
    """List the figures in milliseconds and in samples per second.

    ``by`` is the difference to the first run of a pair, or to the level before a change.
    """
    pair = () if compared.pair is None else _pair_rows(compared.pair)
    return ReportRecords(
        COLUMNS, chain(pair, *(_history_rows(history) for history in compared.histories))
    )


def _pair_rows(pair: Comparison) -> Iterator[Row]:
    for change in (*pair.entries, *([] if pair.step is None else [pair.step])):
        yield {**_run_cells(1, pair.first), "figure": change.name, **mean_cells(change.first)}
        row: Row = {
            **_run_cells(2, pair.second),
            "figure": change.name,
            **mean_cells(change.second),
        }
        yield {**row, **mean_cells(change.by, "by", "by_ci"), "found": change.is_real}


def _history_rows(history: History) -> Iterator[Row]:
    for figure in history.figures:
        for row in _figure_rows(figure, history):
            yield {"job": history.name, **row}


def _figure_rows(figure: Figure, history: History) -> Iterator[Row]:
    changes = {change.run: change for change in figure.changes}
    for at, (run, mean) in enumerate(zip(history.runs, figure.values, strict=True)):
        row: Row = {**_run_cells(at + 1, run.analysis), "figure": figure.name, **mean_cells(mean)}
        if at in changes:
            row |= {**mean_cells(changes[at].by, "by", "by_ci"), "found": True}
        yield row


def _run_cells(number: int, analysis: Analysis) -> Row:
    return {"number": number, "run_id": analysis.run.id, "run": analysis.run.name}
