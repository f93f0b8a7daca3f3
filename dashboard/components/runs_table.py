"""The table of runs: its columns, and its rows as the browser draws them (``assets/runs.js``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dash_ag_grid
from dash import html

from stallscope.analysis import ENTRIES
from stallscope.catalogue.entry import AnalysisSummary
from stallscope.charts import COLOURS
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import age, amount, finite, percent, significant
from stallscope.formatting.plain import plain
from stallscope.text.verdicts import reason, short_verdict
from stallscope.text.vocabulary import TITLES
from stallscope.words import CAUSES

from ..addresses import compare_address, run_address
from ..run_folder import is_recording
from ..store import ListedRun, RunListing

GRID = "runs-grid"
#: Rows that are sent at a time.
BLOCK = 100
# The stylesheet has the height of rows, which are higher on narrow screens.
_HEAD_PX = 40
# The height of the page above the table.
_ABOVE_PX = 204
_LEAST_PX = 320
# Statuses of runs that their rows mention.
_STATUSES = {"open": "no end in the logs", "running": "running", "failed": "failed"}
_WORDS, _NUMBERS = ["asc", "desc", None], ["desc", "asc", None]


def _column(name: str, title: str, **options: Any) -> dict[str, Any]:
    """Return a column; without a renderer it shows a field of the row as it is."""
    field = {} if "cellRenderer" in options else {"field": name}
    return {"colId": name, "headerName": title, **field, **options}


def _number_column(name: str, title: str, width: int, **options: Any) -> dict[str, Any]:
    look = {"type": "rightAligned", "cellClass": "run-number"}
    return _column(name, title, width=width, **look, **options)


def _text_column(name: str, title: str, flex: int, width: int, **options: Any) -> dict[str, Any]:
    return _column(name, title, flex=flex, minWidth=width, sortingOrder=_WORDS, **options)


_COLUMNS = (
    _text_column("name", "Run", 5, 150, cellRenderer="RunName"),
    _text_column("verdict", "Verdict", 5, 166, cellRenderer="RunVerdict"),
    _column("step", "Step time by cause", cellRenderer="RunStep", width=178),
    _number_column("throughput", "Samples/s", 104),
    _number_column("gap", "To baseline", 112),
    _column(
        "trend",
        "Trend",
        headerTooltip="Samples/s of the last runs of the same job, up to this one",
        cellRenderer="RunTrend",
        width=104,
        sortable=False,
    ),
    _number_column("ranks", "Ranks", 76),
    _number_column("age", "Age", 68, sortingOrder=_WORDS),
    _text_column("source", "Source", 2, 90, tooltipField="source", cellClass="run-quiet"),
)


def runs_table(number: int, sort: str = "", *, reverse: bool = False) -> Any:
    """Make the table of so many runs, which requests its rows itself."""
    order = {"sort": "desc" if reverse else "asc"}
    columns = [{**column, **(order if column["colId"] == sort else {})} for column in _COLUMNS]
    grid = dash_ag_grid.AgGrid(
        id=GRID,
        columnDefs=columns,
        rowModelType="infinite",
        getRowId="params.data.id",
        defaultColDef={
            "sortable": True,
            "resizable": True,
            "sortingOrder": _NUMBERS,
            "suppressHeaderMenuButton": True,
            "suppressMovable": True,
        },
        dashGridOptions={
            "headerHeight": _HEAD_PX,
            "rowSelection": {"mode": "multiRow", "headerCheckbox": False},
            "selectionColumnDef": {"width": 44, "pinned": None, "sortable": False},
            "cacheBlockSize": BLOCK,
            "maxBlocksInCache": 20,
            # The browser keeps one answer at a time.
            "maxConcurrentDatasourceRequests": 1,
            "blockLoadDebounceMillis": 10,
            # Drawing more rows delays the first ones.
            "infiniteInitialRowCount": 1,
            "rowBuffer": 3,
            # The page itself shows a hint.
            "suppressNoRowsOverlay": True,
            "animateRows": False,
            "tooltipShowDelay": 600,
            "enableCellTextSelection": True,
        },
        style={"height": _height(number), "width": "100%"},
    )
    return html.Div(grid, className="runs-grid", style=_colours())


def _goodput(summary: AnalysisSummary) -> str:
    return "" if summary.goodput is None else f"goodput {percent(summary.goodput)}"


def line_of(listing: RunListing, listed: ListedRun, now: datetime | None = None) -> dict[str, Any]:
    """Make a run's row of the table. All texts are plain text, never markup."""
    entry, summary = listed.entry, listed.entry.summary
    how_old = age(entry.began, now or datetime.now(UTC))
    throughput = _number(summary.samples_per_second)
    step = "" if summary.step_ms is None else amount(summary.step_ms, "ms")
    pace = f"{throughput}/s" if throughput else step and f"{step} per step"
    trend = listing.trend(listed)
    ranks = counted(entry.ranks, "rank") if entry.ranks else ""
    return {
        "id": listed.id,
        "href": run_address(listed.id, listing.baseline_of(listed)),
        "name": plain(entry.name),
        "synthetic": entry.synthetic,
        "about": plain(_about(listed)),
        # A phone breaks the line between figures only.
        "figures": " · ".join(
            figure.replace(" ", "\u00a0")
            for figure in (pace, _goodput(summary), ranks, how_old)
            if figure
        ),
        **_verdict(listed),
        "shares": _shares(summary.shares),
        "sharesText": ", ".join(
            f"{TITLES[name]} {percent(summary.shares[name])}" for name in _causes(summary.shares)
        ),
        "step": step,
        "throughput": throughput,
        "gap": _gap(listing.gap(listed)),
        "trend": trend,
        "trendText": _trend_text(trend),
        "trendHref": _trend_address(listing.reruns(listed)),
        "ranks": f"{entry.ranks:,}" if entry.ranks else "",
        "age": how_old,
        "source": plain(entry.source),
        "startedAt": entry.began or "",
    }


