"""Collect what the timeline's script needs from the start, and answer its requests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any
from urllib.parse import quote

import numpy as np
from dash import Dash
from flask import Request, Response, jsonify, request

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import GAPS
from stallscope.analysis.result import GenerationSummary
from stallscope.analysis.views.lanes import BETWEEN, LANE_STAGES, Lanes
from stallscope.analysis.views.one_step import PauseOnAxis, late_steps, pauses_on_axis
from stallscope.charts import COLOURS, HEAT
from stallscope.errors import NotFoundError, UsageError
from stallscope.formatting.numbers import amount, finite
from stallscope.formatting.plain import plain
from stallscope.text.job_words import generation_sentence
from stallscope.text.vocabulary import TITLES
from stallscope.words import PAUSES_IN_STEPS, RANK_PARTS, PauseInStep

from ..addresses import baseline_query, root_path, run_address
from ..security import message_and_status
from ..store import RunStore
from ..store.cache import arrangements_of, cached, free_tables, lanes_of
from .answer import answer, end_of, gaps_between, row_names, row_of, start_of
from .gauges import EventMark, Gauge, gauges_head, gauges_of, marks_head

_S = 1e-9
# Columns of the strip that shows the whole run.
_STRIP = 480
# Late steps that the strip marks and that keys jump to.
_MOST_LATE = 2000
# Pauses that lanes mark.
_MOST_PAUSES = 2000
# Rows to show around the row in the address.
_AROUND = 8
_COLOURED = (*LANE_STAGES, "allreduce", "imbalance", *BETWEEN[1:])

#: The path of the route; the run's id follows.
ADDRESS = "/timeline/"
# Larger screens get wider cells.
_MOST_COLUMNS = 4096
_MOST_LANES = 400
# Cells of all lanes together. A cell has 12 bytes, so answers stay below a megabyte.
_MOST_CELLS = 64_000
# Narrower cells cannot be distinguished.
_PIXELS_PER_CELL = 1.5
_FEWEST_CELLS = 16
_ROWS = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def head(
    analysis: Analysis,
    lanes: Lanes,
    run_id: str,
    baseline_id: str | None,
    query: Mapping[str, str],
    events: Sequence[EventMark] = (),
    gauges: Sequence[Gauge] = (),
) -> dict[str, Any]:
    """Return the data as JSON; ``query`` defines the first view."""
    hosts = {host: number for number, host in enumerate(dict.fromkeys(lanes.hosts))}
    arrangements = list(arrangements_of(analysis))
    by = query.get("by", "") if query.get("by") in arrangements else ""
    return {
        "address": f"{root_path()}{ADDRESS}{quote(run_id, safe='')}",
        "baseline": baseline_id or "",
        "stepAddress": run_address(run_id, page="step/"),
        "search": baseline_query(baseline_id),
        "span": lanes.span * _S,
        "count": len(lanes),
        "ranks": lanes.ranks,
        "rowNames": row_names(lanes),
        "arrangements": arrangements,
        "by": by,
        "hosts": [plain(host) for host in hosts],
        "hostOf": [hosts[host] for host in lanes.hosts],
        "generations": _generations(analysis, lanes),
        "named": _named(analysis, lanes),
        "clock": _clock(lanes),
        "lateFrom": lanes.late_from,
        "changes": _changes(analysis, lanes),
        "late": _late(lanes),
        "strip": _strip(lanes),
        "events": marks_head(events, lanes),
        "gauges": gauges_head(gauges),
        "shownGauge": _shown_gauge(gauges, query.get("gauge")),
        "pauses": _pauses(analysis, lanes, by),
        "pauseNames": [_names_of(kind) for kind in PAUSES_IN_STEPS],
        "gaps": gaps_between(lanes, 0, lanes.span, lanes.span // _STRIP),
        **_legend(lanes),
        "stages": [*LANE_STAGES, "allreduce"],
        "between": list(BETWEEN),
        "colours": {name: list(COLOURS[name]) for name in (*_COLOURED, *ENTRIES)},
        "heat": [list(colour) for colour in HEAT],
        "titles": {name: TITLES[name] for name in (*_COLOURED, *ENTRIES)},
        **_first_view(lanes, query),
    }


def _legend(lanes: Lanes) -> dict[str, Any]:
    """Return the names of the stages and gaps that the run has, and whether a cell is marked as late."""
    whole = lanes.view(0, lanes.span, (0, len(lanes.ranks)), 1, 1)
    measured: dict[str, bool] = {
        name: bool((stage > 0).any()) for name, stage in zip(LANE_STAGES, whole.stages, strict=True)
    }
    measured["allreduce"] = bool((whole.allreduce > 0).any())
    # The axis starts with a step: what came before it is not drawn.
    gaps = lanes.of_steps(lambda ledger: ledger.gaps)[1:]
    measured |= {name: bool(gaps[:, at].any()) for at, name in enumerate(GAPS)}
    return {
        "legend": [name for name in (*RANK_PARTS, *GAPS) if measured[name]],
        "anyLate": bool((whole.latest >= lanes.late_from).any()),
    }


def _first_view(lanes: Lanes, query: Mapping[str, str]) -> dict[str, Any]:
    start = start_of(lanes, query.get("from")) or 0
    end = end_of(lanes, query.get("to"))
    if end is None or end <= start:
        start, end = (start, lanes.span) if end is None else (0, lanes.span)
    row = row_of(lanes, query.get("rank"))
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


def _rows(lanes: Lanes, ranks: str | None, row: int | None) -> list[int]:
    """Return the rows of a range of ranks; without one, those around a row, or all."""
    count = len(lanes.ranks)
    ends = [row_of(lanes, rank) for rank in (ranks or "").split("-")]
    if len(ends) == 2 and ends[0] is not None and ends[1] is not None and ends[0] <= ends[1]:
        return [ends[0], ends[1] + 1]
    if row is None or count <= 4 * _AROUND:
        return [0, count]
    first = min(max(row - _AROUND, 0), count - 2 * _AROUND)
    return [first, first + 2 * _AROUND]


def _generations(analysis: Analysis, lanes: Lanes) -> list[dict[str, Any]]:
    """Return number, size, start, end and description of each generation; empty for a single one."""
    if len(lanes.generations) == 1:
        return []
    sentences = {
        generation.number: generation_sentence(generation) for generation in analysis.generations
    }
    return [
        {
            "number": generation.number,
            "size": generation.size,
            "begin": float(lanes.begin[start]) * _S,
            "end": float(lanes.end[end - 1]) * _S,
            "words": sentences[generation.number],
        }
        for generation, start, end in zip(
            lanes.generations, lanes.starts, lanes.starts[1:], strict=False
        )
    ]


def _named(analysis: Analysis, lanes: Lanes) -> list[int]:
    """Return the rows of ranks that are stragglers or in a verdict."""
    rows = {
        lanes.row_of(rank, at)
        for at, verdict in verdicts(analysis, lanes)
        for rank in (
            *verdict.bottleneck.ranks,
            *(r for straggler in verdict.stragglers for r in straggler.ranks),
        )
    }
    return sorted(row for row in rows if row is not None)


def verdicts(analysis: Analysis, lanes: Lanes) -> list[tuple[int, Analysis | GenerationSummary]]:
    """Return the run and its generations, which have verdicts and stragglers, with their positions.

    The run, with the verdict on the last generation, comes first.
    """
    position = {generation.number: index for index, generation in enumerate(lanes.generations)}
    generations = [
        (position[generation.number], generation)
        for generation in analysis.generations
        if generation.number in position
    ]
    return [
        (len(lanes.generations) - 1, analysis),
        *(generations if len(lanes.generations) > 1 else ()),
    ]


def _clock(lanes: Lanes) -> list[float | None]:
    """Return the uncertainty of each row's clock, in the last generation that has the row."""
    uncertainties: list[float | None] = [None] * len(lanes.ranks)
    for index, generation in enumerate(lanes.generations):
        for row, ms in zip(lanes.rows_of(index), generation.clock_uncertainty_ms, strict=True):
            uncertainties[row] = finite(ms)
    return uncertainties


