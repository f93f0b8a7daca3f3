"""What MLflow measures of machines while a run trains: ``mlflow.enable_system_metrics_logging()``.

Names are ``system/gpu_0_utilization_percentage``, or ``system/NODE/…`` where nodes are distinguished.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

PREFIX = "system/"

#: When values were logged, milliseconds since 1970, and the values.
Times = tuple[Sequence[int], Sequence[float]]
#: Gives a metric's values by its name: milliseconds since 1970, step, value.
Read = Callable[[str], Sequence[tuple[int, int, float]]]

# Each is a request of its own, or several: one quantity of 64 GPUs, or all that MLflow measures of a
# machine with eight.
_MOST_HISTORIES = 64
# 40 MB in the file. Every ten seconds for a day is 8,640.
_MOST_VALUES = 2_000_000
_AT_ONCE = 8
# What tells most of where time went comes first.
_FIRST = (
    re.compile(r"gpu_[0-9]+_utilization"),
    re.compile(r"cpu_utilization"),
    re.compile(r"gpu_[0-9]+_memory_usage_percentage"),
    re.compile(r"system_memory_usage_percentage"),
    re.compile(r"network_"),
    re.compile(r"gpu_[0-9]+_power_usage_watts"),
)
_DIGITS = re.compile(r"([0-9]+)")


def histories_of(names: Iterable[str], read: Read) -> tuple[dict[str, Times], int]:
    """The histories of what machines measured, and how many of them were left out: there is a bound.

    Args:
        names: of all metrics of a run.
        read: is called by several threads at once.
    """
    own = sorted((name for name in names if name.startswith(PREFIX)), key=_worth)
    found: dict[str, Times] = {}
    values = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for begin in range(0, min(len(own), _MOST_HISTORIES), _AT_ONCE):
            some = own[begin : begin + _AT_ONCE]
            for name, history in zip(some, pool.map(read, some), strict=True):
                values += len(history)
                if values > _MOST_VALUES:
                    return found, len(own) - len(found)
                found[name] = _times(history)
    return found, len(own) - len(found)


def _worth(name: str) -> tuple[int, list[tuple[int, str]]]:
    """The most telling first, numbers in names in their order."""
    last = name.rpartition("/")[2]
    rank = next((at for at, form in enumerate(_FIRST) if form.match(last)), len(_FIRST))
    parts = [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(name)]
    return rank, parts


def _times(history: Sequence[tuple[int, int, float]]) -> Times:
    """Without the steps, which count nothing but values; JSON knows no numbers that are not finite."""
    known = sorted((ms, value) for ms, _, value in history if math.isfinite(value))
    return [ms for ms, _ in known], [value for _, value in known]
