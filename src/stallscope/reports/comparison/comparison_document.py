"""The document on compared runs: a headline for each pair or history, with its charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallscope.analysis.comparison import Comparison
from stallscope.analysis.regression import History

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
from . import histories
from .pair import caveats, changes_table, facts_table, nothing_else, outcome, runs_table, throughput


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
    sentences = filter(None, [sentence, throughput(pair)])
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
