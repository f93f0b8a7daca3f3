"""Assign events, machine metrics and measurements in files next to logs to their runs.

Formats read events (``stallscope.run.Event``), machine metrics (``Series``) and measurements of loaders
(``MeasuredInput``) and of networks (``NetworkCheck``). ``Reading`` collects those of all files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from stallscope.formatting.lists import counted
from stallscope.run import Event, MeasuredInput, NetworkCheck, Problem, Run, Series

from ..lines.timestamps import zones_between

_HOUR_NS = 3_600 * 10**9
# Events also happen while a job starts and ends.
_MARGIN_NS = 600 * 10**9

#: The wall times of a run's first and last moment, nanoseconds; None if no log has UTC.
_Span = tuple[int, int] | None


def with_events(runs: Iterable[Run], events: Sequence[Event]) -> list[Run]:
    """Add to each run the events that belong to it.

    An event belongs to the run with logs in its folder; if there are several, to the one during which it
    happened. Events long before or after a run (in UTC) belong to no run.
    """
    runs = list(runs)
    if not events or not runs:
        return runs
    spans = [_span_of(run) for run in runs]
    for path in dict.fromkeys(event.where for event in events):
        file_events = [event for event in events if event.where == path]
        at = _run_of_events(path, file_events, runs, spans)
        if at is not None:
            runs[at] = _with_own(runs[at], path, _in_utc(file_events, spans[at]), spans[at])
        elif not _each_to_its_own(file_events, runs, spans):
            runs = [_with_problem(run, path, "describes events of an unknown run") for run in runs]
    return runs


def with_series(runs: Iterable[Run], all_series: Sequence[tuple[str, Series]]) -> list[Run]:
    """Add machine metrics to each run, from its first to its last moment.

    A series with the id of a run goes to it as a whole. Others go to the runs in their folder during
    which they were measured, or, if no run is there, to any such run.

    Args:
        runs: all runs.
        all_series: series with the ids of their runs.
    """
    runs = list(runs)
    for where in dict.fromkeys(series.where for _, series in all_series):
        file_series = [pair for pair in all_series if pair[1].where == where]
        numbers = _in_same_folder(where, runs) or range(len(runs))
        parts = {at: [_part(runs[at], *pair) for pair in file_series] for at in numbers}
        lost = [
            series
            for number, (_, series) in enumerate(file_series)
            if all(of_run[number] is None for of_run in parts.values())
        ]
        for at, of_run in parts.items():
            inside = [part for part in of_run if part is not None]
            runs[at] = replace(runs[at], series=(*runs[at].series, *inside))
            if lost:
                runs[at] = _with_problem(runs[at], where, _left_out(lost, runs[at]))
    return runs


def with_input_times(runs: Iterable[Run], measured: Sequence[MeasuredInput]) -> list[Run]:
    """Add measured loaders to their runs.

    A measurement belongs to the run with its id or its launch, or otherwise to the newest run in its
    folder with as many ranks and real data.
    """
    runs = list(runs)
    for measurement in measured:
        at = _run_of_measurement(measurement, runs)
        if at is not None:
            runs[at] = replace(runs[at], input_times=(*runs[at].input_times, measurement))
            continue
        what = (
            f"measured on {counted(measurement.size, 'rank')}, and no run of as many ranks is next to "
            "it; left alone"
        )
        runs = [_with_problem(run, measurement.path, what) for run in runs]
    return runs


def with_network_checks(runs: Iterable[Run], checks: Sequence[NetworkCheck]) -> list[Run]:
    """Add measured networks to their runs.

    A measurement belongs to the run with its id, or otherwise to the newest run in its folder. Without
    any, all runs get a problem.
    """
    all_runs = list(runs)
    for check in checks:
        numbers = [number for number, run in enumerate(all_runs) if run.id == check.run_id]
        numbers = numbers or _in_same_folder(check.path, all_runs)
        newest = max(numbers, key=lambda number: _began(all_runs[number]), default=None)
        if newest is None:
            what = "measured a network, and no run is in its folder; left alone"
            all_runs = [_with_problem(run, check.path, what) for run in all_runs]
            continue
        run = all_runs[newest]
        all_runs[newest] = replace(run, network_checks=(*run.network_checks, check))
    return all_runs


def _with_problem(run: Run, where: str, what: str) -> Run:
    return replace(run, problems=(*run.problems, Problem(where, what)))


def _in_same_folder(path: str, runs: Sequence[Run]) -> list[int]:
    """Return the numbers of the runs with logs in a file's folder."""
    folder = path.rpartition("/")[0]
    folders = [{log.path.rpartition("/")[0] for log in run.logs} for run in runs]
    return [number for number, of_run in enumerate(folders) if folder in of_run]


def _with_own(run: Run, path: str, events: Sequence[Event], span: _Span) -> Run:
    """Add the events within a run's time, as Spark's applications also do other work."""
    kept = [
        event
        for event in events
        if span is None or event.wall_ns is None or _holds(span, [event.wall_ns])
    ]
    if not kept:
        what = f"describes events outside the run's time: {counted(len(events), 'event')} left out"
        return _with_problem(run, path, what)
    return replace(run, events=(*run.events, *kept))


