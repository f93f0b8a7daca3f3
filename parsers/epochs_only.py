"""Make logs with the durations of epochs and without steps.

They have intervals of the kind ``epoch`` or ``window``, and facts that name their source and precision.
They are used only if no log has steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError
from stallscope.run import Log, Problem

from .base import INTERVAL_ROWS, STEP_ROWS, Parsed, table_of
from .lines.line_blocks import Column
from .lines.timestamps import Timestamp
from .window_lines import MEASURED_HALF, half_unit
from .work_lines import RESTART, begun_last

#: Times that are later on a log's clock are damage.
LATEST_NS = 2**62
_MICROSECOND_MS = 1e-3
# No program prints durations of epochs more precisely than this.
_LEAST_HALF_MS = 0.5

# An interval: the rank, the kind, the epoch, its start and its end.
_Row = tuple[int, str, "int | None", int, int]


class Epoch(NamedTuple):
    """An epoch, in nanoseconds on the log's clock."""

    #: Counted from 0.
    number: int
    begin: int
    end: int


def epochs_log(
    path: str,
    *,
    facts: Mapping[str, Any],
    epochs: Sequence[Epoch] = (),
    ended: bool,
    size: int = 0,
    rank: int = 0,
    part: int = 0,
    run_id: str = "",
    end: int | None = None,
    validations: Iterable[tuple[int | None, int, int]] = (),
    tables: Iterable[pa.Table] = (),
    problems: Iterable[Problem] = (),
) -> Parsed:
    """Make a log of epochs.

    Args:
        run_id: the id of the run; by default it is made of the place.
        end: when the job ended, nanoseconds on the log's clock; None if unknown.
        validations: the epoch (None if unknown), the start and the end of each.
        tables: further intervals, as ``epochs_table`` and ``windows_table`` make them.
    """
    rows = _rows(rank, epochs)
    rows += [(rank, "validation", *validation) for validation in validations]
    if end is not None:
        rows.append((rank, "end", None, end, end))
    return Parsed(
        log=Log(path, rank, 0, part, facts, ended, size),
        run_id=run_id,
        steps=_no_rows(STEP_ROWS),
        intervals=pa.concat_tables([_table(rows), *tables]),
        problems=tuple(problems),
    )


def in_one_file(logs: Sequence[Parsed], size: int) -> Parsed:
    """Return the first log of a file of this size, with the file's other logs as ``more``."""
    first, *more = logs
    return replace(first, log=replace(first.log, size=size), more=tuple(more))


def with_epochs(logs: Sequence[Parsed], epochs: Sequence[Sequence[Epoch]]) -> list[Parsed]:
    """Add their epochs to logs that were made without them.

    Their tables are pieces of one: where every second line begins a fit, making one for each takes long.
    """
    of_logs = zip(logs, epochs, strict=True)
    table = _table([row for log, of_log in of_logs for row in _rows(log.log.rank, of_log)])
    ends = list(accumulate(map(len, epochs)))
    return [
        replace(log, intervals=table.slice(end - len(log_epochs), len(log_epochs)))
        for log, log_epochs, end in zip(logs, epochs, ends, strict=True)
    ]


def with_end(log: Parsed, end: int) -> Parsed:
    """Add the end of the job, in nanoseconds on the log's clock."""
    last = _table([(log.log.rank, "end", None, end, end)])
    return replace(log, intervals=pa.concat_tables([log.intervals, last]))


def epochs_table(rank: int, number: Ints, begin: Ints, end: Ints) -> pa.Table:
    """Make the intervals of a rank's epochs from columns like those of ``Epoch``."""
    # Arrow would copy one of its arrays value by value.
    kind = pa.repeat(arrow.scalar("epoch", INTERVAL_ROWS.field("kind").type), len(number))
    return _table_of(np.full(len(number), rank), kind, number, begin, end)


