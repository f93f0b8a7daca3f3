"""Which settings to fix, for a terminal of 80 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from stallscope.analysis.tuning import TimelineSays, Tuned, Tuning
from stallscope.formatting.plain import plain

from .contents import headline, sentences, timeline_figures, timeline_headline, tried_table
from .passing import commands, environment

_MOST_SETTINGS = 8


def tuning_summary(tuning: Tuning) -> RenderableType:
    """Every autotune log and Timeline. To be printed by a ``rich`` console."""
    parts: list[RenderableType] = []
    for one in tuning.tuned:
        parts += [*_tuned(one), Text()]
    for name, says in tuning.timelines:
        parts += [*_timeline(name, says), Text()]
    parts += [Text(f"! {plain(text)}", style="yellow") for text in tuning.warnings]
    return Group(*parts)


def _tuned(one: Tuned) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(plain(one.name), style="dim", overflow="fold"),
        Text(plain(headline(one)), style="bold"),
        *(Text(plain(text)) for text in sentences(one)),
    ]
    if one.verdict != "leave" and one.setting is not None:
        parts += [Text(), Text("\n".join(environment(one)), style="green")]
        for launcher, text in commands(one).items():
            parts += [Text(), Text(f"{launcher}:", style="dim"), Text(text)]
    table = _drawn(one)
    return [*parts, Text(), table] if table is not None else parts


def _drawn(one: Tuned) -> Grid | None:
    words = tried_table(one, _MOST_SETTINGS)
    if words is None:
        return None
    grid = Grid(
        title=words.title,
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for index in range(len(words.columns)):
        grid.add_column(justify="left" if index in words.words else "right")
    grid.add_row(*words.columns, style="dim")
    for row in words.rows:
        grid.add_row(*(Text(plain(cell)) for cell in row))
    if len(one.tried) > len(words.rows):
        grid.add_row(f"+{len(one.tried) - len(words.rows)}")
    return grid


def _timeline(name: str, says: TimelineSays) -> list[RenderableType]:
    figures = "; ".join(f"{title}: {text}" for title, text in timeline_figures(says))
    return [
        Text(plain(name), style="dim", overflow="fold"),
        Text(timeline_headline(says), style="bold"),
        Text(figures),
        *(Text(f"→ {plain(str(piece))}") for piece in says.advice),
        *([Text(says.cannot_name)] if says.cannot_name else []),
    ]
