"""Find the counter of lines, and the lines between which a clock can measure its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted

from ...lines.line_blocks import Column
from ...window_durations import PRECISE
from ...window_lines import StepLines, half_unit, step_lines
from ...window_meaning import spans
from ...work_lines import RESTART
from .figures import FEWEST_LINES, Figure
from .rows import LATEST_S, Rows, since_1970
from .vocabulary import OF_DAY, TIME_OF_DAY

# A counter rises by the same number in this share of its lines, and falls in at most this share.
_SHARE_EVEN, _SHARE_FALLS = 0.5, 0.1
# Epochs change, or times between lines are even up to a share, in so many lines.
_SHARE_CHANGES, _EVEN = 0.8, 0.1
# Larger numbers are no steps, and epochs have 32 bits.
_MOST = 2.0**31
_ALIKE = 1.03  # of times that two clocks measure
#: Samples per step are constant up to this share.
CONSTANT = 0.03
# Steps between lines divide their samples up to this ratio; so many samples without a name are a batch.
_DIVIDES, _FEWEST_SAMPLES = 1.02, 8
# Running times go up in this share of lines.
_SHARE_RISES, _FEWEST_RUNNING = 0.98, 6
_SHARE_INSIDE = 0.3  # of lines, which begin no piece
#: The clocks of lines with timestamps, and with the time since a start.
STAMPS, _RUNNING = "the log's timestamps", "the lines' running time"
_DAY_S = 86_400
# Ranks that train together are at most so many lines apart, and print about this share of steps alike.
_MOST_APART, _SHARE_OF_ALL_RANKS = 4, 0.9
# The quantities that may count steps, the likeliest first.
_COUNTERS = {"step": 0, "count": 10, "samples": 20}


def of_first_arrivals(rows: Rows) -> Rows:
    """Keep the first line of each step where several ranks without labels print all of them."""
    if len(rows) < FEWEST_LINES:
        return rows
    epochs = [
        values
        for figure, values in zip(rows.kind.figures, rows.values, strict=True)
        if figure.word.quantity == "epoch" and _are_counts(values)
    ]
    for figure, values in zip(rows.kind.figures, rows.values, strict=True):
        if figure.word.quantity not in _COUNTERS or not _are_counts(values):
            continue
        position = values + epochs[0] * (values.max() + 1) if epochs else values
        steps, lines = np.unique(position, return_counts=True)
        several = (lines == max(int(np.median(lines)), 2)).mean() >= _SHARE_OF_ALL_RANKS
        if not several or len(steps) < FEWEST_LINES:
            continue
        number = np.searchsorted(steps, position)
        first = number > np.maximum.accumulate(np.append(-1, number))[:-1]
        behind = np.maximum.accumulate(number) - number
        # Few steps that are numbered again and again, as parts of others, are no steps of ranks.
        apart = behind.max()
        if 0 < apart <= min(_MOST_APART, len(steps) / 2 - 1) and first.sum() == len(steps):
            return rows.chosen(first)
    return rows


def counter_of(rows: Rows) -> int | None:
    """Return the figure that counts steps or samples; None if none does."""
    figures = rows.kind.figures
    counters = [at for at, figure in enumerate(figures) if figure.word.quantity in _COUNTERS]
    counters.sort(key=lambda at: _COUNTERS[figures[at].word.quantity] + figures[at].word.order)
    counts = [at for at in counters if _counts(rows.values[at])]
    even = next((at for at in counts if not _counts_epochs(rows, at, counts)), None)
    named = [at for at in counters if figures[at].word.quantity == "step"]
    parts = [at for at in named if at != even and figures[at].total]
    if any((np.diff(rows.values[at]) < 0).mean() > 1 / 4 for at in parts):
        # In ``iteration:4 step:13/29`` the other one may count epochs.
        return None
    if even is not None or not counters or not _is_printed_at_even_times(rows):
        return even
    return next((at for at in named if _goes_on(rows.values[at])), None)


def _counts_epochs(rows: Rows, counter: int, others: Iterable[int]) -> bool:
    """Whether a counter is that of epochs: another one starts again where it rises.

    Parts of a step are counted one by one, and there are fewer of them than steps.
    """
    rises = np.diff(rows.values[counter]) > 0
    if not rises.any() or rises.all():
        return False
    lines_of_each = len(rows) / (rises.sum() + 1)
    for at in others:
        if rows.kind.figures[at].word.order <= rows.kind.figures[counter].word.order:
            change = np.diff(rows.values[at])
            starts_again = (change[rises] < 0).all() and (change[~rises] > 0).all()
            if starts_again and (np.median(change[~rises]) > 1 or rises.sum() < lines_of_each):
                return True
    return False


def _is_printed_at_even_times(rows: Rows) -> bool:
    """Whether timestamps are as far apart as the usual ones: a timer prints, not every tenth step."""
    if len(rows) < _FEWEST_RUNNING or not rows.stamps["timed"].all():
        return False
    took = np.diff(rows.stamps["ns"])
    even = np.abs(took - np.median(took)) <= _EVEN * np.median(took)
    return bool(even.mean() >= _SHARE_CHANGES)


def _goes_on(numbers: Floats) -> bool:
    """Whether whole numbers rise from nearly each line to the next, by about as much."""
    rises = np.diff(numbers)
    usual = float(np.median(rises))
    about = (rises >= usual / 2) & (rises <= 2 * usual)
    return _are_counts(numbers) and usual >= 1 and bool(about.mean() >= 1 - _SHARE_FALLS)


def epoch_of_each(rows: Rows) -> int | None:
    """Return the figure with the epoch if nearly each line is about the next one; None otherwise."""
    for at, figure in enumerate(rows.kind.figures):
        if figure.word.quantity == "epoch" and _counts(rows.values[at]):
            changes = np.diff(rows.values[at])
            is_next = (changes != 0).mean() > _SHARE_CHANGES and np.median(changes) == 1
            return at if is_next else None
    return None


def _counts(numbers: Floats) -> bool:
    """Whether whole numbers rise evenly, and fall seldom, or to where they began."""
    if not _are_counts(numbers):
        return False
    change = np.diff(numbers)
    rises = change[change > 0]
    if len(rises) < FEWEST_LINES - 2:
        # Each epoch may have a first and a last line only.
        return False
    _, counts = np.unique(rises, return_counts=True)
    falls = np.flatnonzero(change < 0) + 1
    begin = numbers.min() + float(np.median(rises))
    jumps = np.diff(numbers)[falls[falls < len(change)]] > 2 * float(np.median(rises))
    if jumps.sum() > _SHARE_FALLS * len(jumps):
        # Lines of something else are among them.
        return False
    seldom = len(falls) <= _SHARE_FALLS * len(change) or (numbers[falls] <= begin).all()
    return bool(counts.max() >= _SHARE_EVEN * len(rises) and seldom and len(falls) <= len(rises))


def _are_counts(numbers: Floats) -> bool:
    whole = (numbers == np.rint(numbers)).all()
    return bool(whole and (numbers >= 0).all() and (numbers < _MOST).all())


class Repeated(NamedTuple):
    """Steps that a restarted job trained again."""

    steps: int
    restarts: int
    #: The time of these steps and of the restarts, by timestamps; None without any.
    seconds: float | None

    @property
    def note(self) -> str:
        """Say which lines are used."""
        return (
            f"{self.steps:,} steps were trained twice, after {counted(self.restarts, 'restart')}: "
            "only the later ones are used"
        )


def without_repeated_steps(rows: Rows, counter: int) -> tuple[Rows, Repeated | None]:
    """Drop the lines about steps that a restarted job trained again."""
    steps = rows.values[counter]
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    every = float(np.median(np.diff(steps)[np.diff(steps) > 0]))
    if not len(falls) or (steps[falls] <= steps.min() + every).any():
        return rows, None
    kept, repeated = np.ones(len(steps), bool), 0
    for at in falls.tolist():
        kept[:at] &= steps[:at] < steps[at]
        repeated += int(steps[at - 1] - steps[at] + every)
    seconds = _lost_s(rows, steps, kept) if rows.stamps["timed"].all() else None
    again = np.diff(rows.stamps.get(RESTART, np.zeros(len(steps))), prepend=0) > 0
    again[falls] = True
    counted_rows = Rows(rows.kind, rows.values, {**rows.stamps, RESTART: np.cumsum(again)})
    return counted_rows.chosen(kept), Repeated(repeated, len(falls), seconds)


def _lost_s(rows: Rows, steps: Floats, kept: Bools) -> float:
    """Return by how much longer lines are apart where others between them are dropped."""
    took, count = np.diff(rows.stamps["ns"][kept]) / 1e9, np.diff(steps[kept])
    across = np.diff(np.flatnonzero(kept)) > 1
    usual = took / np.maximum(count, 1)
    longer = took - count * (float(np.median(usual[~across])) if (~across).any() else 0.0)
    return float(np.maximum(longer[across], 0.0).sum())


# -- clocks ----------------------------------------------------------------------------------------


class Clock(NamedTuple):
    """Moments of the lines of one rank."""

    ns: Ints
    #: The unit that they are rounded to.
    unit_ns: int
    name: str
    #: The figure that has them; None for timestamps of lines.
    figure: int | None = None
    #: Whether their unit is beyond doubt.
    is_certain: bool = True
    #: Whether they are times of day, as far as known.
    is_absolute: bool = False


def clock_of(seconds: Floats, name: str, figure: int | None = None, unit_s: float = 1.0) -> Clock:
    """Return the clock of printed times since 1970 or since a start, of a unit in seconds."""
    seconds = np.clip(seconds, -LATEST_S, LATEST_S)
    # Of times since 1970 a float has too few digits to show the unit.
    unit_ns = max(int(2e9 * unit_s * half_unit(np.round((seconds - seconds[0]) / unit_s, 6))), 1)
    return Clock(np.rint(seconds * 1e9).astype(np.int64), unit_ns, name, figure)


@dataclass(frozen=True)
class CountedLines:
    """Lines of one kind, whose counter is known."""

    #: The lines of all ranks, and of the rank that decides.
    rows: Rows
    sole: Rows
    counter: int

    @property
    def figures(self) -> Sequence[Figure]:
        """Return the figures of each line."""
        return self.sole.kind.figures

    @property
    def counts_epochs(self) -> bool:
        """Whether each line is about an epoch."""
        return self.figures[self.counter].word.quantity == "epoch"

    @cached_property
    def counts_steps(self) -> bool:
        """Whether its words, or other figures, tell how many of its numbers are a step."""
        named = self.figures[self.counter].word.quantity != "count"
        return named or bool(self.having("since")) or self.samples_per_step != 1.0

    @cached_property
    def samples_per_step(self) -> float | None:
        """Return the numbers of the counter in a step: 1 for steps; None if they are unknown."""
        if self.figures[self.counter].word.quantity in ("step", "epoch"):
            return 1.0
        change = np.diff(self.sole.values[self.counter])
        rise = float(np.median(change[change > 0]))
        for at in self.having("since"):
            return rise / max(float(np.median(self.sole.values[at])), 1.0)
        by_clock, named = self._batch_by_clock(int(rise)), self.figures[self.counter].word
        begins = self.sole.values[self.counter][np.append(True, change < 0)]
        total, first = self.figures[self.counter].total, float(begins[0])
        if (
            total
            and 1 < first < rise
            and (begins == first).all()
            and rise % first == 0 < total % first
        ):
            # ``[16/5011]`` is the first batch of samples.
            return first
        if by_clock is not None and (named.quantity == "samples" or by_clock >= _FEWEST_SAMPLES):
            return by_clock
        for batch in self._products():
            steps = rise / batch
            if batch > 1 and steps > 0.5 and abs(steps - round(steps)) < CONSTANT * steps:
                if named.quantity == "count" and self._are_steps_by_clock(rise, round(steps)):
                    break
                return rise / round(steps)
        return None if named.quantity == "samples" else 1.0

    def _products(self) -> Iterable[float]:
        """Yield the samples per step that times and rates of all devices give."""
        for time in self.having("time"):
            for rate in self.having("rate"):
                word = self.figures[rate].word
                if not word.of_a_device and word.thing in ("", "sample"):
                    seconds = self.sole.values[time] * (self.figures[time].word.unit_s or 1.0)
                    yield float(np.median(seconds * self.sole.values[rate]))

    def _batch_by_clock(self, rise: int) -> float | None:
        """Return the samples of a step by which the clock and times of a step agree; None without it.

        Lines that are so many samples apart have a whole number of steps between them.
        """
        counts, ns = self.sole.values[self.counter], self.sole.stamps["ns"]
        inside = np.diff(counts) == rise
        for at in self.having("time") if self.sole.stamps["timed"].all() and inside.any() else ():
            word, took = self.figures[at].word, np.diff(ns)[inside] / 1e9
            step_s = self.sole.values[at][1:][inside] * (word.unit_s or 1.0)
            steps = float(np.median(took / np.maximum(step_s, 1e-9)))
            near = range(max(int(steps / _DIVIDES), 1), min(int(steps * _DIVIDES) + 1, rise) + 1)
            whole = [number for number in near if rise % number == 0]
            if word.order == 0 and len(whole) == 1 and agrees(steps / whole[0], _DIVIDES):
                return rise / whole[0]
        return None

    def _are_steps_by_clock(self, rise: float, steps: int) -> bool:
        """Whether a rise agrees better with the clock as so many steps than as their samples."""
        took = np.diff(self.sole.stamps["ns"])[np.diff(self.sole.values[self.counter]) == rise]
        for at in self.having("time") if self.sole.stamps["timed"].all() and len(took) else ():
            step_s = float(np.median(self.sole.values[at])) * (self.figures[at].word.unit_s or 1.0)
            return bool(np.median(took) / 1e9 > step_s * (rise * steps) ** 0.5)
        return False

    @cached_property
    def lines(self) -> StepLines:
        """Return the numbered lines of the rank that decides."""
        return step_lines(self.columns_of(self.sole))

    def columns_of(self, rows: Rows) -> dict[str, Column]:
        """Return the columns of ``StepLines`` without times."""
        steps = rows.values[self.counter] / (self.samples_per_step or 1.0)
        columns = {**rows.stamps, "step": np.rint(np.clip(steps, 0, _MOST)).astype(np.int64)}
        if self._epoch_steps is not None:
            columns["steps"] = np.full(len(rows), self._epoch_steps)
        if self._epoch is not None and not self.counts_epochs:
            columns["epoch"] = np.clip(rows.values[self._epoch], 0, _MOST - 1).astype(np.int64)
        return columns

    @cached_property
    def _epoch_steps(self) -> int | None:
        """Return the maximum of a counter that reaches it in nearly each epoch; None without it.

        Steps after the last line of an epoch have no line: ``100/196`` is the last of every hundredth.
        """
        total, steps = self.figures[self.counter].total, self.sole.values[self.counter]
        rises = np.diff(steps)
        lasts = steps[:-1][rises < 0]
        if total is None or not len(lasts):
            return None
        reached = (lasts <= total) & (lasts + np.median(rises[rises > 0]) >= total)
        is_end = reached.mean() > 1 - _SHARE_FALLS
        return round(total / (self.samples_per_step or 1.0)) if is_end else None

    @cached_property
    def _epoch(self) -> int | None:
        """Return the figure with the epoch; None without one.

        Another counter (``[3/90][20/500]``) is one if it goes on where the counter begins again.
        """
        values = self.sole.values
        for at in self.having("epoch"):
            if _are_counts(values[at]):
                return at
        begins = np.diff(values[self.counter]) < 0
        for at in (*self.having("count"), *self.having("step")) if begins.any() else ():
            goes_on = np.diff(values[at]) == begins
            if (
                at != self.counter
                and _are_counts(values[at])
                and goes_on.mean() > 1 - _SHARE_FALLS
                and goes_on[begins].all()
            ):
                return at
        return None

    def having(self, quantity: str) -> list[int]:
        """Return the figures of a quantity, in the order of the line."""
        return [at for at, figure in enumerate(self.figures) if figure.word.quantity == quantity]

    # -- clocks

    @cached_property
    def clocks(self) -> list[Clock]:
        """Return what tells when lines were printed, the most reliable first."""
        clocks = []
        ns = self.lines.stamps_ns
        if ns is not None and len(self.lines) == len(self.sole):
            clocks.append(Clock(ns, self.lines.stamp_unit_ns, STAMPS))
        for at in (*self.having("stamp"), *self.having("time")):
            figure, unit_s = self.figures[at], since_1970(self.sole.values[at])
            if unit_s is not None:
                clock = clock_of(self.sole.values[at] * unit_s, "the lines' timestamps", at)
                clocks.append(clock._replace(is_absolute=True))
            elif figure.is_clock or self._is_running(at):
                unit_s = 1.0 if figure.is_clock else figure.word.unit_s or 1.0
                name = OF_DAY if figure.name == OF_DAY else _RUNNING
                clock = clock_of(self._seconds_of(at, unit_s), name, at, unit_s)
                certain = bool(figure.is_clock or figure.word.unit_s)
                clocks.append(clock._replace(is_certain=certain))
        return [clock for clock in clocks if self._goes(clock)]

    def _seconds_of(self, at: int, unit_s: float) -> Floats:
        """Return the seconds of a running time or of times of day."""
        seconds = self.sole.values[at] * unit_s
        if self.figures[at].word == TIME_OF_DAY:
            # The next day begins where it falls by more than half a day.
            falls = np.diff(seconds, prepend=seconds[0]) < -_DAY_S / 2
            seconds = seconds + _DAY_S * np.cumsum(falls)
        return seconds

    def _is_running(self, at: int) -> bool:
        """Whether a figure is the time since a start."""
        values = self.sole.values[at]
        change, later = np.diff(values), values[1:]
        if len(values) == len(self.lines):
            inside = ~self.lines.begins[1:]
            change, later = change[inside], later[inside]
        if len(change) < _FEWEST_RUNNING:
            return False
        usual = max(float(np.median(np.abs(change))), 1e-12)
        # After a restart it may begin again.
        again = (change < 0) & (later <= 2 * usual)
        rises = (change > 0) | (again if again.sum() <= _SHARE_FALLS * len(change) else False)
        rises |= (change == 0) & (rises.mean() > 1 / 2)  # whole seconds may be equal
        return bool(values.max() > 3 * usual and rises.mean() >= _SHARE_RISES)

    def _goes(self, clock: Clock) -> bool:
        """Whether a clock measures steps: it goes on, and is not too coarse for all lines together."""
        if len(clock.ns) != len(self.lines):
            return False
        took = np.diff(clock.ns)[~self.lines.breaks[1:]]
        # Where nearly every line begins a piece, lines may be missing before the few others.
        enough = len(took) >= max(2, _SHARE_INSIDE * len(clock.ns))
        return enough and took.sum() >= clock.unit_ns / PRECISE and (took >= 0).mean() > 0.9

    def alike(self, clock: Clock, second: Clock) -> bool:
        """Whether two clocks measure the same times."""
        breaks = (self.lines.breaks_by(*clock[:2]) | self.lines.breaks_by(*second[:2]))[1:]
        first_s, second_s = (float(np.diff(each.ns)[~breaks].sum()) for each in (clock, second))
        return second_s > 0 and agrees(first_s / second_s, _ALIKE)

    def spans(self, clock: Clock) -> tuple[Ints, Ints, Floats]:
        """Return stretches of lines, and the seconds of a step in each by the clock."""
        return spans(self.lines, clock.ns, clock.unit_ns, self.lines.breaks_by(*clock[:2]))

    def each_epoch(self, clock: Clock) -> tuple[Ints, Ints, Floats]:
        """Return the same for each epoch, however coarse the clock is."""
        end = np.flatnonzero(~self.lines.breaks_by(*clock[:2]))
        return end - 1, end, (clock.ns[end] - clock.ns[end - 1]) / 1e9 / self.lines.since[end]


def agrees(ratio: float, most: float) -> bool:
    """Whether a ratio is 1 up to a factor."""
    return bool(1 / most <= ratio <= most)