def windows_table(
    rank: int,
    step: Ints,
    epoch: Ints | None,
    begin: Ints,
    end: Ints,
    steps: Ints,
    data: Ints | None,
) -> pa.Table:
    """Make the intervals of a rank's windows of steps from columns.

    Args:
        rank: the rank.
        step: the step after each window.
        epoch: the epoch that it is of, as printed.
        begin: its start, nanoseconds on the log's clock.
        end: its end.
        steps: its number of steps.
        data: the nanoseconds for which its steps waited for data.
    """
    count = len(step)
    known = {"epoch": epoch, "data": data}
    kind = pa.repeat(arrow.scalar("window", INTERVAL_ROWS.field("kind").type), count)
    columns = {"rank": np.full(count, rank), "kind": kind, "step": step, "steps": steps}
    columns |= {"generation": np.zeros(count, np.int64), "begin": begin, "end": end}
    columns |= {name: values for name, values in known.items() if values is not None}
    return table_of(INTERVAL_ROWS, columns)


def _rows(rank: int, epochs: Sequence[Epoch]) -> list[_Row]:
    return [(rank, "epoch", *epoch) for epoch in epochs]


def _table(rows: Sequence[_Row]) -> pa.Table:
    # As columns: some logs have an epoch on every line.
    return _table_of(*zip(*rows, strict=True)) if rows else _no_rows(INTERVAL_ROWS)


def _table_of(rank: Any, kind: Any, epoch: Any, begin: Any, end: Any) -> pa.Table:
    count = len(rank)
    columns = {"generation": np.zeros(count, np.int64), "rank": rank, "kind": kind}
    return table_of(INTERVAL_ROWS, columns | {"epoch": epoch, "begin": begin, "end": end})


@cache
def _no_rows(schema: pa.Schema) -> pa.Table:
    # Making any Arrow table loads pandas: only when one is needed.
    return arrow.empty_table(schema)


def rounded_to(milliseconds: float) -> str:
    """Name a precision: ``the second``, ``the millisecond``, ``78 ms``."""
    if milliseconds >= 1000:
        return "the second"
    if milliseconds <= _MICROSECOND_MS:
        return "the microsecond"
    return "the millisecond" if milliseconds <= 1 else f"{milliseconds:.3g} ms"


def clock_facts(timestamp: Timestamp | None, zero: int) -> dict[str, Any]:
    """Return the facts about the clock of lines with such a timestamp; times count from ``zero``."""
    if timestamp is None:
        return {"clock": "none: durations one after another"}
    # The difference of two timestamps that were rounded down is off by less than that either way.
    known = {"stamp_precision_ms": timestamp.resolution_ns / 1e6}
    if timestamp.zone_known:
        return known | {
            "clock": "stamps of the lines",
            "anchor": {"monotonic_ns": 0, "wall_ns": zero},
        }
    began = Timestamp(zero, False, timestamp.resolution_ns)
    local = {
        "clock": f"stamps of the lines, from {began.text} of an unknown zone",
        "began_local": began.text,
    }
    if timestamp.year_known:
        return known | local
    clock = f"{local['clock']}; the year is assumed, the lines have none"
    return known | local | {"clock": clock, "year_assumed": True}


# -- Epochs in lines: between timestamps, or as printed -------------------------------------------


# Times in two lines about one epoch are the same time up to this share.
_ALIKE = 0.03


