"""Compared runs as a document, as one object for programs, and as rows for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import Change, Comparison, Difference, SameWork
from stallscope.analysis.regression import Figure as FigureOverRuns
from stallscope.analysis.regression import History, Rerun
from stallscope.catalogue.entry import moment

from ..document import (
    LEFT_OUT,
    Document,
    Figure,
    Listing,
    Section,
    Text,
    charts_section,
    sections_of,
)
from ..report_formats import Content, ReportRecords, Row, content_of, fields_of, mean_cells
from . import histories
from .pair import (
    caveats,
    changes_table,
    compared_throughput,
    facts_table,
    nothing_else,
    outcome,
    runs_table,
)

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


@dataclass(frozen=True)
class Compared:
    """Either a pair or histories, with warnings about what is in none of their places' runs."""

    pair: Comparison | None = None
    histories: Sequence[History] = ()
    warnings: Sequence[str] = ()


def document(compared: Compared, form: str) -> Document:
    """Build the document for a format; a pair comes before histories."""
    sections = [] if compared.pair is None else [*_pair(compared.pair, form)]
    for history in compared.histories:
        sections += _history(history, form)
    if compared.warnings and form != "terminal":
        # The command prints them next to what the terminal shows.
        sections.append(Section(LEFT_OUT, (Listing(compared.warnings, role="caveats"),)))
    return Document("Comparison", sections, "comparison")


def _pair(pair: Comparison, form: str) -> Iterator[Section]:
    title, sentence = outcome(pair)
    sentences = filter(None, [sentence, compared_throughput(pair)])
    yield Section(
        title,
        (*map(Text, sentences), *_caveats(caveats(pair))),
        style="headline",
        label=f"A: {pair.first.run.name}, B: {pair.second.run.name}",
    )
    changes, facts = changes_table(pair), facts_table(pair)
    drawn = None
    if form == "html":
        # Other formats have no charts.
        from stallscope.charts.charts import changes_chart, ledgers_chart

        drawn = Figure.of(changes_chart(pair), changes)
        yield from charts_section("Charts", [Figure.of(ledgers_chart(pair)), drawn])
    yield from sections_of(runs_table(pair), changes if drawn is None else None, facts)
    if facts is None:
        yield Section("Other differences", (Text(nothing_else(pair)),))


def _history(history: History, form: str) -> Iterator[Section]:
    yield Section(
        histories.headline(history),
        (*map(Text, histories.since(history)), *_caveats(history.warnings)),
        style="headline",
        label=histories.title(history),
    )
    changes = None if form == "terminal" else histories.changes_table(history)
    figures, runs = histories.figures_table(history), histories.runs_table(history)
    if form != "html":
        yield from sections_of(figures, changes, runs)
        return
    from stallscope.charts.charts import figure_charts, runs_chart

    first, *others = figure_charts(history).values()
    by_cause = Figure.of(runs_chart(history), runs)
    over_the_runs = [Figure.of(first, figures, changes), *map(Figure.of, others)]
    yield from charts_section("Charts", [*over_the_runs, by_cause])
    yield from sections_of(runs if by_cause is None else None)


def _caveats(sentences: Sequence[str]) -> list[Listing]:
    return [Listing(sentences, role="caveats")] if sentences else []


# -- Compared runs for programs and spreadsheets: one object, and one row per run and figure --------


def json_content(compared: Compared) -> Content:
    """Return one object; unknown values are None."""
    pair = compared.pair
    return content_of(
        pair=None if pair is None else _pair_content(pair),
        histories=[_history_content(history) for history in compared.histories],
        warnings=[*compared.warnings],
    )


def _pair_content(pair: Comparison) -> dict[str, Any]:
    words, sentence = outcome(pair)
    return {
        "outcome": words,
        "sentence": sentence,
        "same_run": pair.same_run,
        "runs": [_run(pair.first), _run(pair.second)],
        "speedup": pair.speedup,
        "same_work": None if pair.same_work is None else _same_work(pair.same_work),
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


def _same_work(work: SameWork) -> dict[str, Any]:
    step = work.changes.step
    return {
        "unit": work.unit,
        "first_per_step": work.first.per_step,
        "second_per_step": work.second.per_step,
        "first_per_second": work.first.per_second,
        "second_per_second": work.second.per_second,
        "speedup": work.speedup,
        "more_than_noise": None if step is None else step.is_real,
        "step": None if step is None else _change(step),
        "by_cause": [_change(change) for change in work.changes.by_cause],
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


def _history_content(history: History) -> dict[str, Any]:
    run = history.runs[0].analysis.run
    return {
        "job": history.name,
        "size": run.size,
        "synthetic": run.synthetic,
        "headline": histories.headline(history),
        "runs": [
            {**_run(rerun.analysis), "differences": [*map(_difference, rerun.differences)]}
            for rerun in history.runs
        ],
        "figures": [_figure(figure, history.runs) for figure in history.figures],
        "warnings": history.warnings,
    }


def _figure(figure: FigureOverRuns, runs: Sequence[Rerun]) -> dict[str, Any]:
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
    """List the figures in milliseconds, and rates per second.

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
    work = pair.same_work
    if work is not None:
        figure, step = f"{work.unit}s_per_second", work.changes.step
        first, second = work.first.per_second, work.second.per_second
        yield {**_run_cells(1, pair.first), "figure": figure, **mean_cells(first)}
        row = {**_run_cells(2, pair.second), "figure": figure, **mean_cells(second)}
        is_real = None if step is None else step.is_real
        yield {**row, **mean_cells(second.minus(first), "by", "by_ci"), "found": is_real}


def _history_rows(history: History) -> Iterator[Row]:
    for figure in history.figures:
        for row in _figure_rows(figure, history):
            yield {"job": history.name, **row}


def _figure_rows(figure: FigureOverRuns, history: History) -> Iterator[Row]:
    changes = {change.run: change for change in figure.changes}
    for at, (run, mean) in enumerate(zip(history.runs, figure.values, strict=True)):
        row: Row = {**_run_cells(at + 1, run.analysis), "figure": figure.name, **mean_cells(mean)}
        if at in changes:
            row |= {**mean_cells(changes[at].by, "by", "by_ci"), "found": True}
        yield row


def _run_cells(number: int, analysis: Analysis) -> Row:
    return {"number": number, "run_id": analysis.run.id, "run": analysis.run.name}
