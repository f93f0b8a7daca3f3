"""Assign machine metrics to the runs during which they were measured.

A format reads series (``stallscope.run.Series``) from a file; this module gives each run the part of
them in which it ran.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from stallscope.run import Problem, Run, Series

from .events import span_of


def with_series(runs: Iterable[Run], found: Sequence[tuple[str, Series]]) -> list[Run]:
    """Add machine metrics to each run, from its first to its last moment.

    A series goes to the run whose id its log knows, as a whole; otherwise to those runs in its folder
    that were under way meanwhile, and where none lies there, to any of the runs that were.

    Args:
        runs: that were read.
        found: series with the id of the run that they were logged for.
    """
    runs = list(runs)
    for where in dict.fromkeys(series.where for _, series in found):
        own = [one for one in found if one[1].where == where]
        beside = _beside(where, runs)
        parts = {at: [_part(runs[at], *one) for one in own] for at in beside}
        lost = [
            series
            for number, (_, series) in enumerate(own)
            if all(of_run[number] is None for of_run in parts.values())
        ]
        for at, of_run in parts.items():
            there = [part for part in of_run if part is not None]
            problems = [Problem(where, _left_out(lost, runs[at]))] if lost else []
            runs[at] = replace(
                runs[at],
                series=(*runs[at].series, *there),
                problems=(*runs[at].problems, *problems),
            )
    return runs


def _beside(where: str, runs: Sequence[Run]) -> list[int]:
    """Return the runs with logs in the file's folder, or else all runs."""
    folder = where.rpartition("/")[0]
    beside = [
        at
        for at, run in enumerate(runs)
        if any(log.path.rpartition("/")[0] == folder for log in run.logs)
    ]
    return beside or list(range(len(runs)))


def _part(run: Run, run_id: str, series: Series) -> Series | None:
    """Return the part of a series during a run, None if there is none."""
    if run_id == run.id:
        return series
    span = span_of(run)
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
        if span_of(run) is None
        else "by its ranks' clocks this run was not under way then"
    )
    return (
        f"{len(lost):,} series of what machines measured from {_utc(first)} to {_utc(last)} UTC left "
        f"out: {why}"
    )


def _utc(wall: int) -> str:
    return f"{datetime.fromtimestamp(wall // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