def _changes(analysis: Analysis, lanes: Lanes) -> list[dict[str, Any]]:
    changes = {generation.number: generation.changes for generation in analysis.generations}
    jumps = []
    for start, generation in zip(lanes.starts, lanes.generations, strict=False):
        for change in changes.get(generation.number, ()):
            (at,) = np.flatnonzero(generation.ledger.steps == change.step)
            words = (
                f"Step {change.step:,}: {amount(change.before_ms, 'ms')} → "
                f"{amount(change.after_ms, 'ms')}"
            )
            jumps.append({"at": float(lanes.begin[start + at]) * _S, "words": words})
    return jumps


def _late(lanes: Lanes) -> list[list[float]]:
    """Return start, end and last row of late steps in order; if there are many, of the latest."""
    at = late_steps(lanes.generations)
    if len(at) > _MOST_LATE:
        imbalance = lanes.of_steps(lambda ledger: ledger.imbalance)
        at = np.sort(at[np.argpartition(imbalance[at], -_MOST_LATE)[-_MOST_LATE:]])
    return [
        [float(lanes.begin[step]) * _S, float(lanes.end[step]) * _S, int(row)]
        for step, row in zip(at, lanes.last_rows(at), strict=True)
    ]


def _pauses(analysis: Analysis, lanes: Lanes, by: str) -> list[list[float]]:
    """Return start, end, row and kind of pauses within steps; if there are many, of the longest."""
    pauses = cached(analysis, f"pauses by {by}", lambda: _longest_pauses(analysis, lanes))
    return [
        [pause.begin * _S, pause.end * _S, pause.row, PAUSES_IN_STEPS.index(pause.kind)]
        for pause in pauses
    ]


