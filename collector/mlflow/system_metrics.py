"""Read MLflow's system metrics (``mlflow.enable_system_metrics_logging()``).

Names are ``system/gpu_0_utilization_percentage``, or ``system/NODE/…`` with several nodes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

PREFIX = "system/"

#: Timestamps, milliseconds since 1970, and values.
Times = tuple[Sequence[int], Sequence[float]]
#: Returns a metric's values by its name: milliseconds since 1970, step, value.
Read = Callable[[str], Sequence[tuple[int, int, float]]]

# Each history takes a request or more: this is one quantity of 64 GPUs, or all metrics of a machine with
# eight GPUs.
_MOST_HISTORIES = 64
# 40 MB in the file. A metric has 8,640 values per day.
_MOST_VALUES = 2_000_000
_AT_ONCE = 8
# The most useful metrics come first.
_FIRST = (
    re.compile(r"gpu_[0-9]+_utilization"),
    re.compile(r"cpu_utilization"),
    re.compile(r"gpu_[0-9]+_memory_usage_percentage"),
    re.compile(r"system_memory_usage_percentage"),
    re.compile(r"network_"),
    re.compile(r"gpu_[0-9]+_power_usage_watts"),
)
_DIGITS = re.compile(r"([0-9]+)")


def read_histories(names: Iterable[str], read: Read) -> tuple[dict[str, Times], int]:
    """Read the histories of system metrics; also return how many were left out to bound the size.

    Args:
        names: the names of all metrics of a run.
        read: reads a history; several threads call it.
    """
    system_metrics = sorted((name for name in names if name.startswith(PREFIX)), key=_sort_key)
    histories: dict[str, Times] = {}
    values = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, min(len(system_metrics), _MOST_HISTORIES), _AT_ONCE):
            some = system_metrics[start : start + _AT_ONCE]
            for name, history in zip(some, pool.map(read, some), strict=True):
                values += len(history)
                if values > _MOST_VALUES:
                    return histories, len(system_metrics) - len(histories)
                histories[name] = _times(history)
    return histories, len(system_metrics) - len(histories)


def _sort_key(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort by usefulness, then by name with numbers in numeric order."""
    last = name.rpartition("/")[2]
    rank = next((at for at, form in enumerate(_FIRST) if form.match(last)), len(_FIRST))
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
    return rank, parts


def _times(history: Sequence[tuple[int, int, float]]) -> Times:
    """Drop the steps, which only count values, and values that JSON does not support."""
    known = sorted((ms, value) for ms, _, value in history if math.isfinite(value))
    return [ms for ms, _ in known], [value for _, value in known]
