"""Tables of an analysis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.result import LedgerEntry, RankSummary
from stallscope.reports.tables import Table, clock
from stallscope.wording.cells import Cells
from stallscope.wording.fixes import saved, speedup, speedup_interval
from stallscope.wording.gains import gains
from stallscope.wording.numbers import percent, share

from .aria import aria
from .swatch import named_swatch

# Beyond this a table scrolls in its own frame, so that what follows it stays near.
_TALLEST = 460
#: How every table looks.
TABLE_LOOK = {
    "tabularNums": True,
    "stickyHeader": True,
    "verticalSpacing": 6,
    "horizontalSpacing": 8,
}
_RANK_STAGES = ("input", "compute", "other", "wait", "allreduce")
_RANK_TITLES = ("Input", "Compute", "Other", "Wait", "Allreduce")


def table_card(title: str, sentence: str, table: Any) -> Any:
    """A card with a table."""
    return dmc.Card(
        [
            dmc.Title(title, order=2, size="h4"),
            dmc.Text(sentence, c="dimmed", size="sm", mb="xs"),
            table,
        ],
        withBorder=True,
        h="100%",
    )


def ledger_table(analysis: Analysis) -> Any:
    """The ledger: means with intervals, and against the baseline where there is one."""
    cells = Cells.for_all([None if analysis.step is None else analysis.step.mean])
    head = ["Entry", cells.unit, "Share", f"95% interval, {cells.unit}"]
    if analysis.baseline is not None:
        head += [f"Baseline, {cells.unit}", f"Excess, {cells.unit}"]
    rows = [_ledger_row(entry, cells, analysis.baseline is not None) for entry in analysis.entries]
    return _small_table("Ledger", head, [*rows, _total_row(analysis, cells)])


def ranks_table(analysis: Analysis) -> Any:
    """Every rank's own means, the named ones first."""
    named = set(analysis.bottleneck.ranks)
    ranks = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    cells = Cells.for_all(getattr(rank, f"{name}_ms") for rank in ranks for name in _RANK_STAGES)
    titles = (f"{title}, {cells.unit}" for title in _RANK_TITLES)
    # As data, not as a component per cell: a thousand ranks are quick.
    table = dmc.Table(
        data={
            "head": ["Rank", "Host", *titles, "Last to be ready", "Clock offset, ms"],
            "body": [_rank_row(rank, cells, rank.rank in named) for rank in ranks],
        },
        **TABLE_LOOK,
    )
    return scroller("Ranks", table, words=range(2))


def gains_table(analysis: Analysis) -> Any:
    """What fixing each thing gains, the most first."""
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
    """A card with a table of the reports; None without one.

    Args:
        words: the table.
        addresses: of what each row is about; its second column leads there.
    """
    if words is None:
        return None
    return table_card(words.title, words.note, words_table(words, addresses))


def words_table(words: Table, addresses: Sequence[str] = ()) -> Any:
    """A table of the reports, without its card; arguments as of ``words_card``."""
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
    """A table whose first column names the line; some columns are words, the others numbers."""
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
    """The table's own frame, which scrolls by keyboard, too; ``words`` are its columns of text."""
    return html.Div(
        table,
        className=" ".join(["scroller", *(f"words-{column}" for column in sorted(words))]),
        style={"maxHeight": f"{_TALLEST}px"},
        tabIndex=0,
        role="region",
        **aria(label=label),
    )


def _ledger_row(entry: LedgerEntry, cells: Cells, with_baseline: bool) -> list[Any]:
    row = [
        named_swatch(entry.name),
        cells.plain(entry.ms),
        percent(entry.share),
        cells.ends(entry.ci95_ms),
    ]
    if with_baseline:
        row += [cells.plain(entry.baseline_ms), cells.excess(entry.excess_ms, entry.excess_ci95_ms)]
    return row


def _total_row(analysis: Analysis, cells: Cells) -> list[Any]:
    step = analysis.step
    if step is None:
        return ["Step"]
    row = ["Step", cells.plain(step.mean), "100%", cells.ends(step.ci95)]
    if analysis.baseline is not None:
        base = analysis.baseline.step
        excess = None if base is None else step.mean - base.mean
        row += [cells.plain(None if base is None else base.mean), cells.excess(excess)]
    return [html.Strong(cell) for cell in row]


def _rank_row(rank: RankSummary, cells: Cells, named: bool) -> list[str]:
    return [
        f"{rank.rank} (slow)" if named else str(rank.rank),
        rank.host,
        *(cells.plain(getattr(rank, f"{name}_ms")) for name in _RANK_STAGES),
        share(rank.critical_share),
        clock(rank),
    ]
