"""The address that the timeline's script asks for parts of a run."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dash import Dash
from flask import Request, Response, jsonify, request

from stallscope.analysis.views.lanes import Lanes
from stallscope.errors import NotFoundError, StallscopeError, UsageError

from ..store import RunStore
from .answer import answer
from .gauges import Gauge
from .lane_cache import gauges_of, lanes_of

_log = logging.getLogger(__name__)

#: Where the timeline's script asks; the run's id follows.
ADDRESS = "/timeline/"

# Larger screens get coarser cells.
_MOST_COLUMNS = 4096
_MOST_LANES = 400
# Cells of all lanes together: 12 bytes each, so that no answer has a megabyte.
_MOST_CELLS = 64_000
# Pixels below which cells cannot be distinguished.
_PIXELS_PER_CELL = 1.5
_FEWEST_CELLS = 16
_ROWS = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def add_timeline_route(app: Dash, store: RunStore) -> None:
    """Let an app's server answer the timeline's script."""

    def part(run_id: str) -> Response:
        try:
            return _answered(_part(store, run_id, request))
        except NotFoundError as error:
            return _refused(str(error), 404)
        except UsageError as error:
            return _refused(str(error), 400)
        except StallscopeError as error:
            return _refused(str(error), 500)
        except Exception:
            _log.exception("a part of the timeline of run %r failed", run_id)
            return _refused("Stallscope failed here; the terminal that it runs in shows where", 500)

    app.server.add_url_rule(f"{ADDRESS}<run_id>", "timeline", part, methods=["GET"])


@dataclass(frozen=True)
class _Asked:
    """What is looked at: seconds, rows, and how much of it the screen can show."""

    begin: float
    end: float
    rows: tuple[int, int]
    lanes: int
    columns: int
    #: The key of what machines measured; empty where nothing of it is looked at.
    gauge: str


def _part(store: RunStore, run_id: str, asked: Request) -> bytes:
    wanted = _asked(asked)
    baseline_id = asked.args.get("baseline") or None
    analysis = store.analysis(run_id, baseline_id)
    lanes = lanes_of(analysis)
    if lanes is None:
        raise NotFoundError(f"the stages of run {run_id!r} were not measured")
    begin = max(0, min(round(wanted.begin * 1e9), lanes.span - 1))
    end = min(max(round(wanted.end * 1e9), begin + 1), lanes.span)
    columns = max(_FEWEST_CELLS, int(wanted.columns / _PIXELS_PER_CELL))
    view = lanes.view(
        begin,
        end,
        _rows(wanted, lanes),
        wanted.lanes,
        min(columns, _MOST_CELLS // wanted.lanes),
    )
    gauge = _gauge(wanted.gauge, gauges_of(analysis, lanes)) if wanted.gauge else None
    return answer(lanes, begin, end, wanted.columns, view, gauge)


def _gauge(key: str, there: Sequence[Gauge]) -> Gauge:
    found = next((gauge for gauge in there if gauge.quantity.key == key), None)
    if found is None:
        raise NotFoundError(f"no machine has measured {key!r} while this run was under way")
    return found


def _asked(asked: Request) -> _Asked:
    begin, end = _seconds(asked, "begin"), _seconds(asked, "end")
    if not begin < end:
        raise UsageError("start must be before end")
    rows = _ROWS.fullmatch(asked.args.get("rows", ""))
    if rows is None or int(rows[1]) >= int(rows[2]):
        raise UsageError("rows are two whole numbers, such as 0-8")
    return _Asked(
        begin,
        end,
        (int(rows[1]), int(rows[2])),
        _whole(asked, "lanes", _MOST_LANES),
        _whole(asked, "columns", _MOST_COLUMNS),
        asked.args.get("gauge", ""),
    )


def _seconds(asked: Request, name: str) -> float:
    try:
        value = float(asked.args.get(name, ""))
    except ValueError:
        value = math.nan
    # A run of three centuries would not fit into its own nanoseconds.
    if not abs(value) < 9e9:
        raise UsageError(f"{name} is a number of seconds")
    return value


def _whole(asked: Request, name: str, most: int) -> int:
    text = asked.args.get(name, "")
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    if value < 1:
        raise UsageError(f"{name} is a whole number from 1 to {most}")
    return min(value, most)


def _rows(wanted: _Asked, lanes: Lanes) -> tuple[int, int]:
    count = len(lanes.rows)
    first = min(wanted.rows[0], count - 1)
    return first, max(min(wanted.rows[1], count), first + 1)


def _answered(body: bytes) -> Response:
    # As it is: noise does not get smaller, and gzip would take longer than all the rest.
    response = Response(body, mimetype="application/octet-stream")
    response.headers["Cache-Control"] = "no-store"
    return response


def _refused(why: str, status: int) -> Response:
    response = jsonify(error=why)
    response.status_code = status
    return response
