"""Choose the lines that report progress, and the numbers in them that a pattern can read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .durations import choose_duration
from .fields import NOTHING_COUNTS, NOTHING_REPEATS, REASONS, Fields
from .kinds import LineKind, kinds_of
from .lines import FieldPlace, SampleLine
from .roles import RoleKind

# A file is divided into this many parts, to prefer lines that are in all of them.
_PARTS = 10
# The likelihood of a step by the role of the number.
_STEPS: dict[RoleKind, float] = {"step": 1.0, "count": 0.8, "first": 0.5}


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
