"""Decide by the numbers what the figures of lines mean, and whether that can be trusted.

A reading is trusted if figures that do not depend on each other agree: printed seconds and the log's
clock, rates and seconds and a printed batch, timestamps and a running time. Where printed seconds and
the clock disagree, the clock counts. Programs of which more is known are rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints

from ...pattern_columns import Column
from ...window_durations import Value, half_unit
from ...window_lines import StepLines, step_lines
from .counters import (
    PRECISE,
    counter_of,
    of_main_rank,
    spans,
    without_copies,
    without_repeated_steps,
)
from .figures import Figure, Rows
from .vocabulary import TRAINERS

# Printed times and the clock agree up to this ratio. If all lines together agree to the smaller one,
# times are means over the steps between lines, otherwise of the last step.
_AGREE, _AGREE_IN_ALL = 1.1, 1.03
# Samples per step are constant up to this share.
_CONSTANT = 0.03
_SHORTEST_SEQUENCE = 128
# Times of steps, in seconds.
_SHORTEST_S, _LONGEST_S = 1e-5, 86_400.0
# The time of a line's last step stands for itself if it is so many times the usual one.
_SINGLE_LONG = 5
# Running times go up in this share of lines.
_SHARE_RISES = 0.98
_FEWEST_RUNNING = 6
# The possible units of times without one, in seconds.
_UNITS_S = (1.0, 1e-3, 1e-6, 60.0)

NOTHING_COUNTS = "no number in its repeating lines counts steps"
NO_TIMES = "its lines count steps, and have neither timestamps nor times"
STAMPS = "the log's timestamps"


@dataclass(frozen=True)
class Evidence:
    """The meaning of a kind of lines."""

    #: The fields of ``StepLines``, with the ranks and the timestamps.
    columns: Mapping[str, Column]
    value: Value
    #: What agrees, as parts of a sentence; empty if nothing does.
    checks: tuple[str, ...] = ()
    #: What readers of the report have to know.
    notes: tuple[str, ...] = ()
    #: The number of ranks by rates of one device and of all of them; None if unknown.
    size: int | None = None
    #: The program that prints them; empty if unknown.
    program: str = ""


def evidence_in(rows: Rows, batches: Iterable[int] = ()) -> Evidence | str:
    """Decide what the figures of a kind mean; return the reason if they tell no times of steps.

    Args:
        rows: its lines.
        batches: the batch sizes that the log states.
    """
    sole = without_copies(of_main_rank(rows))
    counter = counter_of(sole)
    if counter is None:
        return NOTHING_COUNTS
    several = len(np.unique(rows.stamps["rank"])) > 1
    sole, note = (sole, "") if several else without_repeated_steps(sole, counter)
    lines = _Lines(rows if several else sole, sole, counter, frozenset(batches))
    evidence = lines.evidence()
    if isinstance(evidence, str) or not note:
        return evidence
    return replace(evidence, notes=(*evidence.notes, note))


# -- times -----------------------------------------------------------------------------------------


class _Clock(NamedTuple):
    """Moments of the lines of one rank."""

    ns: Ints
    #: The unit that they are rounded to.
    unit_ns: int
    name: str
    #: The figure that has them; None for timestamps of lines.
    figure: int | None = None
    #: Whether their unit is beyond doubt.
    is_certain: bool = True


class _Time(NamedTuple):
    """A figure read as times of steps."""

    figure: int
    unit_s: float
    #: ``step`` (of one step, or the mean of several), ``total`` (of all steps since the line before),
    #: ``so far`` (the mean over all steps so far), or ``rest`` (without the wait for data).
    meaning: str
    #: The median ratio to the clock, and that of all lines together.
    ratio: float
    ratio_of_all: float


@dataclass(frozen=True)
class _Lines:
    """Lines of one kind, whose counter is known."""

    #: The lines of all ranks, and of the rank that decides.
    rows: Rows
    sole: Rows
    counter: int
    batches: frozenset[int]

    def evidence(self) -> Evidence | str:
        """Decide what their figures mean; return the reason if they tell no times of steps."""
        if self.samples_per_step is None:
            return NOTHING_COUNTS
        known = self._known_program()
        if known is not None:
            return known
        clocks = self.clocks
        if not clocks:
            return self._without_clock()
        clock, *rest = clocks
        checks = [
            f"{clock.name} and {second.name} agree" for second in rest if self._alike(clock, second)
        ]
        times = [time for time in self._times(clock) if _agrees(time.ratio, _AGREE)]
        if times:
            return self._printed(min(times, key=self._doubt), clock, checks)
        return self._measured(clock, checks)

    @property
    def figures(self) -> Sequence[Figure]:
        """Return the figures of each line."""
        return self.sole.kind.figures

    @cached_property
    def samples_per_step(self) -> float | None:
        """Return the numbers of the counter in a step: 1 for steps; None if they are unknown."""
        if self.figures[self.counter].word.quantity == "step":
            return 1.0
        change = np.diff(self.sole.values[self.counter])
        rise = float(np.median(change[change > 0]))
        for batch in self._products():
            steps = rise / batch
            if batch > 1 and steps > 0.5 and abs(steps - round(steps)) < _CONSTANT * steps:
                return rise / round(steps)
        return None if self.figures[self.counter].word.quantity == "samples" else 1.0

    def _products(self) -> Iterable[float]:
        """Yield the samples per step that times and rates of all devices give."""
        for time in self._having("time"):
            for rate in self._having("rate"):
                word = self.figures[rate].word
                if not word.of_a_device and word.thing in ("", "sample"):
                    seconds = self.sole.values[time] * (self.figures[time].word.unit_s or 1.0)
                    yield float(np.median(seconds * self.sole.values[rate]))

    @cached_property
    def lines(self) -> StepLines:
        """Return the numbered lines of the rank that decides."""
        return step_lines(self._columns(self.sole))

    def _columns(self, rows: Rows) -> dict[str, Column]:
        """Return the columns of ``StepLines`` without times."""
        steps = rows.values[self.counter] / (self.samples_per_step or 1.0)
        columns = {**rows.stamps, "step": np.rint(steps).astype(np.int64)}
        for at in self._having("epoch"):
            epochs = rows.values[at]
            if (epochs == np.rint(epochs)).all():
                columns["epoch"] = epochs.astype(np.int64)
                break
        return columns

    def _having(self, quantity: str) -> list[int]:
        return [at for at, figure in enumerate(self.figures) if figure.word.quantity == quantity]

    # -- clocks

    @cached_property
    def clocks(self) -> list[_Clock]:
        """Return what tells when lines were printed, the most reliable first."""
        clocks = []
        ns = self.lines.stamps_ns
        if ns is not None and len(self.lines) == len(self.sole):
            clocks.append(_Clock(ns, self.lines.stamp_unit_ns, STAMPS))
        for at in self._having("stamp"):
            clocks.append(self._clock_of(at, self.figures[at].word.unit_s or 1.0, "its timestamps"))
        for at in self._having("time"):
            figure = self.figures[at]
            if figure.is_clock or self._is_running(at):
                unit_s = 1.0 if figure.is_clock else figure.word.unit_s or 1.0
                clock = self._clock_of(at, unit_s, "its running time")
                certain = figure.is_clock or figure.word.unit_s is not None
                clocks.append(clock._replace(is_certain=certain))
        return [clock for clock in clocks if self._goes(clock)]

    def _clock_of(self, at: int, unit_s: float, name: str) -> _Clock:
        seconds = self.sole.values[at] * unit_s
        unit_ns = max(int(2e9 * half_unit(seconds)), 1)
        return _Clock(np.rint(seconds * 1e9).astype(np.int64), unit_ns, name, at)

    def _is_running(self, at: int) -> bool:
        """Whether a figure is the time since a start."""
        values = self.sole.values[at]
        inside = ~self.lines.begins[1:]
        change = np.diff(values)[inside] if len(values) == len(self.lines) else np.diff(values)
        if len(change) < _FEWEST_RUNNING:
            return False
        grows = values.max() > 3 * max(float(np.median(np.abs(change))), 1e-12)
        return bool(grows and (change > 0).mean() >= _SHARE_RISES)

    def _goes(self, clock: _Clock) -> bool:
        """Whether a clock measures steps: it goes on, and is not too coarse for all lines together."""
        if len(clock.ns) != len(self.lines):
            return False
        took = np.diff(clock.ns)[~self.lines.breaks[1:]]
        return len(took) >= 2 and took.sum() >= clock.unit_ns / PRECISE and (took >= 0).mean() > 0.9

    def _breaks(self, clock: _Clock) -> Bools:
        back = np.append(False, np.diff(clock.ns) < 0)
        return np.asarray(self.lines.begins | back)

    def _alike(self, clock: _Clock, second: _Clock) -> bool:
        """Whether two clocks measure the same times."""
        breaks = (self._breaks(clock) | self._breaks(second))[1:]
        first_s, second_s = (float(np.diff(each.ns)[~breaks].sum()) for each in (clock, second))
        return second_s > 0 and _agrees(first_s / second_s, _AGREE_IN_ALL)

    def _stretches(self, clock: _Clock) -> tuple[Ints, Ints, Floats]:
        """Return stretches of lines, and the seconds of a step in each by the clock."""
        return spans(self.lines, clock.ns, clock.unit_ns, self._breaks(clock))

    # -- printed times

    def _times(self, clock: _Clock) -> Iterable[_Time]:
        """Yield the ways to read figures as times, with their ratios to a clock."""
        begin, end, by_clock = self._stretches(clock)
        if not len(by_clock):
            return
        counted_steps, since = self.lines.counted, self.lines.since
        steps = counted_steps[end] - counted_steps[begin]
        every = since > 0
        for at in self._having("time"):
            figure = self.figures[at]
            if at in [each.figure for each in self.clocks] or figure.in_parentheses:
                continue
            values = self.sole.values[at]
            readings = {"step": values * since, "total": values}
            if self._from_the_start():
                readings["so far"] = np.diff(values * counted_steps, prepend=0.0)
            wait = self._data(at)
            if wait is not None:
                readings["rest"] = (values + self.sole.values[wait]) * since
            units = _UNITS_S if figure.word.unit_s is None else (figure.word.unit_s,)
            for meaning, seconds in readings.items():
                if meaning == "total" and (since == 1).all():
                    continue
                sums = np.cumsum(np.where(every, seconds, 0.0))
                printed = (sums[end] - sums[begin]) / steps
                for unit_s in units:
                    ratios = printed * unit_s / by_clock
                    of_all = float((printed * steps).sum() * unit_s / (by_clock * steps).sum())
                    yield _Time(at, unit_s, meaning, float(np.median(ratios)), of_all)

    def _from_the_start(self) -> bool:
        """Whether the lines tell of all steps since the job's or each epoch's start."""
        return bool((self.lines.so_far == self.lines.counted).all())

    def _doubt(self, time: _Time) -> tuple[float, float]:
        """Return how doubtful a reading is: by its meaning and its words, then by its ratio."""
        order = {"step": 0, "rest": 1, "total": 2, "so far": 3}[time.meaning]
        is_mean = self.figures[time.figure].word.is_mean
        # Among readings that agree about equally well, the plain one counts.
        off = round(abs(np.log(time.ratio)) / 0.03)
        return off, order + self.figures[time.figure].word.order / 10 + is_mean / 20

    def _data(self, time: int) -> int | None:
        """Return the figure of the wait for data in a figure's time; None if there is none."""
        seconds = self.sole.values[time]
        for at in self._having("data"):
            figure = self.figures[at]
            same = figure.word.unit_s == self.figures[time].word.unit_s
            plain = not figure.in_parentheses and (same or figure.word.order < 2)
            waits = self.sole.values[at] * self._data_factor(at, time)
            if plain and (waits <= 1.01 * seconds).mean() > 0.9:
                return at
        return None

    def _data_factor(self, data: int, time: int) -> float:
        """Return the factor from the unit of waits to that of times."""
        units = self.figures[data].word.unit_s, self.figures[time].word.unit_s
        return 1.0 if None in units else float(units[0] or 1) / float(units[1] or 1)

    def _fields(self, time: _Time) -> dict[str, Column]:
        """Return the columns of a time for all ranks: its seconds, and the wait for data."""
        values, wait = self.rows.values, self._data(time.figure)
        seconds = values[time.figure] * time.unit_s
        if time.meaning == "so far":
            return {"mean_seconds": seconds}
        if wait is None or time.meaning == "total":
            return {"seconds": seconds}
        data = values[wait] * self._data_factor(wait, time.figure) * time.unit_s
        if time.meaning == "rest":
            seconds = seconds + data
        return {"seconds": seconds, "data": np.minimum(data, seconds)}

    # -- readings

    def _printed(self, time: _Time, clock: _Clock, checks: Sequence[str]) -> Evidence:
        """Return the evidence of printed times that agree with a clock."""
        off = max(100 * abs(time.ratio - 1), 0.1)
        checks = [f"they agree with {clock.name} within {off:.1f}%", *checks]
        value: Value = "last"
        if time.meaning == "total":
            value = "total"
        elif (self.lines.since == 1).all() or _agrees(time.ratio_of_all, _AGREE_IN_ALL):
            value = "mean"
        return self._of(self._fields(time), value, checks)

    def _measured(self, clock: _Clock, checks: Sequence[str]) -> Evidence | str:
        """Return the evidence of lines whose times their clock measures."""
        checks = [*checks, *self._rates_agree(clock)]
        named = self.figures[self.counter].word.quantity == "step"
        trains = self.sole.kind.trains or bool(self._having("rate"))
        if not checks and named and clock.is_certain and trains:
            checks = [f"measured by {clock.name}"]
        notes = self._disagreement(clock)
        if clock.name == STAMPS:
            return self._of({}, "mean", checks, notes)
        if clock.figure is not None and self.figures[clock.figure].word.quantity == "stamp":
            return self._of(self._as_stamps(clock), "mean", checks, notes)
        return self._running(clock, checks, notes)

    def _as_stamps(self, clock: _Clock) -> dict[str, Column]:
        assert clock.figure is not None
        unit_s = self.figures[clock.figure].word.unit_s or 1.0
        ns = np.rint(self.rows.values[clock.figure] * unit_s * 1e9).astype(np.int64)
        known = np.ones(len(ns), bool)
        unit = np.full(len(ns), clock.unit_ns)
        return {
            "timed": known,
            "ns": ns,
            "zone_known": known,
            "resolution_ns": unit,
            "year_known": known,
        }

    def _running(
        self, clock: _Clock, checks: Sequence[str], notes: Sequence[str]
    ) -> Evidence | str:
        """Return the evidence of the differences of a running time."""
        _, end, seconds = self._stretches(clock)
        if not len(seconds):
            return NO_TIMES
        columns = {name: column[end] for name, column in self._columns(self.sole).items()}
        columns["seconds"] = seconds
        return Evidence(columns, "mean", tuple(checks), tuple(notes), self._size())

    def _disagreement(self, clock: _Clock) -> list[str]:
        """Return a note on printed times of steps that the clock contradicts."""
        for time in self._times(clock):
            word = self.figures[time.figure].word
            if time.meaning == "step" and word.order == 0 and time.unit_s == (word.unit_s or 1.0):
                return [
                    f"steps took {1 / max(time.ratio, 1e-9):,.3g} times as long by {clock.name} as "
                    "their printed times say: the clock counts"
                ]
        return []

    def _rates_agree(self, clock: _Clock) -> list[str]:
        """Return a check if rates and the clock agree on a batch that the log states."""
        _, end, seconds = self._stretches(clock)
        stated = self.batches | self._batches_in_lines()
        for at in self._having("rate") if len(seconds) else ():
            word = self.figures[at].word
            product = float(np.median(self.sole.values[at][end] * seconds))
            if word.thing == "step" and _agrees(product, _AGREE):
                return [f"rates and {clock.name} agree"]
            if word.thing == "sample" and not word.of_a_device:
                batch = next((size for size in stated if _agrees(product / size, _AGREE)), None)
                if batch is not None:
                    return [f"rates and {clock.name} agree on the batch of {batch:,}"]
        return []

    def _batches_in_lines(self) -> frozenset[int]:
        sizes = (float(np.median(self.sole.values[at])) for at in self._having("batch"))
        return frozenset(round(size) for size in sizes if size >= 1)

    def _without_clock(self) -> Evidence | str:
        """Return the evidence of lines without a clock: rates and times may agree on a batch."""
        stated = self.batches | self._batches_in_lines()
        for at in self._having("time"):
            word = self.figures[at].word
            unit_s = word.unit_s or 1.0
            seconds = self.sole.values[at] * unit_s
            if not _SHORTEST_S < float(np.median(seconds)) < _LONGEST_S:
                continue
            time = _Time(at, unit_s, "step", 1.0, 1.0)
            checks = [] if word.unit_s is None else self._product_agrees(seconds, stated)
            return self._of(self._fields(time), "last", checks)
        return NO_TIMES

    def _product_agrees(self, seconds: Floats, stated: frozenset[int]) -> list[str]:
        """Return a check if the product of rates and times is constant, and a stated batch."""
        for at in self._having("rate"):
            products = seconds * self.sole.values[at]
            batch = float(np.median(products))
            constant = float(np.median(np.abs(products / max(batch, 1e-12) - 1))) < _CONSTANT
            thing = self.figures[at].word.thing
            size = next((size for size in stated if _is_batch(batch / size, thing)), None)
            if constant and size is not None:
                return [f"rates and times agree on the batch of {size:,}"]
        return []

    def _known_program(self) -> Evidence | None:
        """Return the evidence of a known program's lines; None for others."""
        names = [figure.name for figure in self.figures]
        for trainer in TRAINERS:
            at = next((at for at, name in enumerate(names) if name.startswith(trainer.time)), None)
            if at is None or not set(trainer.words) <= self.sole.kind.words:
                continue
            time = _Time(at, self.figures[at].word.unit_s or 1.0, "step", 1.0, 1.0)
            fields = self._fields(time)
            if trainer.value == "last" and self.rows is self.sole:
                fields["seconds"] = self._alone_if_long(fields["seconds"])
            return self._of(fields, "mean", [f"as {trainer.name} prints them"], (), trainer.name)
        return None

    def _alone_if_long(self, seconds: Floats) -> Floats:
        """Return means over the steps of lines of which only the last step's time is printed.

        A much longer time is that of its step alone: an evaluation, or the start.
        """
        usual, since = float(np.median(seconds)), self.lines.since
        if len(since) != len(seconds):
            return seconds
        mean = (seconds + (since - 1) * usual) / since
        return np.where(seconds > _SINGLE_LONG * usual, mean, seconds)

    def _of(
        self,
        fields: Mapping[str, Column],
        value: Value,
        checks: Sequence[str],
        notes: Sequence[str] = (),
        program: str = "",
    ) -> Evidence:
        columns = {**self._columns(self.rows), **fields}
        known = np.logical_and.reduce(
            [~np.isnan(column) for name, column in fields.items() if name.endswith("seconds")]
            or [np.ones(len(self.rows), bool)]
        )
        if not known.all():
            columns = {name: column[known] for name, column in columns.items()}
        return Evidence(columns, value, tuple(checks), tuple(notes), self._size(), program)

    def _size(self) -> int | None:
        """Return the number of ranks by rates of all devices and of one; None without these."""
        rates = self._having("rate")
        of_one = [at for at in rates if self.figures[at].word.of_a_device]
        of_all = [at for at in rates if at not in of_one]
        for device in of_one:
            for total in of_all:
                ratio = float(np.median(self.sole.values[total] / self.sole.values[device]))
                if ratio >= 1 and abs(ratio - round(ratio)) < 0.01 * ratio:
                    return round(ratio)
        return None


def _agrees(ratio: float, most: float) -> bool:
    return bool(1 / most <= ratio <= most)


def _is_batch(ratio: float, thing: str) -> bool:
    """Whether a ratio to a batch is 1, or for tokens the length of its sequences, a power of two."""
    if thing == "step":
        return False
    power = 2.0 ** round(np.log2(max(ratio, 1e-9))) if thing == "token" else 1.0
    return (power == 1 or power >= _SHORTEST_SEQUENCE) and _agrees(ratio / power, 1 + _CONSTANT)
