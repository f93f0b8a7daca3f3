"""Choose the duration of a step or an epoch and its wait for data, or else a rate of samples."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Bools, Floats

from ...patterns.columns import DURATIONS
from .fields import WHOSE_TIMES, Fields
from .kinds import FEWEST_LINES, Candidate, LineKind
from .roles import Unit

# Timestamps of whole seconds only measure longer times.
_ENOUGH_NS = 10 * 10**9
# The range of the ratio of a duration to the time between timestamps.
_LEAST, _MOST = 0.4, 1.6
# The share of lines with waits no longer than their steps; both are rounded.
_PARTS = 0.9


def choose_duration(kind: LineKind, fields: Fields) -> None:
    """Choose the duration of a step, or of an epoch if each line is about another one."""
    each_epoch = fields.epoch is not None and (fields.step is None or _changes(fields))
    between = _between_stamps(fields, each_epoch=each_epoch)
    for column in sorted(kind.having("duration"), key=lambda candidate: candidate.role.order):
        if each_epoch and column.role.order == 0:
            continue  # a step's duration
        unit = _unit_of(column, fields, between)
        if unit is not None:
            _add(column, unit, fields, each_epoch=each_epoch, fits=between is not None)
            break
    if fields.step is not None and not fields.chosen.keys().isdisjoint(DURATIONS):
        _choose_data(kind, fields)
    elif fields.step is not None and fields.ns is None:
        _choose_rate(kind, fields)


def _choose_data(kind: LineKind, fields: Fields) -> None:
    """Choose a wait for data: a part of the step's duration, in seconds."""
    ((name, duration),) = (pair for pair in fields.chosen.items() if pair[0] in DURATIONS)
    took = duration.floats()
    assert took is not None
    for column in kind.having("data"):
        waited = column.floats()
        if waited is None or all(text.isdigit() for text in column.texts):
            continue
        if (waited <= took / DURATIONS[name]).mean() >= _PARTS:
            fields.chosen["data"] = column
            return


def _choose_rate(kind: LineKind, fields: Fields) -> None:
    """Choose a rate of samples, which gives step times if the file has the batch size."""
    for column in kind.having("samples"):
        rates = column.floats()
        if rates is not None and (rates > 0).all():
            fields.chosen["rate"] = column
            return


def _add(column: Candidate, unit: Unit, fields: Fields, *, each_epoch: bool, fits: bool) -> None:
    """Add a duration to the fields, unless another one is better.

    Args:
        fits: whether it fits the timestamps.
    """
    apart = 1 if each_epoch or fits else fields.steps_apart()
    if apart > 1 and column.role.order > 1:
        fields.no_times = WHOSE_TIMES
        return
    if each_epoch and fields.step is not None:
        # With a step, a duration would be the step's.
        del fields.chosen["step"]
        fields.step = None
        fields.notes.append("steps are left out, so that the duration is read as an epoch's")
    fields.chosen["ms" if unit == "ms" else "seconds"] = column
    if unit == "unknown":
        fields.notes.append("its durations have no unit: seconds are assumed")
    if apart > 1 and column.role.order:
        fields.notes.append(
            f"a duration is read as that of 1 step; its lines are {apart:,} steps apart, and it may be "
            "that of them all"
        )


def _changes(fields: Fields) -> bool:
    """Whether nearly each line is about another epoch."""
    assert fields.epoch is not None
    first, then = fields.pairs()
    return int((fields.epoch[then] != fields.epoch[first]).sum()) > 0.8 * len(first)


def _unit_of(column: Candidate, fields: Fields, between: float | None) -> Unit | None:
    """Return the unit of durations; None if the numbers are not durations.

    Args:
        column: the numbers.
        fields: the chosen fields.
        between: the seconds of a step or an epoch by the timestamps.
    """
    values = column.floats()
    if values is None or not (values > 0).any() or _adds_up(values, fields):
        return None
    if between is None:
        return column.role.unit
    usual = float(np.median(values))
    units: tuple[Unit, ...] = ("seconds", "ms")
    for unit in units if column.role.unit == "unknown" else (column.role.unit,):
        ratio = usual / (1000 if unit == "ms" else 1) / between
        # An epoch's duration may exclude its validation, a step's the time between steps.
        if _LEAST <= ratio <= _MOST or (ratio < _LEAST and column.role.order == 0):
            return unit
    return None


def _adds_up(values: Floats, fields: Fields) -> bool:
    """Whether values are times since a start."""
    first, then = fields.pairs()
    rises: Bools = values[then] >= values[first]
    grows = values[-1] > 3 * max(values[0], 1e-9)
    return len(values) > FEWEST_LINES and bool(grows) and float(rises.mean()) > 0.95


def _between_stamps(fields: Fields, *, each_epoch: bool) -> float | None:
    """Return the seconds of a step or an epoch by the timestamps; None if these are too close."""
    if fields.ns is None:
        return None
    number = fields.epoch if each_epoch else fields.step
    if number is None:
        return None
    first, then = fields.pairs()
    took, steps = fields.ns[then] - fields.ns[first], number[then] - number[first]
    usable = (took >= 0) & (steps > 0)
    total, count = float(took[usable].sum()), int(steps[usable].sum())
    return total / count / 1e9 if total >= _ENOUGH_NS else None