def _each_to_its_own(events: Sequence[Event], runs: list[Run], spans: Sequence[_Span]) -> bool:
    """Assign each event to the only run during which it happened; return whether there is any.

    A Spark application may train several models one after another, with one event log.
    """
    assigned = False
    for event in events:
        walls = [] if event.wall_ns is None else [event.wall_ns]
        inside = [at for at, span in enumerate(spans) if walls and _holds(span, walls)]
        exactly = [at for at in inside if _holds(spans[at], walls, margin=0)] or inside
        if len(exactly) == 1:
            (at,), assigned = exactly, True
            runs[at] = replace(runs[at], events=(*runs[at].events, event))
    return assigned


def _run_of_events(
    path: str, events: Sequence[Event], runs: Sequence[Run], spans: Sequence[_Span]
) -> int | None:
    # Launchers' output is often a folder above or below.
    candidates = _in_same_folder(path, runs) or list(range(len(runs)))
    if len(candidates) == 1:
        return candidates[0]
    walls = [event.wall_ns for event in events if event.wall_ns is not None]
    inside = [number for number in candidates if walls and _holds(spans[number], walls)]
    return inside[0] if len(inside) == 1 else None


def _in_utc(events: Sequence[Event], span: _Span) -> list[Event]:
    """Convert local timestamps to UTC, if exactly one zone puts all of them into the run."""
    local = [event.local_ns for event in events if event.local_ns is not None]
    if span is None or not local:
        return list(events)
    zones = zones_between(min(local), max(local), span[0] - _MARGIN_NS, span[1] + _MARGIN_NS)
    # The margin also admits neighbouring zones: prefer whole hours.
    likely = [zone for zone in zones if zone % _HOUR_NS == 0] or zones
    if len(likely) != 1:
        return list(events)
    return [
        event if event.local_ns is None else replace(event, wall_ns=event.local_ns - likely[0])
        for event in events
    ]


def _holds(span: _Span, walls: Iterable[int], margin: int = _MARGIN_NS) -> bool:
    return span is not None and all(span[0] - margin <= wall <= span[1] + margin for wall in walls)


def _span_of(run: Run) -> _Span:
    ends = [_last_by_log(table) for table in (run.steps, run.intervals)]
    walls: list[int] = []
    for index, log in enumerate(run.logs):
        if log.wall_minus_monotonic <= 0:
            continue
        moments = [log.anchor, *(last[index] for last in ends if index in last)]
        walls += [moment + log.wall_minus_monotonic for moment in moments]
    return (min(walls), max(walls)) if walls else None


def _last_by_log(table: pa.Table) -> dict[int, int]:
    """Return when the last row of each log ended."""
    last = table.group_by("log").aggregate([("end", "max")])
    pairs = zip(last["log"].to_pylist(), last["end_max"].to_pylist(), strict=True)
    return {log: end for log, end in pairs if end is not None}


def _part(run: Run, run_id: str, series: Series) -> Series | None:
    """Return the part of a series during a run, None if there is none."""
    if run_id == run.id:
        return series
    span = _span_of(run)
    if span is None:
        return None
    first = int(np.searchsorted(series.wall_ns, span[0], "left"))
    last = int(np.searchsorted(series.wall_ns, span[1], "right"))
    if first >= last:
        return None
    return replace(series, wall_ns=series.wall_ns[first:last], value=series.value[first:last])


def _left_out(lost: Sequence[Series], run: Run) -> str:
    first = min(int(series.wall_ns[0]) for series in lost)
    last = max(int(series.wall_ns[-1]) for series in lost)
    why = (
        "no log ties this run to wall time"
        if _span_of(run) is None
        else "by its ranks' clocks this run was not under way then"
    )
    span = f"from {_utc(first)} to {_utc(last)} UTC"
    return f"{len(lost):,} series of machine metrics {span} left out: {why}"


def _utc(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall // 10**9, UTC):%Y-%m-%d %H:%M:%S}"


def _run_of_measurement(measurement: MeasuredInput, runs: Sequence[Run]) -> int | None:
    for number, run in enumerate(runs):
        if measurement.run_id is not None and run.id == measurement.run_id:
            return number
    near = sorted(
        range(len(runs)), key=lambda number: abs(_began(runs[number]) - measurement.began)
    )
    for number in near:
        launches = {log.facts.get("launch") for log in runs[number].logs}
        if measurement.launch is not None and measurement.launch in launches:
            return number
    candidates = [
        number
        for number in _in_same_folder(measurement.path, runs)
        if runs[number].size == measurement.size and not runs[number].synthetic
    ]
    return max(candidates, key=lambda number: _began(runs[number]), default=None)


def _began(run: Run) -> int:
    return min(log.anchor + log.wall_minus_monotonic for log in run.logs)
