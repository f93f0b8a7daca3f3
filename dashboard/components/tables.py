"""Tables of an analysis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html

from stallscope.analysis import Analysis
from stallscope.analysis.result import LedgerEntry, RankSummary
from stallscope.wording.gains import gains
from stallscope.wording.verdicts import speedup, speedup_interval

from .aria import aria
from .numbers import interval, percent, plain, signed
from .swatch import named_swatch

# Beyond this a table scrolls in its own frame, so that what follows it stays near.
_TALLEST = 460
_TABLE_LOOK = {
    "tabularNums": True,
    "stickyHeader": True,
    "verticalSpacing": 6,
    "horizontalSpacing": 8,
}
_RANKS_HEAD = (
    "Rank",
    "Host",
    "Input",
    "Compute",
    "Other",
    "Wait",
    "Allreduce",
    "Last to be ready",
    "Clock offset",
)


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
    head = ["Entry", "ms", "Share", "95% interval, ms"]
    if analysis.baseline is not None:
        head += ["Baseline, ms", "Excess, ms"]
    rows = [_ledger_row(entry, analysis.baseline is not None) for entry in analysis.entries]
    return _small_table("Ledger", head, [*rows, _total_row(analysis)])


def ranks_table(analysis: Analysis) -> Any:
    """Every rank's own means, the named ones first."""
    named = set(analysis.bottleneck.ranks)
    ranks = sorted(analysis.ranks, key=lambda rank: (rank.rank not in named, rank.rank))
    # As data, not as a component per cell: a thousand ranks are quick.
    table = dmc.Table(
        data={
            "head": list(_RANKS_HEAD),
            "body": [_rank_row(rank, rank.rank in named) for rank in ranks],
        },
        **_TABLE_LOOK,
    )
    return _scroller("Ranks", table, text_columns=2)


def gains_table(analysis: Analysis) -> Any:
    """What fixing each thing gains, the most first."""
    rows = [
        [
            gain.title,
            plain(gain.what_if.saved_ms.value),
            html.Strong(speedup(gain.what_if)),
            speedup_interval(gain.what_if),
        ]
        for gain in gains(analysis)
    ]
    return _small_table("What fixing gains", ["Fix", "Saves, ms", "Speed-up", "95% interval"], rows)


def _small_table(label: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A table whose first column names the line and whose others are numbers."""
    table = dmc.Table(
        [
            dmc.TableThead(
                dmc.TableTr([dmc.TableTh(title, tableProps={"scope": "col"}) for title in head])
            ),
            dmc.TableTbody([_small_row(*row) for row in rows]),
        ],
        **_TABLE_LOOK,
    )
    return _scroller(label, table, text_columns=1)


def _small_row(name: Any, *cells: Any) -> Any:
    return dmc.TableTr(
        [
            dmc.TableTh(name, tableProps={"scope": "row"}, fw=400),
            *(dmc.TableTd(cell) for cell in cells),
        ]
    )


def _scroller(label: str, table: Any, *, text_columns: int) -> Any:
    """The table's own frame, which scrolls by keyboard, too."""
    return html.Div(
        table,
        className=f"scroller text-columns-{text_columns}",
        style={"maxHeight": f"{_TALLEST}px"},
        tabIndex=0,
        role="region",
        **aria(label=label),
    )


def _ledger_row(entry: LedgerEntry, with_baseline: bool) -> list[Any]:
    row = [
        named_swatch(entry.name),
        plain(entry.ms),
        percent(entry.share),
        interval(entry.ci95_ms),
    ]
    if with_baseline:
        row += [plain(entry.baseline_ms), signed(entry.excess_ms)]
    return row


def _total_row(analysis: Analysis) -> list[Any]:
    step = analysis.step
    if step is None:
        return ["Step"]
    row = ["Step", plain(step.mean), "100%", interval(step.ci95)]
    if analysis.baseline is not None:
        base = analysis.baseline.step
        row += (
            [plain(None), plain(None)]
            if base is None
            else [plain(base.mean), signed(step.mean - base.mean)]
        )
    return [html.Strong(cell) for cell in row]


def _rank_row(rank: RankSummary, named: bool) -> list[str]:
    uncertainty = plain(rank.clock_uncertainty_ms)
    return [
        f"{rank.rank} (slow)" if named else str(rank.rank),
        rank.host,
        plain(rank.input_ms),
        plain(rank.compute_ms),
        plain(rank.other_ms),
        plain(rank.wait_ms),
        plain(rank.allreduce_ms),
        percent(rank.critical_share),
        f"{signed(rank.clock_offset_ms)} ± {uncertainty}",
    ]
