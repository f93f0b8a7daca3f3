"""Choose the lines that report progress, and the numbers and durations that a pattern can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Bools, Floats

from ...pattern_columns import DURATIONS
from .line_groups import FieldPlace, SampleLine
from .line_kinds import (
    FEWEST_LINES,
    NOTHING_COUNTS,
    NOTHING_REPEATS,
    REASONS,
    WHOSE_TIMES,
    Candidate,
    Fields,
    LineKind,
    kinds_of,
)
from .roles import RoleKind, Unit

# A file is divided into this many parts, to prefer lines that are in all of them.
_PARTS = 10
# The likelihood of a step by the role of the number.
_STEPS: dict[RoleKind, float] = {"step": 1.0, "count": 0.8, "first": 0.5}

# Timestamps of whole seconds only measure longer times.
_ENOUGH_NS = 10 * 10**9
# The range of the ratio of a duration to the time between timestamps.
_LEAST, _MOST = 0.4, 1.6
# The share of lines with waits no longer than their steps; both are rounded.
_SHARE_WITHIN = 0.9


@dataclass(frozen=True)
class Choice:
    """Lines for a pattern, and the places of its fields in them."""

    #: The numbers of all these lines in the sample; ``lines`` are only the first ones.
    at: Sequence[int]
    lines: Sequence[SampleLine]
    #: The names of fields in the order of the line, and their places in each line.
    names: tuple[str, ...]
    places: Sequence[tuple[FieldPlace, ...]]
    notes: tuple[str, ...] = ()
    score: float = 0.0


def choices(lines: Sequence[SampleLine]) -> tuple[list[Choice], str]:
    """Return the choices for a pattern, the best first, and the reason why there are no others."""
    candidates: list[Choice] = []
    reason = NOTHING_REPEATS
    for kind in kinds_of(lines):
        chosen = _choice(kind, len(lines))
        if isinstance(chosen, Choice):
            candidates.append(chosen)
        else:
            reason = max(reason, chosen, key=REASONS.index)
    return sorted(candidates, key=lambda choice: -choice.score), reason


def _choice(kind: LineKind, lines: int) -> Choice | str:
    """Choose the fields of one kind of lines; return the reason if there are too few.

    Args:
        kind: the lines.
        lines: the number of lines in the sample.
    """
    ranks = [-1 if line.rank is None else line.rank for line in kind.lines]
    fields = Fields(np.array(ranks))
    _choose_rank(kind, fields)
    _choose_time(kind, fields)
    _choose_epoch(kind, fields)
    quality = _choose_step(kind, fields) if kind.is_of_a_trainer else 0.0
    if not quality or (kind.is_mixed and fields.repeat()):
        return NOTHING_COUNTS
    choose_duration(kind, fields)
    if not fields.has_times:
        return fields.no_times
    if (kind.having("rate") or kind.having("samples")) and "rate" not in fields.chosen:
        fields.notes.append("its rates are not read: other figures tell how long steps took")
    names = sorted(fields.chosen, key=lambda name: fields.chosen[name].places[0].start)
    places = [*zip(*(fields.chosen[name].places for name in names), strict=True)]
    spread = len({at * _PARTS // lines for at in kind.at}) / _PARTS
    score = len(kind.at) * spread * quality
    return Choice(kind.at, kind.lines, tuple(names), places, tuple(fields.notes), score)


def _choose_rank(kind: LineKind, fields: Fields) -> None:
    if (fields.stream >= 0).any():
        return
    for column in kind.having("rank"):
        ranks = column.integers("rank")
        if ranks is not None:
            fields.chosen["rank"], fields.stream = column, ranks
            return


def _choose_time(kind: LineKind, fields: Fields) -> None:
    for column in kind.columns:
        ns = column.moments()
        if ns is not None:
            fields.chosen["time"], fields.ns = column, ns
            return
    labelled = [line.ns for line in kind.lines]
    if all(ns is not None for ns in labelled):
        fields.ns = np.array([ns for ns in labelled if ns is not None], np.int64)


def _choose_epoch(kind: LineKind, fields: Fields) -> None:
    for column in kind.having("epoch"):
        epochs = column.integers("epoch")
        if epochs is not None and fields.go_on(epochs):
            fields.chosen["epoch"], fields.epoch = column, epochs
            return


def _choose_step(kind: LineKind, fields: Fields) -> float:
    """Choose the step, and return its likelihood; 0 if neither steps nor epochs count."""
    for role, quality in _STEPS.items():
        for column in kind.having(role):
            steps = column.integers("step")
            if (
                steps is not None
                and column is not fields.chosen.get("time")
                and fields.count(steps)
            ):
                fields.chosen["step"], fields.step = column, steps
                _choose_outer(kind, fields)
                return quality
    return 1.0 if fields.epoch is not None and fields.count(fields.epoch) else 0.0


def _choose_outer(kind: LineKind, fields: Fields) -> None:
    """Choose an epoch without a name: a count (``3/90``) that rises where steps begin again."""
    assert fields.step is not None
    first, then = fields.pairs()
    begins = fields.step[then] < fields.step[first]
    for column in kind.having("count") if "epoch" not in fields.chosen and begins.any() else ():
        epochs = column.integers("epoch")
        if epochs is None:
            continue
        fits = (epochs[then] - epochs[first]) == begins
        # A few pairs lie in different parts of the sample.
        if fits.mean() > 0.95 and fits[begins].mean() > 0.5:
            fields.chosen["epoch"], fields.epoch = column, epochs
            return


# -- durations -------------------------------------------------------------------------------------
#
# Choose the duration of a step or an epoch and its wait for data, or else a rate of samples.


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
        if (waited <= took / DURATIONS[name]).mean() >= _SHARE_WITHIN:
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
