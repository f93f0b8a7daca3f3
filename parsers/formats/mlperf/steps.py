"""Make windows of steps between events with numbers of steps or samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from stallscope.arrays.types import Bools, Ints

from ...epochs_only import windows_table
from ...windows.durations import Durations, durations
from ...windows.lines import StepLines
from .marks import Fit, ProgressPoint


def windows(fit: Fit, batch: int | None, resolution_ns: int) -> tuple[Durations, StepLines] | None:
    """Measure windows of steps; None without numbers of steps.

    Args:
        fit: one training of a rank.
        batch: samples of a step on all ranks.
        resolution_ns: the unit that timestamps are rounded down to.
    """
    lines = _lines(_points(fit, batch), fit, resolution_ns)
    measured = durations(lines, "last", None)
    return None if measured is None else (measured, lines)


def table_of(rank: int, measured: Durations, lines: StepLines, zero: int) -> pa.Table:
    """Make the intervals of windows.

    Args:
        zero: the start of the log's clock, nanoseconds since 1970.
    """
    end = lines.columns["ns"][measured.at] - zero
    took = np.rint(measured.step_s * measured.steps * 1e9).astype(np.int64)
    return windows_table(
        rank, lines.last_step[measured.at], None, end - took, end, measured.steps, None
    )


def _points(fit: Fit, batch: int | None) -> Sequence[ProgressPoint]:
    if len(fit.steps) > 1 or batch is None:
        return fit.steps
    # Numbers that are not multiples of the batch count something else, such as tokens.
    whole = [point for point in fit.samples if point.so_far % batch == 0]
    if whole != fit.samples:
        return []
    return [point._replace(so_far=point.so_far // batch) for point in whole]


def _lines(points: Sequence[ProgressPoint], fit: Fit, resolution_ns: int) -> StepLines:
    ns, step = (np.array([point[at] for point in points], np.int64) for at in (0, 1))
    begins = np.append(True, _interrupted(ns, fit))[: len(ns)]
    begins |= np.array([point.begins for point in points], bool)
    since = np.diff(step, prepend=step[:1] - 1)
    columns = {
        "step": step,
        "ns": ns,
        "timed": np.ones(len(ns), bool),
        "zone_known": np.ones(len(ns), bool),
        "resolution_ns": np.full(len(ns), resolution_ns),
    }
    return StepLines(columns, begins, step, since, last_step=step, repeated=0)


def _interrupted(ns: Ints, fit: Fit) -> Bools:
    """Mark moments, from the second one, with an evaluation or the start of an epoch before them."""
    evaluated = np.sort([span.begin for span in fit.evaluations])
    begun = np.sort([span.begin for span in fit.epochs.values()])
    passed = np.searchsorted(evaluated, ns, side="left")
    passed += np.searchsorted(begun, ns, side="right")
    return np.asarray(passed[1:] > passed[:-1])
