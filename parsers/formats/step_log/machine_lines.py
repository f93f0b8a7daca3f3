"""Make series of the lines of a step log with the kernel's figures of a process and its host.

A line has the growth of each count since the last line with it; its value is the rate over that time.
The first line of a log only marks the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted
from stallscope.run import Log, Problem, Series

from .step_rows import read_cells

#: The start of such a line.
MARK = b"#machine "
_TIME = "time_us"
_LINE = re.compile(rb"-?\d{1,15}(?:,-?\d{0,15})*")
_INTERFACE = re.compile(r"([\w.@-]{1,32})_(received_kb|sent_kb|errors)")
_MOST_COLUMNS = 64
# Enough points for any chart, however long the log.
_MOST_LINES = 1000
# The largest plausible values: 142 years of microseconds.
_FURTHEST = 2.0**52
_EARLIEST = 60e6


@dataclass(frozen=True)
class _Column:
    """The series of a column of the lines."""

    name: str
    unit: str
    #: Converts the log's unit, of counts per second, to the series' unit.
    factor: float
    #: Whether it is about the process, not the whole host.
    of_process: bool = True
    #: Whether its values are levels, not growth.
    is_level: bool = False


_COLUMNS = {
    "cpu_ms": _Column("process_cpu", "cores", 1e-3),
    "run_delay_ms": _Column("process_waiting_for_cores", "threads", 1e-3),
    "voluntary_switches": _Column("process_voluntary_switches", "1/s", 1.0),
    "involuntary_switches": _Column("process_involuntary_switches", "1/s", 1.0),
    "minor_faults": _Column("process_minor_faults", "1/s", 1.0),
    "major_faults": _Column("process_major_faults", "1/s", 1.0),
    "resident_mb": _Column("process_memory", "MB", 1.0, is_level=True),
    "read_kb": _Column("process_read", "MB/s", 1e-3),
    "written_kb": _Column("process_written", "MB/s", 1e-3),
    "throttled_ms": _Column("cgroup_throttled", "cores", 1e-3),
    "periods": _Column("cgroup_periods", "1/s", 1.0),
    "throttled_periods": _Column("cgroup_throttled_periods", "1/s", 1.0),
    "cgroup_cpu_pressure_ms": _Column("cgroup_cpu_pressure", "%", 0.1),
    "cgroup_memory_pressure_ms": _Column("cgroup_memory_pressure", "%", 0.1),
    "cgroup_io_pressure_ms": _Column("cgroup_io_pressure", "%", 0.1),
    "cpu_pressure_ms": _Column("host_cpu_pressure", "%", 0.1, of_process=False),
    "memory_pressure_ms": _Column("host_memory_pressure", "%", 0.1, of_process=False),
    "io_pressure_ms": _Column("host_io_pressure", "%", 0.1, of_process=False),
    "host_cpu_ms": _Column("host_cpu", "cores", 1e-3, of_process=False),
    "stolen_ms": _Column("host_stolen", "cores", 1e-3, of_process=False),
    "retransmitted": _Column("host_tcp_retransmissions", "1/s", 1.0, of_process=False),
    "gpu_percent": _Column("gpu_busy", "%", 1.0, is_level=True),
    "gpu_memory_mb": _Column("gpu_memory", "MB", 1.0, is_level=True),
    "gpu_clock_mhz": _Column("gpu_clock", "MHz", 1.0, is_level=True),
    "gpu_power_cap": _Column("gpu_power_capped", "%", 100.0, is_level=True),
    "gpu_heat": _Column("gpu_too_hot", "%", 100.0, is_level=True),
    "clock_error_us": _Column("host_clock_error", "ms", 1e-3, of_process=False, is_level=True),
}
_OF_INTERFACES = {"received_kb": ("MB/s", 1e-3), "sent_kb": ("MB/s", 1e-3), "errors": ("1/s", 1.0)}


def machine_series(
    log: Log, lines: Sequence[bytes]
) -> tuple[tuple[Series, ...], tuple[Problem, ...]]:
    """Return the series in a log's lines of figures, and problems with them.

    Args:
        log: the log; its facts name the columns.
        lines: the lines that start with ``MARK``.
    """
    columns = _columns(log)
    if not lines or not columns:
        return (), ()
    table, bad = _table(columns, b"".join(lines).replace(MARK, b""))
    levels = {name for name, column in _known(columns) if column.is_level} | {_TIME}
    table = _thinned(table, levels)
    times = _Times(log.wall_minus_monotonic + log.anchor + table[_TIME].astype(np.int64) * 1000)
    series = [
        Series(
            column.name,
            column.unit,
            log.host,
            log.rank if column.of_process else None,
            log.path,
            *values,
        )
        for name, column in _known(columns)
        if (values := _values(column, times, table[name])) is not None
    ]
    what = f"{counted(bad, 'torn or unreadable line')} of machine figures skipped"
    return tuple(series), (Problem(log.path, what),) if bad else ()


def continued(old: Sequence[Series], new: Sequence[Series]) -> tuple[Series, ...]:
    """Return the series of a log that has grown.

    Args:
        old: the series before.
        new: the series of the last old lines and of all new lines.
    """
    before = {series.name: series for series in old}
    grown = [_continued(before.pop(series.name, None), series) for series in new]
    return (*before.values(), *grown)


def _continued(old: Series | None, new: Series) -> Series:
    if old is None:
        return new
    later = new.wall_ns > old.wall_ns[-1]
    walls = np.concatenate([old.wall_ns, new.wall_ns[later]])
    values = np.concatenate([old.value, new.value[later]])
    if len(walls) > 2 * _MOST_LINES:
        walls, values = _halved(walls, values)
    return replace(new, wall_ns=walls, value=values)


def _halved(walls: Ints, values: Floats) -> tuple[Ints, Floats]:
    """Merge pairs of values into their means over time."""
    seconds = np.diff(walls, prepend=2 * walls[:1] - walls[1:2]) / 1e9
    starts = np.arange(0, len(walls), 2)
    ends = np.minimum(starts + 1, len(walls) - 1)
    lasted = np.add.reduceat(seconds, starts)
    return walls[ends], np.add.reduceat(values * seconds, starts) / lasted


def _columns(log: Log) -> list[str]:
    """Return the names of a log's columns; empty if they are unusable."""
    columns = log.facts.get("machine_columns")
    if not isinstance(columns, list) or columns[:1] != [_TIME]:
        return []
    is_possible = all(isinstance(name, str) for name in columns)
    is_possible = is_possible and len(set(columns)) == len(columns) <= _MOST_COLUMNS
    return columns if is_possible else []


