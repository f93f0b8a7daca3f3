"""Epochs in lines: between timestamps, or as printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays.types import Ints
from stallscope.errors import UnreadableError

from ...epochs_only import LATEST_NS, epochs_table
from ...patterns.columns import Column
from ...windows.durations import half_unit

# No program prints durations of epochs more precisely than this.
_LEAST_HALF_MS = 0.5


class Epochs(NamedTuple):
    """Epochs as columns, in nanoseconds on the log's clock."""

    #: Counted from 0.
    number: Ints
    begin: Ints
    end: Ints
    #: Half of the unit that their durations are rounded to, milliseconds.
    half_ms: float

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts about the epochs for a log; nothing without epochs."""
        if not len(self.number):
            return {}
        return {"epoch_precision_ms": self.half_ms, "first_epoch": int(self.number.min())}

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
    lowest = min(
        (int(rank_columns["epoch"].min()) for rank_columns in columns if "epoch" in rank_columns),
        default=0,
    )
    return 1 if lowest == 1 else 0


def epochs_between_lines(columns: Mapping[str, Column], zero: int, first: int) -> Epochs:
    """Measure epochs from their first line to that of the next epoch; the end of the last is unknown.

    Args:
        columns: fields of a rank's lines, ``epoch`` among them.
        zero: the timestamp at which the log's clock is 0.
        first: the number of the first epoch, as printed.
    """
    timed = np.flatnonzero(columns["timed"])
    number, ns = columns["epoch"][timed], columns["ns"][timed]
    at = np.flatnonzero(np.append(True, number[1:] != number[:-1])[: len(number)])
    begin, end = at[:-1], at[1:]
    fits = (number[end] > number[begin]) & (ns[end] >= ns[begin])
    begin, end = begin[fits], end[fits]
    # Both timestamps are rounded down: their difference is wrong by less than one unit either way.
    rounded = columns["resolution_ns"][timed][np.append(begin, end)]
    half_ms = int(rounded.max(initial=0)) / 1e6
    return Epochs(number[begin] - first, ns[begin] - zero, ns[end] - zero, half_ms)


def epochs_as_printed(columns: Mapping[str, Column], zero: int, first: int) -> Epochs:
    """Return epochs with printed durations: each ends when its line was printed.

    Args:
        columns: fields of a rank's lines, ``epoch`` and ``seconds`` among them.
        zero: the timestamp at which the log's clock is 0.
        first: the number of the first epoch, as printed.
    """
    seconds, timed = columns["seconds"], columns["timed"]
    took = np.rint(seconds * 1e9).astype(np.int64)
    # An epoch without a timestamp follows the one before it.
    since = np.cumsum(took)
    timed_at = np.maximum.accumulate(np.where(timed, np.arange(len(timed)), -1))
    end = since.copy()
    known = timed_at >= 0
    at = timed_at[known]
    end[known] += columns["ns"][at] - zero - since[at]
    half_ms = max(1e3 * half_unit(seconds), _LEAST_HALF_MS)
    return Epochs(columns["epoch"] - first, end - took, end, half_ms)
