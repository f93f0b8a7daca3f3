"""Choose the lines that report progress, and the numbers in them that a pattern can read."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..blocks import Bools, Ints
from ..pattern_columns import MOST_DIGITS, MOST_FRACTION_DIGITS
from ..timestamps import SINCE_1970, read_moment
from .lines import Place, SampleLine, Template, places_in, template_of
from .roles import Role, Unit, roles_of

#: Fewer lines show no rhythm.
FEWEST_LINES = 4
# Of a kind of lines, so many are looked at, and of all kinds the most frequent ones.
_MOST_LINES = 4000
_MOST_KINDS = 40
#: How many parts of a file are to have such lines.
_PARTS = 10
_TRAINS = re.compile(
    r"(?i)loss|epoch|iter|step|batch|update|train|cost"
    r"|(?<![a-z])(?:lr|acc|ppl|grad|ima?g|tok|word|samples|examples|seq)"
)
_SINCE_1970 = re.compile(SINCE_1970)
_TIME_NAME = re.compile(r"(?i)(?:time(?:_ms|_s|_sec)?|date)\W{0,8}$")
# Stamps of whole seconds say something about durations only over a longer time.
_ENOUGH_NS = 10 * 10**9
# By how much a duration may differ from the time between stamps.
_LEAST, _MOST = 0.4, 1.6
_QUALITY = {"step": 1.0, "epoch": 1.0, "count": 0.8, "first": 0.5}

NOTHING_REPEATS = "no kind of line repeats with changing numbers"
NOTHING_COUNTS = "no number in its repeating lines counts steps or epochs"
NO_TIMES = (
    "its lines count steps, and have neither timestamps nor durations of steps; rates become times only "
    "with the batch size"
)
WHOSE_TIMES = "its durations may be of one step, or of all steps since the line before"
_REASONS = (NOTHING_REPEATS, NOTHING_COUNTS, NO_TIMES, WHOSE_TIMES)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """The lines that a pattern is to read, and where its fields are in them."""

    #: The numbers of all these lines in the sample, of which ``lines`` are the first.
    at: Sequence[int]
    lines: Sequence[SampleLine]
    #: The names of fields in the order of the line, and their places in each line.
    names: tuple[str, ...]
    places: Sequence[tuple[Place, ...]]
    notes: tuple[str, ...] = ()
    score: float = 0.0


@dataclass(frozen=True)
class _Column:
    """One number or timestamp in lines of one kind."""

    role: Role
    #: What is before it in the first line.
    before: str
    places: Sequence[Place]
    texts: Sequence[str]

    @cached_property
    def is_readable(self) -> bool:
        return all(place.kind != "unreadable" for place in self.places)

    def integers(self, field_name: str) -> Ints | None:
        """Return the values of a field of whole numbers, None if some are no such numbers."""
        most = MOST_DIGITS[field_name]
        if all(text.isdigit() and len(text) <= most for text in self.texts):
            return np.array([int(text) for text in self.texts], np.int64)
        return None

    def floats(self) -> Floats | None:
        if not self.is_readable or self.role.kind == "time":
            return None
        for text in self.texts:
            whole, _, fraction = text.partition(".")
            if len(whole) > MOST_DIGITS["seconds"] or len(fraction) > MOST_FRACTION_DIGITS:
                return None
        return np.array([float(text) for text in self.texts])

    def moments(self) -> Ints | None:
        """Return the nanoseconds of timestamps, None if these are none."""
        if self.role.kind != "time":
            named = self.role.kind in ("stamp", "first") or _TIME_NAME.search(self.before)
            if not named or not all(_SINCE_1970.fullmatch(text) for text in self.texts):
                return None
        found = [read_moment(text.encode()) for text in self.texts]
        if any(one is None for one in found):
            return None
        return np.array([one.ns for one in found if one is not None], np.int64)


@dataclass(frozen=True)
class _Kind:
    """Lines of one kind, with the numbers in them that may be fields."""

    #: As in ``Choice``.
    at: Sequence[int]
    lines: Sequence[SampleLine]
    columns: Sequence[_Column]
    words: str


@dataclass
class _Fields:
    """The numbers of one kind of lines that a pattern may read."""

    stream: Ints
    ns: Ints | None = None
    chosen: dict[str, _Column] = field(default_factory=dict)
    step: Ints | None = None
    epoch: Ints | None = None
    notes: list[str] = field(default_factory=list)
    #: The reason if no times are found.
    no_times: str = NO_TIMES

    def pairs(self) -> tuple[Ints, Ints]:
        """Return the lines that follow each other in the output of one rank."""
        order = np.argsort(self.stream, kind="stable")
        same = self.stream[order][1:] == self.stream[order][:-1]
        return order[:-1][same], order[1:][same]


def choices(lines: Sequence[SampleLine]) -> tuple[list[Choice], str]:
    """Return what a pattern could be made of, the best first, and why there is nothing else."""
    found: list[Choice] = []
    reason = NOTHING_REPEATS
    for kind in _kinds(lines):
        chosen = _choice(kind, len(lines))
        if isinstance(chosen, Choice):
            found.append(chosen)
        else:
            reason = max(reason, chosen, key=_REASONS.index)
    return sorted(found, key=lambda one: -one.score), reason


def _kinds(lines: Sequence[SampleLine]) -> Iterator[_Kind]:
    """Yield the lines of each kind, the most frequent first.

    Lines are of one kind if they have the same words up to their last field, or the same fields.
    """
    roles_by_template: dict[Template, tuple[Role, ...]] = {}
    exact: dict[object, list[int]] = defaultdict(list)
    alike: dict[object, list[int]] = defaultdict(list)
    roles_at: list[tuple[Role, ...]] = []
    for at, line in enumerate(lines):
        template = template_of(line.plain)
        roles = roles_by_template.get(template)
        if roles is None:
            roles = roles_by_template[template] = roles_of(template)
        roles_at.append(roles)
        last = max((n for n, role in enumerate(roles) if role.kind != "other"), default=-1)
        if last >= 0:
            exact[template.texts[: last + 1], template.is_time[: last + 1]].append(at)
            alike[tuple(role for role in roles if role.kind != "other")].append(at)
    own = {tuple(found) for found in exact.values()}
    several = [found for found in alike.values() if tuple(found) not in own]
    groups = [*exact.values(), *several]
    enough = [found for found in groups if len(found) >= FEWEST_LINES]
    for found in sorted(enough, key=len, reverse=True)[:_MOST_KINDS]:
        yield _kind_of(lines, found, roles_at)


def _kind_of(
    lines: Sequence[SampleLine], at: Sequence[int], roles_at: Sequence[tuple[Role, ...]]
) -> _Kind:
    own = [lines[one] for one in at[:_MOST_LINES]]
    places = [places_in(line.plain) for line in own]
    fields = [
        [n for n, role in enumerate(roles_at[one]) if role.kind != "other"]
        for one in at[:_MOST_LINES]
    ]
    columns = []
    for column in range(len(fields[0])):
        cells = [found[index[column]] for found, index in zip(places, fields, strict=True)]
        before = own[0].plain[: cells[0].start][-40:]
        texts = [line.text[cell.start : cell.end] for line, cell in zip(own, cells, strict=True)]
        columns.append(_Column(roles_at[at[0]][fields[0][column]], before, cells, texts))
    return _Kind(at, own, columns, own[0].plain)


def _choice(kind: _Kind, lines: int) -> Choice | str:
    """Choose the fields of one kind of lines; return the reason if there are too few."""
    fields = _Fields(_streams(kind))
    _choose_rank(kind, fields)
    _choose_time(kind, fields)
    _choose_epoch(kind, fields)
    quality = _choose_step(kind, fields)
    if not quality:
        return NOTHING_COUNTS
    _choose_duration(kind, fields)
    if fields.ns is None and "seconds" not in fields.chosen and "ms" not in fields.chosen:
        return fields.no_times
    names = sorted(fields.chosen, key=lambda name: fields.chosen[name].places[0].start)
    places = [*zip(*(fields.chosen[name].places for name in names), strict=True)]
    spread = len({one * _PARTS // lines for one in kind.at}) / _PARTS
    return Choice(
        kind.at,
        kind.lines,
        tuple(names),
        places,
        tuple(fields.notes),
        len(kind.at) * spread * quality,
    )


def _streams(kind: _Kind) -> Ints:
    return np.array([-1 if line.rank is None else line.rank for line in kind.lines])


def _choose_rank(kind: _Kind, fields: _Fields) -> None:
    if (fields.stream >= 0).any():
        return
    for column in _of(kind, "rank"):
        ranks = column.integers("rank")
        if ranks is not None:
            fields.chosen["rank"] = column
            fields.stream = ranks
            return


def _choose_time(kind: _Kind, fields: _Fields) -> None:
    for column in kind.columns:
        ns = column.moments()
        if ns is not None:
            fields.chosen["time"] = column
            fields.ns = ns
            return
    labelled = [line.ns for line in kind.lines]
    if all(ns is not None for ns in labelled):
        fields.ns = np.array([ns for ns in labelled if ns is not None], np.int64)


def _choose_epoch(kind: _Kind, fields: _Fields) -> None:
    for column in _of(kind, "epoch"):
        epochs = column.integers("epoch")
        if epochs is not None and _goes_on(epochs, fields):
            fields.chosen["epoch"] = column
            fields.epoch = epochs
            return


def _choose_step(kind: _Kind, fields: _Fields) -> float:
    """Choose the step, and return how likely the lines are a trainer's; 0 without a step or epochs."""
    trains = _TRAINS.search(kind.words) is not None
    for role in ("step", "count", "first"):
        for column in _of(kind, role) if trains else ():
            steps = column.integers("step")
            if (
                steps is not None
                and "time" not in _names_of(column, fields)
                and _counts(steps, fields)
            ):
                fields.chosen["step"] = column
                fields.step = steps
                _choose_outer(kind, fields)
                return _QUALITY[role]
    if fields.epoch is None or not _counts(fields.epoch, fields):
        return 0.0
    return _QUALITY["epoch"]