class Epochs(NamedTuple):
    """Epochs as columns, in nanoseconds on the log's clock."""

    #: Counted from 0.
    number: Ints
    begin: Ints
    end: Ints
    #: Half of the unit that their durations are rounded to, milliseconds.
    half_ms: float
    #: The number of first epochs whose time is unknown.
    untimed: int = 0
    #: The printed number of epoch 0.
    base: int = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts about the epochs for a log."""
        return {
            "epoch_precision_ms": self.half_ms,
            "epoch_base": self.base,
            "first_epoch": int(self.number.min()) - self.untimed,
        }

    def table(self, path: str, rank: int) -> pa.Table:
        """Make the intervals of a rank's epochs.

        Raises:
            UnreadableError: if they take longer than any epochs do.
        """
        if self.end.max(initial=0) > LATEST_NS:
            raise UnreadableError(
                f"{path}: its epochs take a century: these are no times of epochs"
            )
        return epochs_table(rank, self.number, self.begin, self.end)


def first_epoch(columns: Iterable[Mapping[str, Column]]) -> int:
    """Return the printed number of the first epoch, 0 or 1."""
    lowest = (int(each["epoch"].min()) for each in columns if "epoch" in each)
    return int(min(lowest, default=0) == 1)


def epochs_between_lines(
    columns: Mapping[str, Column], zero: int, first: int, *, at_end: bool = False
) -> Epochs:
    """Measure epochs from their first line to that of the next epoch; the end of the last is unknown.

    If each has one line at its end, the start of the first is unknown.

    Args:
        columns: fields of a rank's lines: ``epoch``, and ``training`` if several begin with one epoch.
        zero: the timestamp at which the log's clock is 0.
        first: the number of the first epoch, as printed.
        at_end: whether each epoch has one line, at its end.
    """
    timed = np.flatnonzero(columns["timed"])
    number, ns = columns["epoch"][timed], columns["ns"][timed]
    training = columns.get("training", columns["epoch"])[timed]
    begins = (number[1:] != number[:-1]) | (training[1:] != training[:-1])
    at = np.flatnonzero(np.append(True, begins)[: len(number)])
    begin, end = at[:-1], at[1:]
    if len(end) and np.median(end - begin) == 1:
        # A second line about an epoch is that of a job that has begun it again.
        begin = end - 1
    fits = (number[end] > number[begin]) & (ns[end] >= ns[begin])
    if columns.keys() >= {"step", RESTART}:
        begin, is_whole = begun_last(columns["step"][timed], columns[RESTART][timed], begin, end)
        fits &= is_whole
    # Where steps count on, an epoch begins anywhere between two lines.
    goes_on = np.zeros(len(end), bool)
    if "step" in columns:
        step = columns["step"][timed]
        goes_on = step[end] > step[end - 1]
        # A log may begin, or a part of it, within an epoch: its first line is not that of other epochs.
        fits &= goes_on | (step[begin] <= step[end])
    begin, end, goes_on = begin[fits], end[fits], goes_on[fits]
    # Both timestamps are rounded down: their difference is wrong by less than one unit either way.
    rounded = columns["resolution_ns"][timed][np.append(begin, end)]
    apart_ns = np.where(goes_on, ns[end] - ns[end - 1], 0)
    half_ms = (
        max(int(rounded.max(initial=0)), float(np.median(apart_ns)) if len(end) else 0.0) / 1e6
    )
    of_each = number[end if at_end else begin] - first
    return Epochs(of_each, ns[begin] - zero, ns[end] - zero, half_ms, int(at_end), first)


def epochs_as_printed(columns: Mapping[str, Column], zero: int, first: int) -> Epochs:
    """Return epochs with printed durations: each ends when its line was printed.

    Args:
        columns: fields of a rank's lines, ``epoch`` and ``seconds`` among them.
        zero: the timestamp at which the log's clock is 0.
        first: the number of the first epoch, as printed.
    """
    seconds, number = columns["seconds"], columns["epoch"]
    # Of lines about one epoch that have about the same time, the last one counts.
    again = (np.diff(number) == 0) & (np.abs(np.diff(seconds)) <= _ALIKE * seconds[1:])
    again &= np.diff(columns["ns"]) < 1e9 * seconds[1:] / 2
    columns = {name: column[np.append(~again, True)] for name, column in columns.items()}
    seconds, timed = columns["seconds"], columns["timed"]
    took = np.rint(seconds * 1e9).astype(np.int64)
    # An epoch without a timestamp follows the one before it.
    since = np.cumsum(took)
    timed_at = np.maximum.accumulate(np.where(timed, np.arange(len(timed)), -1))
    end = since.copy()
    known = timed_at >= 0
    at = timed_at[known]
    end[known] += columns["ns"][at] - zero - since[at]
    measured = columns.get(MEASURED_HALF)
    half_s = half_unit(seconds) if measured is None else float(np.median(measured))
    half_ms = max(1e3 * half_s, _LEAST_HALF_MS)
    return Epochs(columns["epoch"] - first, end - took, end, half_ms, base=first)
