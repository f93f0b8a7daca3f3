"""Make series of MLflow's machine metrics: ``system/NODE/gpu_0_utilization_percentage``.

``network_receive_megabytes`` and ``network_transmit_megabytes`` count from the first log of the process.
They become rates, in MB/s from each value to the next one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from stallscope.arrays.types import Floats, Ints
from stallscope.formatting.lists import counted
from stallscope.run import Problem, Series

_NAME = re.compile(r"system/(?:(.+)/)?([^/]+)", re.DOTALL)
# Names of nodes that stand for ranks and not for machines.
_RANK = re.compile(r"rank[ ._-]?([0-9]{1,6})", re.IGNORECASE)
_UNITS = {"percentage": "%", "megabytes": "MB", "gigabytes": "GB", "watts": "W"}
# Counters, and the unit of their growth per second.
_COUNTERS = {"network_receive": "MB/s", "network_transmit": "MB/s"}
# A process that restarts counts from 0 again. If more than a quarter of the values fall, several
# processes count under one name.
_MOST_RESTARTS = 1 / 4
# No run is later, and nanoseconds since 1970 are int64.
_LATEST_MS = 2**42
_LARGEST = 2.0**52

Arrays = tuple[Ints, Floats]


def system_series(
    path: str, content: Mapping[str, Any]
) -> tuple[tuple[Series, ...], tuple[Problem, ...]]:
    """Return the machine metrics that MLflow has logged, and problems with them.

    Args:
        path: the file.
        content: its content.
    """
    metrics = content.get("system_metrics")
    all_series, damaged = [], 0
    for name, history in metrics.items() if isinstance(metrics, dict) else ():
        series = _series(path, name, history)
        if series is None:
            damaged += 1
        elif len(series.value):
            all_series.append(series)
    problems = []
    if damaged:
        problems.append(Problem(path, f"{counted(damaged, 'metric')} of machines cannot be read"))
    trouble = content.get("system_metrics_trouble")
    if isinstance(trouble, str):
        problems.append(Problem(path, f"metrics of machines were not read: {trouble}"))
    left_out = content.get("system_metrics_left_out")
    if isinstance(left_out, int) and left_out > 0:
        what = (
            f"MLflow has {counted(left_out, 'more metric')} of machines: only the most useful ones were "
            "requested"
        )
        problems.append(Problem(path, what))
    return tuple(all_series), tuple(problems)


def _series(path: str, name: str, history: object) -> Series | None:
    """Make a series of a metric, None if it is invalid."""
    parts, arrays = _NAME.fullmatch(name), _arrays(history)
    if parts is None or arrays is None:
        return None
    node = parts[1]
    rank = _RANK.fullmatch(node or "")
    what, _, last = parts[2].rpartition("_")
    known = what and last in _UNITS
    unit = _UNITS[last] if known else ""
    if unit == "MB" and what in _COUNTERS:
        unit, arrays = _COUNTERS[what], _per_second(*arrays)
        if arrays is None:
            return None
    return Series(
        name=what if known else parts[2],
        unit=unit,
        node=node,
        rank=None if rank is None else int(rank[1]),
        where=path,
        wall_ns=arrays[0],
        value=arrays[1],
    )


def _per_second(wall_ns: Ints, count: Floats) -> Arrays | None:
    """Return the growth per second of a counter at each value after the first, except at restarts.

    None if several processes count at once.
    """
    # Of several values at one time the last one counts.
    last = np.append(np.diff(wall_ns) > 0, True)[: len(wall_ns)]
    wall_ns, count = wall_ns[last], count[last]
    grown = np.diff(count)
    if (grown < 0).sum() > max(1.0, _MOST_RESTARTS * len(grown)):
        return None
    known = grown >= 0
    return wall_ns[1:][known], grown[known] / (np.diff(wall_ns)[known] / 1e9)


def _arrays(history: object) -> Arrays | None:
    """Return valid times and values, sorted by time."""
    if not isinstance(history, list) or len(history) != 2:
        return None
    try:
        ms, value = (np.array(column, np.float64) for column in history)
    except (TypeError, ValueError, OverflowError):
        return None
    if ms.ndim != 1 or ms.shape != value.shape:
        return None
    # NaN compares as false.
    usable = (ms >= 0) & (ms < _LATEST_MS) & (np.abs(value) < _LARGEST)
    order = np.argsort(ms[usable], kind="stable")
    return ms[usable][order].astype(np.int64) * 10**6, value[usable][order]