def _choose_outer(kind: _Kind, fields: _Fields) -> None:
    """Choose an epoch without a name: a number of so many that rises where steps begin again."""
    assert fields.step is not None
    first, then = fields.pairs()
    begins = fields.step[then] < fields.step[first]
    for column in _of(kind, "count") if "epoch" not in fields.chosen and begins.any() else ():
        epochs = column.integers("epoch")
        if epochs is None:
            continue
        fits = (epochs[then] - epochs[first]) == begins
        # Between the parts of a sample anything may change.
        if fits.mean() > 0.95 and fits[begins].mean() > 0.5:
            fields.chosen["epoch"] = column
            fields.epoch = epochs
            return


def _names_of(column: _Column, fields: _Fields) -> list[str]:
    return [name for name, own in fields.chosen.items() if own is column]


def _of(kind: _Kind, role: str) -> list[_Column]:
    return [column for column in kind.columns if column.role.kind == role]


def _goes_on(numbers: Ints, fields: _Fields) -> bool:
    """Whether numbers do not fall, except to where they have begun."""
    first, then = fields.pairs()
    falls = (numbers[then] < numbers[first]) & (numbers[then] > numbers.min() + 1)
    return int(falls.sum()) <= 0.1 * len(falls)


def _counts(numbers: Ints, fields: _Fields) -> bool:
    """Whether numbers rise evenly from line to line, and begin again at most with an epoch."""
    first, then = fields.pairs()
    change = numbers[then] - numbers[first]
    rises = change[change > 0]
    if len(rises) < FEWEST_LINES - 2:
        return False
    step, count = Counter(rises.tolist()).most_common(1)[0]
    begins = (change < 0) & (numbers[then] <= numbers.min() + step)
    if fields.epoch is not None:
        begins |= (change < 0) & (fields.epoch[then] > fields.epoch[first])
    wrong = int(((change < 0) & ~begins).sum())
    return count >= 0.5 * len(rises) and wrong <= 0.1 * len(rises)


