"""Serve parts of a run to the timeline's script."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dash import Dash
from flask import Request, Response, jsonify, request

from stallscope.errors import NotFoundError, UsageError

from ..http_errors import message_and_status
from ..store import RunStore
from ..store.page_cache import lanes_of
from .answer import answer
from .gauges import Gauge, gauges_of

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
    lanes = lanes_of(analysis)
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
    found = next((gauge for gauge in gauges if gauge.quantity.key == key), None)
    if found is None:
        raise NotFoundError(f"no machine measured {key!r} during this run")
    return found


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
