"""Assign events in other logs to the runs during which they happened.

A format reads events (``stallscope.run.Event``) from a file, ``Reading`` collects those of all files,
and this module assigns each one to its run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa

from stallscope.run import Event, Problem, Run

# Zones are a quarter of an hour apart, from UTC-12 to UTC+14.
_QUARTER_NS = 900 * 10**9
_ZONES = range(-48, 57)
# Events also happen while a job starts and ends.
_MARGIN_NS = 600 * 10**9


def with_events(runs: Iterable[Run], events: Sequence[Event]) -> list[Run]:
    """Add to each run the events that belong to it.

    An event belongs to the run with logs in its folder; of several, to the one during which it happened.
    Events with UTC times long before or after the run belong to none.
    """
    runs = list(runs)
    if not events or not runs:
        return runs
    spans = [span_of(run) for run in runs]
    for path in dict.fromkeys(event.where for event in events):
        own = [event for event in events if event.where == path]
        at = _run_of(path, own, runs, spans)
        if at is None and _each_to_its_own(own, runs, spans):
            continue
        if at is None:
            problem = Problem(path, "describes events of an unknown run")
            runs = [replace(run, problems=(*run.problems, problem)) for run in runs]
        else:
            runs[at] = _with_own(runs[at], path, _in_utc(own, spans[at]), spans[at])
    return runs


def _with_own(run: Run, path: str, events: Sequence[Event], span: tuple[int, int] | None) -> Run:
    """Add the events within a run's time: Spark's applications do other work, too."""
    kept = [
        event
        for event in events
        if span is None or event.wall_ns is None or _holds(span, [event.wall_ns])
    ]
    if not kept:
        what = f"describes events outside the run's time: {len(events):,} event(s) left out"
        return replace(run, problems=(*run.problems, Problem(path, what)))
    return replace(run, events=(*run.events, *kept))


def _each_to_its_own(
    events: Sequence[Event], runs: list[Run], spans: Sequence[tuple[int, int] | None]
) -> bool:
    """Put each event to the one run that was under way; whether any run got one.

    An application of Spark may train several models one after another, with one event log.
    """
    found: dict[int, list[Event]] = {}
    for event in events:
        walls = [] if event.wall_ns is None else [event.wall_ns]
        inside = [at for at, span in enumerate(spans) if walls and _holds(span, walls)]
        exactly = [at for at in inside if _holds(spans[at], walls, margin=0)] or inside
        if len(exactly) == 1:
            found.setdefault(exactly[0], []).append(event)
    for at, own in found.items():
        runs[at] = replace(runs[at], events=(*runs[at].events, *own))
    return bool(found)


def _run_of(
    path: str, events: Sequence[Event], runs: Sequence[Run], spans: Sequence[tuple[int, int] | None]
) -> int | None:
    folder = path.rpartition("/")[0]
    beside = [
        number
        for number, run in enumerate(runs)
        if any(log.path == path or log.path.rpartition("/")[0] == folder for log in run.logs)
    ]
    # Launchers' output often lies a folder above or below.
    candidates = beside or list(range(len(runs)))
    if len(candidates) == 1:
        return candidates[0]
    walls = [event.wall_ns for event in events if event.wall_ns is not None]
    inside = [number for number in candidates if walls and _holds(spans[number], walls)]
    return inside[0] if len(inside) == 1 else None


def _in_utc(events: Sequence[Event], span: tuple[int, int] | None) -> list[Event]:
    """Convert local timestamps to UTC, if exactly one zone puts all of them into the run."""
    local = [event.local_ns for event in events if event.local_ns is not None]
    if span is None or not local:
        return list(events)
    zones = [zone for zone in _ZONES if _holds(span, [ns - zone * _QUARTER_NS for ns in local])]
    # The margin also admits neighbouring zones: prefer whole hours.
    hours = [zone for zone in zones if zone % 4 == 0]
    likely = hours or zones
    if len(likely) != 1:
        return list(events)
    shift = likely[0] * _QUARTER_NS
    return [
        event if event.local_ns is None else replace(event, wall_ns=event.local_ns - shift)
        for event in events
    ]


def _holds(span: tuple[int, int] | None, walls: Iterable[int], margin: int = _MARGIN_NS) -> bool:
    return span is not None and all(span[0] - margin <= wall <= span[1] + margin for wall in walls)


def span_of(run: Run) -> tuple[int, int] | None:
    """Return the wall time, in nanoseconds, of a run's first and last moment; None if no log has
    UTC.
    """
    ends = [_last_by_log(table) for table in (run.steps, run.intervals)]
    walls: list[int] = []
    for index, log in enumerate(run.logs):
        if log.wall_minus_monotonic <= 0:
            continue
        moments = [log.anchor, *(last[index] for last in ends if index in last)]
        walls += [moment + log.wall_minus_monotonic for moment in moments]
    return (min(walls), max(walls)) if walls else None


def _last_by_log(table: pa.Table) -> dict[int, int]:
    """Return for each log with rows when the last of them ended."""
    last = table.group_by("log").aggregate([("end", "max")])
    pairs = zip(last["log"].to_pylist(), last["end_max"].to_pylist(), strict=True)
    return {log: end for log, end in pairs if end is not None}