def _choose_duration(kind: _Kind, fields: _Fields) -> None:
    """Choose the duration of a step, or of an epoch where each line is of another one."""
    if _of(kind, "rate"):
        fields.notes.append("its rates are not read: they become times only with the batch size")
    each_epoch = fields.epoch is not None and (fields.step is None or _changes(fields))
    for column in sorted(_of(kind, "duration"), key=lambda one: one.role.order):
        unit = _unit_of(column, fields, each_epoch=each_epoch)
        if unit is not None:
            break
    else:
        return
    apart = 1 if each_epoch or fields.ns is not None else _lines_apart(fields)
    if apart > 1 and column.role.order > 1:
        fields.no_times = WHOSE_TIMES
        return
    if fields.epoch is not None and not each_epoch:
        # With an epoch, a duration would be the epoch's.
        if fields.ns is not None:
            return
        del fields.chosen["epoch"]
        fields.notes.append("epochs are left out, so that the duration is read as a step's")
    fields.chosen["ms" if unit == "ms" else "seconds"] = column
    if unit == "unknown":
        fields.notes.append("its durations have no unit: seconds are assumed")
    if apart > 1 and column.role.order:
        fields.notes.append(
            f"its durations may be of 1 step or of {apart:,}, as its lines are that far apart: they are "
            "read as of 1"
        )


