"""Runs held against each other, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import History
from stallscope.formatting.plain import plain

from ..tables import Table
from . import histories
from .compared import Compared
from .contents import NOTHING_ELSE, changes_table, facts_table, runs_table
from .sentences import caveats, outcome, speedup

# The files have all of them.
_MOST_FACTS = 12
_LATEST_RUNS = 15


def comparison_summary(compared: Compared) -> RenderableType:
    """What changed, and what else differs. To be printed by a ``rich`` console."""
    parts: list[RenderableType] = [] if compared.pair is None else _pair(compared.pair)
    for number, one in enumerate(compared.histories):
        parts += [*([Text()] if number else []), *_history(one)]
    return Group(*parts)


def _pair(pair: Comparison) -> list[RenderableType]:
    words, sentence = outcome(pair)
    ratio = speedup(pair)
    said = [sentence, *([f"Throughput of B over A's: {ratio}."] if ratio else [])]
    parts: list[RenderableType] = [Text(words, style="bold"), *(Text(plain(text)) for text in said)]
    parts += [Text(f"! {plain(text)}", style="yellow") for text in caveats(pair)]
    parts += _shown(runs_table(pair), without=(2, 4))
    parts += _shown(changes_table(pair))
    facts = facts_table(pair)
    if facts is None:
        return [*parts, Text(NOTHING_ELSE)]
    return [*parts, *_shown(facts, first=_MOST_FACTS)]


def _history(history: History) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(plain(histories.title(history)), style="dim"),
        Text(plain(histories.headline(history)), style="bold"),
    ]
    parts += [Text(plain(text)) for text in histories.since(history)]
    parts += [Text(f"! {plain(text)}", style="yellow") for text in history.warnings]
    parts += _shown(histories.figures_table(history))
    parts += _shown(histories.runs_table(history), without=(2, 5), last=_LATEST_RUNS)
    return parts


def _shown(
    table: Table | None,
    without: Sequence[int] = (),
    first: int | None = None,
    last: int | None = None,
) -> list[RenderableType]:
    """A table that all formats have, without some columns, and its first or last rows only."""
    if table is None:
        return []
    columns = [at for at in range(len(table.columns)) if at not in without]
    grid = Grid(
        title=table.title,
        title_justify="left",
        box=box.SIMPLE,
        pad_edge=False,
        min_width=len(table.title),
    )
    for at in columns:
        words = at in table.words
        grid.add_column(
            table.columns[at],
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold",
        )
    begin = 0 if last is None else max(0, len(table.rows) - last)
    for at, row in enumerate(table.rows[:first]):
        if at >= begin:
            style = "bold" if at in table.emphasised else None
            grid.add_row(*(Text(plain(row[column])) for column in columns), style=style)
    left_out = len(table.rows) - len(grid.rows)
    return [grid, *([Text(f"and {left_out:,} more in the files", style="dim")] if left_out else [])]