def _known(columns: Sequence[str]) -> Iterator[tuple[str, _Column]]:
    for name in columns:
        interface = _INTERFACE.fullmatch(name)
        if name in _COLUMNS:
            yield name, _COLUMNS[name]
        elif interface is not None:
            what = interface[2].removesuffix("_kb")
            unit, factor = _OF_INTERFACES[interface[2]]
            yield name, _Column(f"network_{interface[1]}_{what}", unit, factor, of_process=False)


def _table(columns: Sequence[str], text: bytes) -> tuple[dict[str, Floats], int]:
    """Return the cells by column, NaN for empty ones, and the number of unreadable lines.

    Lines are in order of time.
    """
    try:
        return _parsed(columns, text)
    except pa.ArrowInvalid:
        # A cell is not a number, which is rare enough to check every line.
        lines = text.splitlines()
        good = [line for line in lines if _LINE.fullmatch(line)]
        table, bad = _parsed(columns, b"".join(line + b"\n" for line in good))
        return table, bad + len(lines) - len(good)


def _parsed(columns: Sequence[str], text: bytes) -> tuple[dict[str, Floats], int]:
    if not text.strip():
        return {name: np.zeros(0) for name in columns}, text.count(b"\n")
    cells, skipped = read_cells(text, columns, dict.fromkeys(columns, pa.int64()))
    table = {name: arrow.numbers(cells[name]) for name in columns}
    # The first line may be older than its file by a moment.
    times = np.where(table[_TIME] >= -_EARLIEST, table[_TIME], np.inf)
    known = times <= _FURTHEST
    possible = known & (times >= np.fmax.accumulate(np.where(known, times, -_EARLIEST)))
    for name, values in table.items():
        table[name] = np.where(np.abs(values) <= _FURTHEST, values, np.nan)[possible]
    return table, skipped + int((~possible).sum())


def _thinned(table: dict[str, Floats], levels: Set[str]) -> dict[str, Floats]:
    """Merge consecutive lines of a long log, so that thousands of ranks fit into memory.

    A merged line has the time of its last line, the sum of growth, and the means of levels.
    """
    lines = len(table[_TIME])
    together = -(-(lines - 1) // _MOST_LINES)
    if together <= 1:
        return table
    # The first line stays, because growth counts from it.
    starts = np.concatenate([[0], np.arange(1, lines, together)])
    ends = np.append(starts[1:], lines) - 1
    thinned = {}
    for name, values in table.items():
        known = ~np.isnan(values)
        count = np.add.reduceat(known, starts, dtype=np.int64)
        total = np.add.reduceat(np.where(known, values, 0.0), starts)
        merged = np.where(count > 0, total, np.nan)
        thinned[name] = merged / np.maximum(count, 1) if name in levels else merged
    thinned[_TIME] = table[_TIME][ends]
    return thinned


class _Times:
    """The times of a log's lines, and the seconds since the values before.

    Nearly all columns have values in the same lines, and share these arrays.
    """

    def __init__(self, walls: Ints) -> None:
        self._walls = walls
        self._known: dict[tuple[bytes, bool], tuple[Ints, Ints, Floats]] = {}

    def of(self, present: Bools, is_level: bool) -> tuple[Ints, Ints, Floats]:
        """Return the lines of values, their wall times, and the seconds since the values before."""
        key = (present.tobytes(), is_level)
        if key not in self._known:
            lines = np.flatnonzero(present)
            walls = self._walls[lines]
            # Since the value before, or since the first line.
            seconds = np.diff(walls, prepend=self._walls[:1]) / 1e9
            # Growth in the first line has no known duration.
            usable = (seconds > 0) | is_level
            self._known[key] = lines[usable], walls[usable], seconds[usable]
        return self._known[key]


def _values(column: _Column, times: _Times, cells: Floats) -> tuple[Ints, Floats] | None:
    """Return the times and values of a series; None without values."""
    lines, walls, seconds = times.of(~np.isnan(cells), column.is_level)
    if not len(lines):
        return None
    values = cells[lines] * column.factor
    return walls, values if column.is_level else values / seconds
