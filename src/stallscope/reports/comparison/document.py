"""The document on compared runs: a headline for each pair or history, with its charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import History

from ..document import Document, Listing, Section, Text, charts_section, sections_of
from . import histories
from .pair import NOTHING_ELSE, caveats, changes_table, facts_table, outcome, runs_table, speedup


@dataclass(frozen=True)
class Compared:
    """Either a pair or histories."""

    pair: Comparison | None = None
    histories: Sequence[History] = ()


def document(compared: Compared, form: str) -> Document:
    """Build the document for a format; a pair comes before histories."""
    sections = [] if compared.pair is None else [*_pair(compared.pair, form)]
    for one in compared.histories:
        sections += _history(one, form)
    return Document("Comparison", sections, "comparison")


def _pair(pair: Comparison, form: str) -> Iterator[Section]:
    title, sentence = outcome(pair)
    ratio = speedup(pair)
    sentences = [sentence, *([f"Throughput of B over A's: {ratio}."] if ratio else [])]
    yield Section(
        title,
        (*map(Text, sentences), *_caveats(caveats(pair))),
        style="headline",
        label=f"A: {pair.first.run.name}, B: {pair.second.run.name}",
    )
    if form == "html":
        from stallscope.charts.comparison import changes_chart, ledgers_chart

        yield from charts_section("Charts", [ledgers_chart(pair), changes_chart(pair)])
    facts = facts_table(pair)
    yield from sections_of(runs_table(pair), changes_table(pair), facts)
    if facts is None:
        yield Section("Other differences", (Text(NOTHING_ELSE),))


def _history(own: History, form: str) -> Iterator[Section]:
    yield Section(
        histories.headline(own),
        (*map(Text, histories.since(own)), *_caveats(own.warnings)),
        style="headline",
        label=histories.title(own),
    )
    if form == "html":
        from stallscope.charts.comparison import figure_charts, runs_chart

        yield from charts_section("Charts", [*figure_charts(own), runs_chart(own)])
    changes = None if form == "terminal" else histories.changes_table(own)
    yield from sections_of(histories.figures_table(own), changes, histories.runs_table(own))


def _caveats(sentences: Sequence[str]) -> list[Listing]:
    return [Listing(sentences, role="caveats")] if sentences else []
