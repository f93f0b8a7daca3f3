"""Return events and measurements of machines, from logs other than step logs, as DataFrames."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stallscope.run import Event, Run
from stallscope.text.events import since_start_s, worst

from .frames import Columns, frame

_EVENTS: Columns = {
    "since_begin_s": "number",
    "at": "moment",
    "kind": "name",
    "what": "text",
    "ranks": "tuple",
    "hosts": "tuple",
    "lasted_s": "number",
    "uncertainty_s": "number",
    "log": "text",
}
_MACHINES: Columns = {
    "at": "moment",
    "since_begin_s": "number",
    "name": "name",
    "value": "number",
    "unit": "name",
    "node": "name",
    "rank": "count",
}


def events_frame(run: Run) -> pd.DataFrame:
    """Return the events in the order of time, those without a time last."""
    listed = worst(run.events, len(run.events))
    return frame((_event(event, run) for event in listed), _EVENTS)


def _event(event: Event, run: Run) -> dict[str, object]:
    return {
        "since_begin_s": since_start_s(event, run),
        "at": None if event.wall_ns is None else pd.Timestamp(event.wall_ns, tz="UTC"),
        "kind": event.kind,
        "what": event.what,
        "ranks": run.ranks_of(event),
        "hosts": event.hosts,
        "lasted_s": event.waited_ns / 1e9 or None,
        "uncertainty_s": event.uncertainty_ns / 1e9,
        "log": event.where,
    }


def machines_frame(run: Run) -> pd.DataFrame:
    """Return the measurements in long form, one series after the other."""
    lengths = [len(series.value) for series in run.series]
    if not sum(lengths):
        return frame((), _MACHINES)
    walls = np.concatenate([series.wall_ns for series in run.series])
    began = run.started_at
    start_ns = np.nan if began is None else began.timestamp() * 1e9
    named = frame(
        (vars(series) for series in run.series),
        {
            name: kind
            for name, kind in _MACHINES.items()
            if name in ("name", "unit", "node", "rank")
        },
    )
    repeated = named.take(np.repeat(np.arange(len(lengths)), lengths)).reset_index(drop=True)
    table = repeated.assign(
        at=pd.to_datetime(walls, utc=True).as_unit("ns"),
        since_begin_s=(walls - start_ns) / 1e9,
        value=np.concatenate([series.value for series in run.series]),
    )
    return table[[*_MACHINES]]