def _longest_pauses(analysis: Analysis, lanes: Lanes) -> list[PauseOnAxis]:
    pauses = pauses_on_axis(analysis.run, lanes, _MOST_PAUSES)
    free_tables(analysis)
    return pauses


def _names_of(kind: PauseInStep) -> list[str]:
    """Return the name of a pause, in the singular and in the plural."""
    name = "save" if kind == "saving" else kind.replace("_", " ")
    return [name, f"{name}s"]


def _strip(lanes: Lanes) -> dict[str, Any]:
    """Return the ledger of the whole run: start, end, and mean of each entry (ms) per column."""
    count = len(lanes)
    even = np.linspace(0, count, min(count, _STRIP) + 1).astype(np.int64)
    # No column has steps of two generations.
    starts = np.union1d(even, lanes.starts)
    counts = np.diff(starts)
    entries = {}
    for name in ENTRIES:
        per_step = lanes.of_steps(methodcaller("entry", name))
        means = np.add.reduceat(per_step, starts[:-1]) / counts * 1e-6
        entries[name] = np.round(means, 3).tolist()
    return {
        "begin": np.round(lanes.begin[starts[:-1]] * _S, 6).tolist(),
        "end": np.round(lanes.end[starts[1:] - 1] * _S, 6).tolist(),
        "entries": entries,
    }


# -- Serve parts of a run to the timeline's script ------------------------------------------------


def add_timeline_route(app: Dash, store: RunStore) -> None:
    """Add the route to an app's server."""

    def part(run_id: str) -> Response:
        try:
            return _response(_part(store, run_id, request))
        except Exception as error:
            text, status = message_and_status(error, f"a part of the timeline of run {run_id!r}")
            response = jsonify(error=text)
            response.status_code = status
            return response

    app.server.add_url_rule(f"{ADDRESS}<run_id>", "timeline", part, methods=["GET"])


def _part(store: RunStore, run_id: str, http: Request) -> bytes:
    """Encode the part of a run in view: seconds, rows, and the resolution of the screen."""
    from_s, until_s = _seconds(http, "begin"), _seconds(http, "end")
    if not from_s < until_s:
        raise UsageError("begin must be before end")
    rows = _ROWS.fullmatch(http.args.get("rows", ""))
    if rows is None or int(rows[1]) >= int(rows[2]):
        raise UsageError("rows must be two whole numbers, such as 0-8")
    shown, pixels = _whole(http, "lanes", _MOST_LANES), _whole(http, "columns", _MOST_COLUMNS)
    analysis = store.analysis(run_id, http.args.get("baseline") or None)
    lanes = lanes_of(analysis, http.args.get("by"))
    if lanes is None:
        raise NotFoundError(f"the stages of run {run_id!r} were not measured")
    start = max(0, min(round(from_s * 1e9), lanes.span - 1))
    end = min(max(round(until_s * 1e9), start + 1), lanes.span)
    first = min(int(rows[1]), len(lanes.ranks) - 1)
    last = max(min(int(rows[2]), len(lanes.ranks)), first + 1)
    cells = min(max(_FEWEST_CELLS, int(pixels / _PIXELS_PER_CELL)), _MOST_CELLS // shown)
    view = lanes.view(start, end, (first, last), shown, cells)
    key = http.args.get("gauge")
    gauge = _gauge(key, gauges_of(analysis, lanes)) if key else None
    return answer(lanes, start, end, pixels, view, gauge)


def _gauge(key: str, gauges: Sequence[Gauge]) -> Gauge:
    selected = next((gauge for gauge in gauges if gauge.quantity.key == key), None)
    if selected is None:
        raise NotFoundError(f"no machine measured {key!r} during this run")
    return selected


def _seconds(http: Request, name: str) -> float:
    try:
        value = float(http.args.get(name, ""))
    except ValueError:
        value = math.nan
    # Three centuries: more nanoseconds do not fit into 64 bits.
    if not abs(value) < 9e9:
        raise UsageError(f"{name} must be a number of seconds")
    return value


def _whole(http: Request, name: str, most: int) -> int:
    text = http.args.get(name, "")
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if value < 1:
        raise UsageError(f"{name} must be a whole number from 1 to {most}")
    return min(value, most)


def _response(body: bytes) -> Response:
    # Not compressed: noise does not get smaller, and gzip would take longer than everything else.
    response = Response(body, mimetype="application/octet-stream")
    response.headers["Cache-Control"] = "no-store"
    return response
