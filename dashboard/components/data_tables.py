"""Tables: those of the reports, and those of any number of rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.charts.axis import BOLD, text_width
from stallscope.reports.document import Table

from .basics import aria, card, labelled_swatch, link

#: The summary of a folded table with the numbers of the chart above it.
AS_A_TABLE = "As a table"

# Taller tables scroll in their own frame, so that the next card stays near.
_TALLEST = 460
# In longer tables, cells are data instead of components, which is fast for a thousand rows.
_MOST_NAMED_ROWS = 100
# On a phone, a table that is wider than its card shows the cells of a row one below the other. Longer
# tables scroll sideways in their frame, because their columns are compared. Pixels, as in the
# stylesheet: of the card, of a row's name at least, of other words that wrap, and beside a cell's text.
_PHONE_PX, _LEAST_NAME_PX, _LEAST_WORDS_PX, _BESIDE_PX = 334, 52, 80, 6
_PHONE_TEXT_PX, _MOST_STACKED = 13, 12
_LOOK = {
    "tabularNums": True,
    "stickyHeader": True,
    "verticalSpacing": 6,
    "horizontalSpacing": 8,
}


def text_table_card(
    table: Table | None, addresses: Sequence[str] = (), stages: Sequence[str] = ()
) -> Any:
    """Make a card with a table of the reports, like ``text_table``; None without one."""
    if table is None:
        return None
    return card(table.title, text_table(table, addresses, stages), note=table.note)


def folded(summary: str, *content: Any, is_open: bool = False) -> Any:
    """Fold components below a summary, which unfolds them by click or key."""
    opened: dict[str, Any] = {"open": True} if is_open else {}
    return html.Details([html.Summary(summary), *content], className="folded", **opened)


def folded_table(
    table: Table | None,
    summary: str | None = None,
    stages: Sequence[str] = (),
    *,
    is_open: bool = False,
) -> Any:
    """Fold a table of a report of any number of rows; None without one.

    Args:
        table: the table.
        summary: the text that stays visible, by default the table's title.
        stages: of the first rows, which are shown in the stages' colours.
        is_open: whether the table is unfolded at first.
    """
    if table is None:
        return None
    note = dmc.Text(table.note, c="dimmed", size="sm", mb="xs") if table.note else None
    return folded(summary or table.title, note, _any_table(table, stages), is_open=is_open)


def text_table(table: Table, addresses: Sequence[str] = (), stages: Sequence[str] = ()) -> Any:
    """Make a table of the reports, without its card.

    Args:
        table: the table.
        addresses: the target of each row's second column.
        stages: of the first rows, which are shown in the stages' colours.
    """
    rows: list[Sequence[Any]] = [
        [html.Strong(cell) for cell in row] if index in table.emphasised else row
        for index, row in enumerate(table.rows)
    ]
    for index, address in enumerate(addresses):
        number, name, *rest = rows[index]
        rows[index] = [number, link(name, address, inherit=True), *rest]
    for index, stage in enumerate(stages):
        name, *rest = rows[index]
        rows[index] = [labelled_swatch(stage, name), *rest]
    head = [dmc.TableTh(title, tableProps={"scope": "col"}) for title in table.columns]
    body = dmc.Table(
        [
            dmc.TableThead(dmc.TableTr(head)),
            dmc.TableTbody([_row(table.columns, row) for row in rows]),
        ],
        **_LOOK,
    )
    stacked = len(rows) <= _MOST_STACKED and _is_wider_than_a_phone(table)
    return _scroller(table.title, body, table.words, "stacked" if stacked else "")


def _row(columns: Sequence[str], row: Sequence[Any]) -> Any:
    """Make a row whose first cell names it; stacked cells show the titles of their columns."""
    heading = dmc.TableTh(row[0], tableProps={"scope": "row"}, fw=400)
    cells = [
        dmc.TableTd(cell, tableProps={"data-column": title})
        for title, cell in zip(columns[1:], row[1:], strict=True)
    ]
    return dmc.TableTr([heading, *cells])


def _is_wider_than_a_phone(table: Table) -> bool:
    """Estimate whether a table is too wide for a phone, where titles and columns of text wrap."""
    widths = []
    for at, title in enumerate(table.columns):
        cells = [row[at] for row in table.rows]
        parts = [word for cell in cells for word in cell.split()] if at in table.words else cells
        titles = [BOLD * text_width(word, _PHONE_TEXT_PX) for word in title.split()]
        texts = [text_width(cell, _PHONE_TEXT_PX) for cell in cells] if at in table.words else []
        # One word below the other is hard to read.
        least = min(max(texts, default=0.0), _LEAST_WORDS_PX)
        widths.append(max([least, *titles, *(text_width(part, _PHONE_TEXT_PX) for part in parts)]))
    widths[0] = max(widths[0], _LEAST_NAME_PX)
    return sum(widths) + _BESIDE_PX * len(widths) > _PHONE_PX


def data_card(
    title: str,
    note: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: int = 1,
    emphasised: Collection[int] = (),
) -> Any:
    """Make a card with a table of any number of rows.

    Args:
        title: of the card.
        note: a description of the table.
        head: the titles of the columns.
        rows: the cells.
        text_columns: the number of first columns with words; the others are numbers.
        emphasised: rows that stand out if there are few rows.
    """
    words = frozenset(range(text_columns))
    cells = tuple(tuple(row) for row in rows)
    return table_card(Table(title, tuple(head), cells, words, frozenset(emphasised), note))


def table_card(table: Table) -> Any:
    """Make a card with a table of a report, of any number of rows."""
    return card(table.title, _any_table(table), note=table.note)


def _any_table(table: Table, stages: Sequence[str] = ()) -> Any:
    """Make a table of a report, of any number of rows; ``stages`` as in ``text_table``."""
    if len(table.rows) <= _MOST_NAMED_ROWS:
        return text_table(table, stages=stages)
    return data_table(table.title, table.columns, table.rows, table.words)


def data_table(
    label: str, head: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[int]
) -> Any:
    """Make a table of any number of rows; ``words`` are its columns of text."""
    data = {"head": list(head), "body": [list(row) for row in rows]}
    return _scroller(label, dmc.Table(data=data, **_LOOK), words)


def _scroller(label: str, table: Any, words: Collection[int], look: str = "") -> Any:
    """Put a table into a frame that scrolls by keyboard, too.

    Args:
        label: the name of the frame.
        table: the table.
        words: the table's columns of text.
        look: a further class of the frame.
    """
    columns = (f"words-{column}" for column in sorted(words))
    return html.Div(
        table,
        className=" ".join(filter(None, ["scroller", look, *columns])),
        style={"maxHeight": f"{_TALLEST}px"},
        tabIndex=0,
        role="region",
        **aria(label=label),
    )