def _changes(fields: _Fields) -> bool:
    """Whether nearly each line is of another epoch."""
    assert fields.epoch is not None
    first, then = fields.pairs()
    return int((fields.epoch[then] != fields.epoch[first]).sum()) > 0.8 * len(first)


def _lines_apart(fields: _Fields) -> int:
    """Return how many steps there are between lines."""
    if fields.step is None:
        return 1
    first, then = fields.pairs()
    change = fields.step[then] - fields.step[first]
    return int(np.median(change[change > 0]))


def _unit_of(column: _Column, fields: _Fields, *, each_epoch: bool) -> Unit | None:
    """Return the unit of a column of durations, None if it has others."""
    values = column.floats()
    if values is None or not (values > 0).any() or _adds_up(values, fields):
        return None
    usual = float(np.median(values))
    between = _between_stamps(fields, each_epoch=each_epoch)
    if between is None:
        return column.role.unit
    units: tuple[Unit, ...] = ("seconds", "ms")
    for unit in units if column.role.unit == "unknown" else (column.role.unit,):
        ratio = usual / (1000 if unit == "ms" else 1) / between
        # An epoch's line may leave out its validation, a step's line what is between steps.
        if _LEAST <= ratio <= _MOST or (ratio < _LEAST and column.role.order == 0):
            return unit
    return None


def _adds_up(values: Floats, fields: _Fields) -> bool:
    """Whether values are times since a start."""
    first, then = fields.pairs()
    rises: Bools = values[then] >= values[first]
    grows = values[-1] > 3 * max(values[0], 1e-9)
    return len(values) > FEWEST_LINES and bool(grows) and float(rises.mean()) > 0.95


def _between_stamps(fields: _Fields, *, each_epoch: bool) -> float | None:
    """Return the seconds of a step or an epoch by the timestamps, None if they are too close."""
    if fields.ns is None:
        return None
    number = fields.epoch if each_epoch else fields.step
    if number is None:
        return None
    first, then = fields.pairs()
    took, steps = fields.ns[then] - fields.ns[first], number[then] - number[first]
    both = (took >= 0) & (steps > 0)
    total, count = float(took[both].sum()), int(steps[both].sum())
    return total / count / 1e9 if total >= _ENOUGH_NS else None
