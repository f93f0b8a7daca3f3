"""Tables of an analysis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.figures import RankSummary
from stallscope.formatting.numbers import share
from stallscope.reports.document import Table
from stallscope.reports.run.tables import clock, rank_cells, step_unit
from stallscope.text.gains import gains, saved, speedup, speedup_interval

from .aria import aria
from .swatch import labelled_swatch

# Taller tables scroll in their own frame, so that what follows stays near.
_TALLEST = 460
#: The look of every table.
TABLE_LOOK = {
    "tabularNums": True,
    "stickyHeader": True,
    "verticalSpacing": 6,
    "horizontalSpacing": 8,
}
_RANK_TITLES = ("Input", "Compute", "Other", "Wait", "Allreduce")


def table_card(title: str, sentence: str, table: Any) -> Any:
    """Make a card with a table."""
    return dmc.Card(
        [
            dmc.Title(title, order=2, size="h4"),
            dmc.Text(sentence, c="dimmed", size="sm", mb="xs"),
            table,
        ],
        withBorder=True,
        h="100%",
    )


def sums_card(words: Table, names: Sequence[str]) -> Any:
    """Make a card with a ledger of the reports; ``names`` are its entries, shown in their colours."""
    rows: list[list[Any]] = [
        [labelled_swatch(name, row[0]), *row[1:]]
        for name, row in zip(names, words.rows, strict=False)
    ]
    rows += [[html.Strong(cell) for cell in row] for row in words.rows[len(names) :]]
    return table_card(
        words.title, words.note, _small_table(words.title, words.columns, rows, words.words)
    )


def ranks_table(analysis: Analysis) -> Any:
    """Tabulate every rank's own means, stragglers first."""
    named = set(analysis.bottleneck.ranks)
    ranks = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    titles = (f"{title}, {step_unit(analysis)}" for title in _RANK_TITLES)
    cells = rank_cells(analysis, ranks)
    # As data, not as a component per cell: a thousand ranks are quick.
    table = dmc.Table(
        data={
            "head": ["Rank", "Host", *titles, "Last to be ready", "Clock offset, ms"],
            "body": [
                _rank_row(rank, stages, rank.rank in named)
                for rank, stages in zip(ranks, cells, strict=True)
            ],
        },
        **TABLE_LOOK,
    )
    return scroller("Ranks", table, words=range(2))


def gains_table(analysis: Analysis) -> Any:
    """Tabulate potential gains, the largest first."""
    rows = [
        [
            gain.title,
            saved(gain.what_if),
            html.Strong(speedup(gain.what_if)),
            speedup_interval(gain.what_if),
        ]
        for gain in gains(analysis)
    ]
    return _small_table("Potential gains", ["Fix", "Saves", "Speed-up", "95% interval"], rows)


def words_card(words: Table | None, addresses: Sequence[str] = ()) -> Any:
    """Make a card with a table of the reports; None without one.

    Args:
        words: the table.
        addresses: of what each row is about; its second column leads there.
    """
    if words is None:
        return None
    return table_card(words.title, words.note, words_table(words, addresses))


def words_table(words: Table, addresses: Sequence[str] = ()) -> Any:
    """Make a table of the reports, without its card; arguments as of ``words_card``."""
    rows: list[Sequence[Any]] = [
        [html.Strong(cell) for cell in row] if index in words.emphasised else row
        for index, row in enumerate(words.rows)
    ]
    for index, address in enumerate(addresses):
        number, name, *rest = rows[index]
        rows[index] = [number, dmc.Anchor(name, href=address, refresh=False, inherit=True), *rest]
    return _small_table(words.title, words.columns, rows, words.words)


def _small_table(
    label: str,
    head: Sequence[str],
    rows: Sequence[Sequence[Any]],
    words: Collection[int] = frozenset({0}),
) -> Any:
    """Make a table whose first column names the row; some columns are words, the others numbers."""
    table = dmc.Table(
        [
            dmc.TableThead(
                dmc.TableTr([dmc.TableTh(title, tableProps={"scope": "col"}) for title in head])
            ),
            dmc.TableTbody([_small_row(*row) for row in rows]),
        ],
        **TABLE_LOOK,
    )
    return scroller(label, table, words=words)


def _small_row(name: Any, *cells: Any) -> Any:
    return dmc.TableTr(
        [
            dmc.TableTh(name, tableProps={"scope": "row"}, fw=400),
            *(dmc.TableTd(cell) for cell in cells),
        ]
    )


def scroller(label: str, table: Any, *, words: Collection[int]) -> Any:
    """Put a table into a frame that scrolls by keyboard, too; ``words`` are its columns of text."""
    return html.Div(
        table,
        className=" ".join(["scroller", *(f"words-{column}" for column in sorted(words))]),
        style={"maxHeight": f"{_TALLEST}px"},
        tabIndex=0,
        role="region",
        **aria(label=label),
    )


def _rank_row(rank: RankSummary, stages: Sequence[str], named: bool) -> list[str]:
    return [
        f"{rank.rank} (slow)" if named else str(rank.rank),
        rank.host,
        *stages,
        share(rank.critical_share),
        clock(rank),
    ]
