"""Markdown for pull requests."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import History

from ..base import ReportOptions
from ..markdown import escaped, table_lines
from . import histories
from .compared import Compared
from .contents import NOTHING_ELSE, changes_table, facts_table, runs_table
from .sentences import caveats, outcome, speedup


def markdown_text(compared: Compared, options: ReportOptions) -> str:
    parts = [] if compared.pair is None else [*_pair(compared.pair)]
    parts += [part for one in compared.histories for part in _history(one)]
    parts.append(
        f"<sub>Stallscope {escaped(options.version)}, {options.generated_at:%Y-%m-%d %H:%M} UTC.</sub>"
    )
    return "\n\n".join(parts) + "\n"


def _pair(pair: Comparison) -> Iterator[str]:
    words, sentence = outcome(pair)
    yield f"## {escaped(words)}"
    yield escaped(sentence)
    if speedup(pair):
        yield f"Throughput of B over A's: **{speedup(pair)}**"
    yield from _listed(caveats(pair))
    yield from table_lines(runs_table(pair))
    yield from table_lines(changes_table(pair))
    facts = facts_table(pair)
    yield from table_lines(facts)
    if facts is None:
        yield NOTHING_ELSE


def _history(history: History) -> Iterator[str]:
    yield f"## {escaped(histories.headline(history))}"
    yield escaped(histories.title(history))
    yield from _listed([*histories.since(history), *history.warnings])
    yield from table_lines(histories.figures_table(history))
    yield from table_lines(histories.changes_table(history))
    yield from table_lines(histories.runs_table(history))


def _listed(texts: list[str]) -> Iterator[str]:
    if texts:
        yield "\n".join(f"- {escaped(text)}" for text in texts)
