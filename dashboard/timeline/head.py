"""Collect the data of a run that the timeline's script needs from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.views.lanes import BETWEEN, LANE_STAGES, Lanes
from stallscope.analysis.views.one_step import late_steps
from stallscope.charts.charts import TITLES
from stallscope.charts.palette import COLOURS, HEAT
from stallscope.formatting.numbers import amount, finite
from stallscope.formatting.plain import plain

from ..addresses import root_path, run_address, with_baseline
from .answer import gaps_between
from .gauges import Gauge, gauges_head
from .marks import Mark, marks_head
from .positions import end_of, start_of
from .route import ADDRESS

_S = 1e-9
# Columns of the strip that shows the whole run.
_STRIP = 480
# Late steps that the strip marks and that keys jump to.
_MOST_LATE = 2000
# Rows to show around the row in the address.
_AROUND = 8
_COLOURED = (*LANE_STAGES, "allreduce", "imbalance", *BETWEEN[1:])


def head(
    analysis: Analysis,
    lanes: Lanes,
    run_id: str,
    baseline_id: str | None,
    query: Mapping[str, str],
    events: Sequence[Mark] = (),
    gauges: Sequence[Gauge] = (),
) -> dict[str, Any]:
    """Return the data as JSON; ``query`` defines the first view."""
    named = {rank for one in analysis.stragglers for rank in one.ranks}
    named |= set(analysis.bottleneck.ranks)
    summaries = [analysis.ranks[position] for position in lanes.rows]
    names = dict.fromkeys(summary.host for summary in summaries)
    hosts = {host: number for number, host in enumerate(names)}
    return {
        "address": f"{root_path()}{ADDRESS}{quote(run_id, safe='')}",
        "baseline": baseline_id or "",
        "stepAddress": run_address(run_id, page="step/"),
        "search": with_baseline("", baseline_id),
        "span": lanes.span * _S,
        "count": len(lanes),
        "ranks": [summary.rank for summary in summaries],
        "hosts": [plain(host) for host in hosts],
        "hostOf": [hosts[summary.host] for summary in summaries],
        "named": [row for row, summary in enumerate(summaries) if summary.rank in named],
        "clock": [finite(summary.clock_uncertainty_ms) for summary in summaries],
        "lateFrom": lanes.late_from,
        "changes": _changes(analysis, lanes),
        "late": _late(analysis, lanes),
        "strip": _strip(lanes),
        "events": marks_head(events, lanes),
        "gauges": gauges_head(gauges),
        "shownGauge": _shown_gauge(gauges, query.get("gauge")),
        "gaps": gaps_between(lanes, 0, lanes.span, lanes.span // _STRIP),
        "stages": [*LANE_STAGES, "allreduce"],
        "between": list(BETWEEN),
        "colours": {name: list(COLOURS[name]) for name in (*_COLOURED, *ENTRIES)},
        "heat": [list(colour) for colour in HEAT],
        "titles": {name: TITLES[name] for name in (*_COLOURED, *ENTRIES)},
        **_first_view(lanes, query),
    }


def _first_view(lanes: Lanes, query: Mapping[str, str]) -> dict[str, Any]:
    start = start_of(lanes, query.get("from")) or 0
    end = end_of(lanes, query.get("to"))
    if end is None or end <= start:
        start, end = (start, lanes.span) if end is None else (0, lanes.span)
    row = _row(lanes, query.get("rank"))
    return {
        "view": [start * _S, end * _S],
        "rows": _rows(lanes, query.get("ranks"), row),
        "row": row,
        "show": "lateness" if query.get("show") == "lateness" else "stages",
    }


def _shown_gauge(gauges: Sequence[Gauge], key: str | None) -> int:
    """Return the index of the gauge with this key, or of the most important one."""
    keys = [gauge.quantity.key for gauge in gauges]
    return keys.index(key) if key in keys else 0


def _row(lanes: Lanes, rank: str | None) -> int | None:
    return (
        lanes.row_of(int(rank))
        if rank and rank.isascii() and rank.isdecimal() and len(rank) < 10
        else None
    )


def _rows(lanes: Lanes, ranks: str | None, row: int | None) -> list[int]:
    """Return the rows of a range of ranks; without one, those around a row, or all."""
    count = len(lanes.rows)
    ends = [_row(lanes, rank) for rank in (ranks or "").split("-")]
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and ends[0] <= ends[1]:
        return [ends[0], ends[1] + 1]
    if row is None or count <= 4 * _AROUND:
        return [0, count]
    first = min(max(row - _AROUND, 0), count - 2 * _AROUND)
    return [first, first + 2 * _AROUND]


def _changes(analysis: Analysis, lanes: Lanes) -> list[dict[str, Any]]:
    found = []
    for change in analysis.changes:
        at = np.flatnonzero(lanes.ledger.steps == change.step)
        if len(at):
            words = (
                f"Step {change.step:,}: {amount(change.before_ms, 'ms')} → "
                f"{amount(change.after_ms, 'ms')}"
            )
            found.append({"at": float(lanes.begin[at[-1]]) * _S, "words": words})
    return found


def _late(analysis: Analysis, lanes: Lanes) -> list[list[float]]:
    """Return start, end and last row of late steps in order; if there are many, of the latest."""
    at = late_steps(analysis)
    if len(at) > _MOST_LATE:
        at = np.sort(at[np.argpartition(lanes.ledger.imbalance[at], -_MOST_LATE)[-_MOST_LATE:]])
    rows = lanes.rows_of(lanes.ledger.critical[at])
    return [
        [float(lanes.begin[step]) * _S, float(lanes.end[step]) * _S, int(row)]
        for step, row in zip(at, rows, strict=True)
    ]


def _strip(lanes: Lanes) -> dict[str, Any]:
    """Return the ledger of the whole run: start, end, and mean of each entry (ms) per column."""
    ledger = lanes.ledger
    starts = np.unique(np.linspace(0, len(ledger), min(len(ledger), _STRIP) + 1).astype(np.int64))
    counts = np.diff(starts)
    entries = {
        name: np.round(np.add.reduceat(ledger.entry(name), starts[:-1]) / counts * 1e-6, 3).tolist()
        for name in ENTRIES
    }
    return {
        "begin": np.round(lanes.begin[starts[:-1]] * _S, 6).tolist(),
        "end": np.round(lanes.end[starts[1:] - 1] * _S, 6).tolist(),
        "entries": entries,
    }
