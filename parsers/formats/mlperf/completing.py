"""Complete logs of printed steps with MLPerf's events in the same file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.run import Log

from ...base import Parsed
from ...epochs_only import epochs_log
from ...lines.timestamps import zones_between
from .marks import Fit, Logged, disagree

# A launcher stamps lines when it receives them.
_LATER_NS = 5 * 10**9
_CLOCK = "MLPerf's times of epochs, and durations of steps one after another in each of them"


def completed(logs: Sequence[Parsed], mlperf: Logged, zero: int) -> list[Parsed]:
    """Add evaluations and the end of the job to logs, and the exact epochs, on their clocks.

    Args:
        logs: the logs of a file.
        mlperf: MLPerf's events in the file.
        zero: the timestamp of lines at which the logs' clocks are 0, nanoseconds.
    """
    return [_completed(log, mlperf, zero) for log in logs]


def _completed(log: Parsed, mlperf: Logged, zero: int) -> Parsed:
    marks = mlperf.ranks.get(log.log.rank, mlperf.ranks.get(None))
    if marks is None or len(marks.trainings) != 1 or not log.intervals.num_rows:
        return log
    (fit,) = marks.trainings
    log = _in_epochs(log, fit)
    if disagree(fit, mlperf.settings):
        known_otherwise = {n: v for n, v in log.log.facts.items() if n != "training_samples"}
        log = replace(log, log=replace(log.log, facts=known_otherwise))
    facts = _on_known_clock(log, fit, zero)
    if facts is None:
        return log
    intervals = log.intervals
    if fit.single_epochs:
        # Epochs between lines contain their evaluations, and the last one has no end.
        intervals = intervals.filter(pc.invert(arrow.equal(intervals["kind"], "epoch")))
        facts |= {
            "epoch_precision_ms": 1.0,
            "first_epoch": min(fit.single_epochs).number - fit.first,
        }
    known = replace(log.log, facts=facts, ended=fit.stop is not None)
    return replace(log, log=known, intervals=pa.concat_tables([intervals, _intervals(known, fit)]))


def _intervals(log: Log, fit: Fit) -> pa.Table:
    zero = log.wall_minus_monotonic
    return epochs_log(
        log.path,
        rank=log.rank,
        facts={},
        epochs=fit.epochs_since(zero),
        ended=False,
        end=None if fit.stop is None else fit.stop - zero,
        validations=fit.validations_since(zero),
    ).intervals


def _in_epochs(log: Parsed, fit: Fit) -> Parsed:
    """Move steps without times of day to the starts of MLPerf's epochs, if lines have epochs.

    Returns:
        The same log if that is not possible.
    """
    windows = log.intervals
    begins = {epoch.number - fit.first: epoch.begin for epoch in fit.single_epochs}
    if log.log.has_wall_clock or "began_local" in log.log.facts or windows["epoch"].null_count:
        return log
    number, begin, end = (arrow.numbers(windows[name]) for name in ("epoch", "begin", "end"))
    numbers, firsts, epoch = np.unique(number, return_index=True, return_inverse=True)
    if not begins or not set(numbers.tolist()) <= begins.keys():
        return log
    zero = min(begins.values())
    later = (
        np.array([begins[epoch_number] for epoch_number in numbers.tolist()]) - zero - begin[firsts]
    )
    moved = {"begin": begin + later[epoch], "end": end + later[epoch]}
    for name, values in moved.items():
        at = windows.schema.get_field_index(name)
        windows = windows.set_column(at, windows.schema.field(at), arrow.array(values))
    clock = {"clock": _CLOCK, "anchor": {"monotonic_ns": 0, "wall_ns": zero}}
    return replace(log, log=replace(log.log, facts={**log.log.facts, **clock}), intervals=windows)


def _on_known_clock(log: Parsed, fit: Fit, zero: int) -> dict[str, Any] | None:
    """Return a log's facts with the zone of its clock; None if it has no clock or zone.

    Only in one zone all lines lie between MLPerf's start and end.
    """
    facts = dict(log.log.facts)
    if log.log.has_wall_clock:
        return facts
    if "began_local" not in facts or fit.start is None or fit.stop is None:
        return None
    begin = zero + int(pc.min(log.intervals["begin"]).as_py())
    end = zero + int(pc.max(log.intervals["end"]).as_py())
    zones = zones_between(begin, end, fit.start - _LATER_NS, fit.stop + _LATER_NS)
    if len(zones) != 1:
        return None
    known = {name: value for name, value in facts.items() if name != "began_local"}
    return known | {
        "clock": "stamps of the lines, in the zone that MLPerf's times tell",
        "anchor": {"monotonic_ns": 0, "wall_ns": zero - zones[0]},
    }
