"""A document in a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from rich import box
from rich import table as grids
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.text import Text as Line

from stallscope.analysis.gains.what_if import Advice, in_words
from stallscope.charts import COLOURS
from stallscope.formatting.plain import plain

from ..document import (
    Cell,
    CellBar,
    Code,
    Document,
    DocumentBlock,
    Findings,
    KeyFigures,
    Listing,
    Section,
    Steps,
    Table,
    Text,
)

# Colours of the verdict's border, by its status.
_BORDERS = {"neutral": "default", "warning": "yellow", "error": "red"}
_NAME = "terminal"
_BAR = 22
_SHADED = "▒"
_MOST_TITLE = 70
# The titles of such findings do not say which steps became faster, and how much is padding.
_UNCLEAR_ALONE = frozenset({"step_time_changed", "padding"})
_SEVERITIES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def terminal_summary(document: Document) -> RenderableType:
    """Draw the document for a ``rich`` console at least 80 columns wide."""
    spaced: list[RenderableType] = []
    for section in document.sections:
        drawn = _verdict(document, section) if section.style == "verdict" else _section(section)
        spaced += [drawn, Line()]
    return Group(*spaced)


def _verdict(document: Document, section: Section) -> Panel:
    evidence, *others = section.blocks
    title = Line(plain(f"{document.title}: {section.label}"))
    title.truncate(_MOST_TITLE, overflow="ellipsis")
    lines = [Line(plain(section.title), style="bold"), *_drawn(evidence), Line()]
    return Panel(
        Group(*lines, *(line for block in others for line in _drawn(block))),
        title=title,
        title_align="left",
        border_style=_BORDERS[section.status],
        box=box.ROUNDED,
    )


def _section(section: Section) -> RenderableType:
    lines: list[RenderableType] = []
    if section.label:
        lines.append(Line(plain(section.label), style="dim", overflow="fold"))
    named = (isinstance(block, Table) and block.title == section.title for block in section.blocks)
    if section.title and not any(named):
        lines.append(Line(plain(section.title), style="bold"))
    return Group(*lines, *(line for block in section.blocks for line in _drawn(block)))


def _drawn(block: DocumentBlock) -> Iterator[RenderableType]:
    return _DRAWERS[type(block)](block)


def _text(text: Text) -> Iterator[Line]:
    style = "dim" if text.note else ""
    yield Line.assemble((plain(text.lead), "bold"), plain(text.text), style=style)


def _listing(listing: Listing) -> Iterator[RenderableType]:
    most = listing.most.get(_NAME)
    items = listing.items[:most]
    if listing.role == "caveats":
        yield from (Line(f"! {plain(item)}", style="yellow") for item in items)
    else:
        yield from (Line(plain(item)) for item in items)
    yield from _left_out(len(listing.items) - len(items))


def _steps(steps: Steps) -> Iterator[grids.Table]:
    grid = grids.Table.grid(padding=(0, 1, 0, 0))
    for advice in steps.items:
        grid.add_row("→", Group(*_advice(advice)))
    yield grid


def _advice(advice: Advice) -> Iterator[Line]:
    reason = f"{advice.reason} " if advice.reason else ""
    yield Line.assemble(plain(reason), (plain(advice.emphasised), "bold"), plain(advice.rest))
    if advice.line:
        yield Line(plain(advice.line), style="green", overflow="fold")
    if advice.caveat:
        yield Line(plain(advice.caveat), style="dim")


def _left_out(count: int) -> Iterator[Line]:
    if count:
        yield Line(f"and {count:,} more", style="dim")


def _key_figures(block: KeyFigures) -> Iterator[grids.Table]:
    grid = grids.Table.grid(padding=(0, 2, 0, 0))
    for figure in block.figures:
        grid.add_row(Line(f"{plain(figure.name)}:", style="bold"), Line(plain(figure.text)))
    yield grid


def _code(code: Code) -> Iterator[Line]:
    yield Line()
    if code.title:
        yield Line(f"{code.title}:", style="dim")
    yield Line(code.text, style="green")


def _findings(findings: Findings) -> Iterator[Line]:
    for finding in findings.items:
        mark = Line(f"{finding.severity}: ", style=_SEVERITIES[finding.severity])
        # Reports as files have the evidence of minor findings.
        left_out = finding.severity == "info" and finding.code not in _UNCLEAR_ALONE
        evidence = "" if left_out else f"{finding.evidence} "
        yield mark + Line(plain(f"{finding.title}. {evidence}{in_words(finding.advice)}"))


def _table(table: Table) -> Iterator[RenderableType]:
    """Draw a table without its note, limited to the columns and rows that fit a terminal."""
    grid = grids.Table(
        title=plain(table.title),
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        min_width=len(table.title),
    )
    columns = table.shown_columns(_NAME)
    for at in columns:
        in_words = at in table.words
        grid.add_column(
            justify="left" if in_words else "right", no_wrap=not in_words, overflow="fold"
        )
    if any(table.columns):
        grid.add_row(*(table.columns[at] for at in columns), style="dim")
    rows = table.shown_rows(_NAME)
    for at in rows:
        style = "bold" if at in table.emphasised else None
        grid.add_row(*(_cell(table.rows[at][column]) for column in columns), style=style)
    yield grid
    yield from _left_out(len(table.rows) - len(rows))


def _cell(cell: str) -> Line:
    bar = cell.bar if isinstance(cell, Cell) else None
    return Line(plain(cell)) if bar is None else _bar(bar)


def _bar(bar: CellBar) -> Line:
    """Draw the parts of a bar as blocks; even the shortest bar is visible."""
    drawn = Line()
    for name, share in bar.parts:
        end = round(max(share, 0.0) * _BAR)
        shaded = min(end, round(bar.shaded * _BAR))
        blocks = "█" * (end - shaded) + _SHADED * shaded or ("▏" if share > 0 else "")
        drawn.append(blocks, style=COLOURS[name].light)
    return drawn


_DRAWERS: dict[type[DocumentBlock], Callable[[Any], Iterator[RenderableType]]] = {
    Text: _text,
    Listing: _listing,
    Steps: _steps,
    KeyFigures: _key_figures,
    Findings: _findings,
    Table: _table,
    Code: _code,
}