def _height(number: int) -> str:
    """Limit the table to the height of its rows and of the window."""
    lines = f"calc({_HEAD_PX + 4}px + {number} * var(--run-row))"
    return f"min({lines}, max({_LEAST_PX}px, calc(100vh - {_ABOVE_PX}px)))"


def _colours() -> dict[str, str]:
    """Give the stages' colours to the stylesheet."""
    return {f"--{name}": COLOURS[name].css for name in ENTRIES}


def _verdict(listed: ListedRun) -> dict[str, str]:
    if listed.verdict is not None:
        kind = listed.verdict.kind
        return {
            "verdict": short_verdict(listed.verdict),
            "why": reason(listed.verdict),
            # A colour stands for a fault.
            "stage": kind if listed.verdict.fault and kind in ENTRIES else "",
        }
    # Another version, or somebody else, may have written a word that this one does not know.
    unknown = listed.entry.summary.verdict or "not analysed"
    verdict = "…" if listed.is_pending else unknown
    return {"verdict": plain(listed.failure or verdict), "why": "", "stage": ""}


def _about(listed: ListedRun) -> str:
    entry = listed.entry
    facts = [
        entry.model,
        None if entry.id == entry.name or entry.id in entry.source else entry.id,
        None if len(entry.hosts) < 2 else counted(len(entry.hosts), "host"),
        _status(listed),
    ]
    return " · ".join(filter(None, facts)) or (
        counted(len(entry.hosts), "host") if entry.hosts else ""
    )


def _status(listed: ListedRun) -> str | None:
    if listed.source.logs_deleted(listed.id):
        return "logs deleted"
    status = listed.entry.status
    if status in ("open", "") and is_recording(listed.source.silence_s(listed.id)):
        return "recording"
    return _STATUSES.get(status)


def _causes(shares: Mapping[str, float]) -> list[str]:
    return [name for name in CAUSES if name in shares]


def _shares(shares: Mapping[str, float]) -> list[dict[str, Any]]:
    # Clock noise can make a small part negative; bars have no negative parts.
    return [{"name": name, "value": max(shares[name], 0.0)} for name in _causes(shares)]


def _number(value: float | None) -> str:
    known = finite(value)
    return "" if known is None else significant(known)


def _gap(lost: float | None) -> str:
    """Write −12.3% for a throughput below the baseline's."""
    if lost is None:
        return ""
    text = percent(-lost)
    return f"+{text}" if lost < 0 and text[0].isdigit() else text


def _trend_address(run_ids: Sequence[str]) -> str:
    return compare_address(*run_ids) if len(run_ids) > 1 else ""


def _trend_text(trend: list[float]) -> str:
    if not trend:
        return ""
    low, high, last = (significant(value) for value in (min(trend), max(trend), trend[-1]))
    return f"{len(trend)} runs of this job: {low} to {high} samples/s, this one {last}"
