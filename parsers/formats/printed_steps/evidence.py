"""Decide by the numbers what the figures of lines mean, and whether that can be trusted.

A reading is trusted if figures that do not depend on each other agree: printed seconds and the log's
clock, rates and seconds and a printed batch, timestamps and a running time. Where printed seconds and
the clock disagree, the clock counts. Programs of which more is known are rows of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from stallscope.arrays.types import Floats

from ...epochs_only import LATEST_NS
from ...lines.line_blocks import Column
from ...lines.timestamp_columns import stamps_by
from ...window_durations import Value, with_work
from ...window_lines import HALF, MEASURED_HALF, decimals_of, half_unit
from ...window_meaning import ClockCheck, alone_if_long
from .counters import (
    STAMPS,
    Clock,
    Repeated,
    agrees,
    counter_of,
    epoch_of_each,
    of_first_arrivals,
    without_repeated_steps,
)
from .rates import AGREE, ON_BATCH, ComparedLines, percent
from .rows import Rows, of_main_rank, without_copies
from .trainers import TRAINERS
from .vocabulary import names_each, names_step_time

# If all lines together agree with the clock to this ratio, times are means over the steps between lines,
# otherwise of the last step.
_AGREE_IN_ALL = 1.03
# Times of steps, in seconds, and of damage.
_SHORTEST_S, _LONGEST_S, _DAMAGED_S = 1e-5, 86_400.0, 1e9
_OF_ONE_LINE = 1.5  # times one line's: the sum over the steps of two lines is longer
_COARSEST = 0.03  # of times: coarser ones are left to the clock
_ALIKE_PARTS = 0.8  # of lines: an evaluation is a part of some steps
_UNITS_S = (1.0, 1e-3, 1e-6, 60.0)  # possible ones of times without a unit

KNOWN_FROM = "lines about steps"
NOTHING_COUNTS = "no number in its repeating lines goes on from line to line as steps do"
NO_TIMES = "the lines that count steps have no known timestamps and no times of steps"
NO_STEPS_TIMES = "its times are no seconds of a step"
ONLY_RATES = "its lines count steps and have rates, but no timestamps, times or steps per second"
SEVERAL_PRINT = (
    "several ranks print into this file without labels: the first line of each step is used"
)
WHOSE_TIMES = "its durations may be of one step, or of all steps since the line before"
#: Of several reasons, the last of these tells most.
REASONS = (NOTHING_COUNTS, NO_TIMES, NO_STEPS_TIMES, ONLY_RATES, WHOSE_TIMES)
#: The start of the names of columns with other stages.
PART = "part "
_OF_EPOCHS = ("rank", "seconds", "timed", "ns", "zone_known", "resolution_ns", "year_known")
_RESULTS = ("loss", "acc", "error", "score", "reward", "ppl", "perplexity", "iou", "auc", "psnr")


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
    #: What they are, for the report.
    known_from: str = KNOWN_FROM
    #: Whether each line is about an epoch: ``epoch`` takes the place of ``step``.
    of_epochs: bool = False
    #: Whether these lines are at the end of their epochs, as they have its loss.
    at_end: bool = False
    #: The printed number of the first epoch, 0 or 1, also if its time is unknown; None to be found.
    first_epoch: int | None = None
    #: Steps that a restarted job trained again; None without any.
    repeated: Repeated | None = None
    #: What confirms a batch size, ``rates`` or the ``lines`` that have it; None if nothing does.
    batch_from: str | None = None


def evidence_in(rows: Rows, batches: Iterable[int] = ()) -> Evidence | str:
    """Decide what the figures of a kind mean; return the reason if they tell no times of steps.

    Args:
        rows: its lines.
        batches: the batch sizes that the log states.
    """
    of_a_rank = of_main_rank(rows)
    first = of_first_arrivals(of_a_rank)
    shared = (SEVERAL_PRINT,) if len(first) < len(of_a_rank) else ()
    sole = without_copies(first)
    counter, epoch = counter_of(sole), epoch_of_each(sole)
    orders = [figure.word.order for figure in rows.kind.figures if figure.word.quantity == "time"]
    # With a duration, a line about another epoch than the line before tells how long that took.
    if epoch is not None and (counter is None or (orders and 0 not in orders)):
        return _of_epochs(_Lines(rows, sole, epoch, frozenset()))
    if counter is None:
        return NOTHING_COUNTS
    # Several ranks without labels print the same step one after another.
    sole = sole.chosen(np.append(True, np.diff(sole.values[counter]) != 0))
    timed = sole.stamps["timed"]
    if timed[:-1].all():
        # The last line of a log may lack its copy by a logger with timestamps.
        sole = sole.chosen(timed)
    ranks = np.unique(rows.stamps["rank"])
    several = len(ranks) > 1
    sole, repeated = (sole, None) if several else without_repeated_steps(sole, counter)
    lines = _Lines(rows if several else sole, sole, counter, frozenset(batches))
    evidence = lines.evidence()
    if isinstance(evidence, str):
        return evidence
    if len(evidence.columns["rank"]) < 2:
        return NO_TIMES
    if several and evidence.size is None and (ranks == np.arange(len(ranks))).all():
        evidence = replace(evidence, size=len(ranks))
    notes = (*evidence.notes, *shared, *([] if repeated is None else [repeated.note]))
    return replace(evidence, notes=notes, repeated=repeated)


def _of_epochs(lines: _Lines) -> Evidence | str:
    """Return the evidence of lines that are about an epoch each."""
    evidence = lines.evidence()
    if isinstance(evidence, str) or len(evidence.columns["rank"]) < 2:
        return evidence if isinstance(evidence, str) else NO_TIMES
    fields = {*_OF_EPOCHS, MEASURED_HALF} & evidence.columns.keys()
    columns = {name: evidence.columns[name] for name in fields}
    columns["epoch"] = evidence.columns["step"]
    has_results = any(part in name for name in lines.sole.kind.words for part in _RESULTS)
    # The first of several lines about an epoch is at its start.
    at_end = has_results and bool((np.diff(columns["epoch"]) != 0).mean() > _ALIKE_PARTS)
    lowest = int(lines.sole.values[lines.counter].min() == 1)
    return replace(evidence, columns=columns, of_epochs=True, at_end=at_end, first_epoch=lowest)


# -- times -----------------------------------------------------------------------------------------


class _Time(NamedTuple):
    """A figure read as times of steps."""

    figure: int
    unit_s: float
    #: ``step`` (of one step, or the mean of several), ``total`` (of all steps since the line before),
    #: ``so far`` (the mean over all steps so far), or ``rest`` (without the wait for data).
    meaning: str
    check: ClockCheck


_UNCHECKED = ClockCheck(1.0, 1.0, 0.0)


@dataclass(frozen=True)
class _Lines(ComparedLines):
    """Lines of one kind, whose figures are to be understood."""

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
        others = [second for second in rest if second.name != clock.name]
        alike = dict.fromkeys(second.name for second in others if self.alike(clock, second))
        checks = [f"{clock.name} and {name} agree" for name in alike]
        times = [time for time in self._times(clock) if agrees(time.check.typical, AGREE)]
        if times:
            return self._printed(min(times, key=self._doubt), clock, checks)
        return self._measured(clock, checks)

    # -- printed times

    def _times(self, clock: Clock) -> Iterable[_Time]:
        """Yield the ways to read figures as times, with their ratios to a clock."""
        begin, end, by_clock = self.spans(clock)
        if not len(by_clock):
            return
        since = self.lines.since
        for at in self.having("time"):
            figure = self.figures[at]
            if at in [each.figure for each in self.clocks]:
                continue
            values = self.sole.values[at]
            # A time that never changes is as precise as its text.
            half = min(half_unit(values), 0.5 * 10.0 ** -decimals_of(figure.text))
            if half > _COARSEST * float(np.median(values)) or self._runs_down(values):
                continue
            # In parentheses after the last step's is the mean.
            readings = {} if figure.in_parentheses else {"step": values * since, "total": values}
            if (figure.in_parentheses or self._from_the_start()) and not self.counts_epochs:
                readings["so far"] = np.diff(values * self.lines.so_far, prepend=0.0)
            wait = self.data_in(at)
            if wait is not None and not figure.in_parentheses:
                readings["rest"] = (values + self.sole.values[wait]) * since
            # Nobody prints the time of a step in minutes.
            possible = _UNITS_S if figure.word.order else _UNITS_S[:-1]
            unit_s = 1.0 if figure.is_clock else figure.word.unit_s
            units = possible if unit_s is None else (unit_s,)
            for meaning, seconds in readings.items():
                if meaning == "total" and (since == 1).all():
                    continue
                for unit_s in units:
                    check = ClockCheck.of(seconds * unit_s, clock.ns, begin, end)
                    yield _Time(at, unit_s, meaning, check)

    def _from_the_start(self) -> bool:
        """Whether the lines tell of all steps since the job's or each epoch's start."""
        return bool((self.lines.so_far == self.lines.counted).all())

    def _doubt(self, time: _Time) -> tuple[float, float]:
        """Return how doubtful a reading is: by its meaning and its words, then by its ratio."""
        order = {"step": 0, "rest": 1, "total": 2, "so far": 3}[time.meaning]
        is_mean = self.figures[time.figure].word.is_mean
        # Among readings that agree about equally well, the plain one counts.
        off = round(abs(np.log(time.check.typical)) / 0.03)
        return off, order + self.figures[time.figure].word.order / 10 + is_mean / 20

    def _fields(self, time: _Time) -> dict[str, Column]:
        """Return the columns of a time for all ranks: its seconds, and the wait for data."""
        values, wait = self.rows.values, self.data_in(time.figure)
        seconds = values[time.figure] * time.unit_s
        name = "mean_seconds" if time.meaning == "so far" else "seconds"
        half = 0.5 * 10.0 ** -decimals_of(self.figures[time.figure].text) * time.unit_s
        fields = {name: seconds, HALF + name: np.full(len(seconds), half)}
        if time.meaning == "total":
            return {**fields, name: self._over_gaps(seconds)}
        if time.meaning == "so far":
            means = self.mean_data_in(time.figure)
            factor = 0.0 if means is None else self.data_factor(means, time.figure) * time.unit_s
            return fields if means is None else {**fields, "mean_data": values[means] * factor}
        if wait is None:
            return {**fields, **self._parts(time.unit_s)}
        data = values[wait] * self.data_factor(wait, time.figure) * time.unit_s
        if time.meaning == "rest":
            seconds = seconds + data
        data = np.clip(data, 0.0, np.maximum(seconds, 0.0))
        return {**fields, name: seconds, "data": data, **self._parts(time.unit_s)}

    def _parts(self, unit_s: float) -> dict[str, Column]:
        """Return the seconds of other stages, in the unit of the step's time if they have none."""
        return {
            f"{PART}{self.figures[at].name}": self.rows.values[at]
            * (self.figures[at].word.unit_s or unit_s)
            for at in self.having("part")
            if not self.figures[at].in_parentheses
        }

    # -- readings

    def _printed(self, time: _Time, clock: Clock, checks: Sequence[str]) -> Evidence:
        """Return the evidence of printed times that agree with a clock."""
        checks = [f"agree with {clock.name} within {percent(time.check.typical)}", *checks]
        value: Value = "last"
        if time.meaning == "total":
            value = "total"
            if not self.counts_steps:
                # Sums agree with the clock whatever the counter counts.
                checks = []
        elif (self.lines.own_steps == 1).all() or agrees(time.check.of_all, _AGREE_IN_ALL):
            value = "mean"
        return self._of(self._fields(time), value, checks)

    def _measured(self, clock: Clock, checks: Sequence[str]) -> Evidence | str:
        """Return the evidence of lines whose times their clock measures."""
        checks = [*checks, *self.rates_agree(clock)]
        named = self.figures[self.counter].word.quantity in ("step", "epoch")
        trains = self.sole.kind.trains or bool(self.having("rate"))
        if not checks and named and clock.is_certain and trains:
            checks = [f"are measured by {clock.name}"]
        notes = self._disagreement(clock)
        if clock.name == STAMPS:
            return self._of({}, "mean", checks, notes)
        if clock.is_absolute:
            return self._of(self._as_stamps(clock), "mean", checks, notes)
        return self._running(clock, checks, notes)

    def _as_stamps(self, clock: Clock) -> dict[str, Column]:
        assert clock.figure is not None
        factor = clock.ns[0] / self.sole.values[clock.figure][0]
        ns = np.rint(np.clip(self.rows.values[clock.figure] * factor, 0, LATEST_NS))
        return stamps_by(ns.astype(np.int64), clock.unit_ns)

    def _running(self, clock: Clock, checks: Sequence[str], notes: Sequence[str]) -> Evidence | str:
        """Return the evidence of the differences of a running time."""
        begin, end, _ = self.each_epoch(clock) if self.counts_epochs else self.spans(clock)
        if not len(end):
            return NO_TIMES
        begin, end = with_work(begin, end, self.lines.work_by(*clock[:2]))
        columns = {name: column[end] for name, column in self.columns_of(self.sole).items()}
        steps = self.lines.counted[end] - self.lines.counted[begin]
        seconds = (clock.ns[end] - clock.ns[begin]) / 1e9 / steps
        columns |= {"seconds": seconds, MEASURED_HALF: clock.unit_ns / 1e9 / steps}
        return Evidence(columns, "mean", tuple(checks), tuple(notes), self._size())

    def _disagreement(self, clock: Clock) -> list[str]:
        """Return a note on printed times of steps that the clock contradicts."""
        for time in self._times(clock):
            figure = self.figures[time.figure]
            is_step = figure.word.order == 0 and names_step_time(figure.name)
            if time.meaning == "step" and is_step and time.unit_s == (figure.word.unit_s or 1.0):
                return [time.check.note(clock.name)]
        return []

    def _without_clock(self) -> Evidence | str:
        """Return the evidence of lines without a clock: times, rates and what is left may agree."""
        reason = ONLY_RATES if self.having("rate") else NO_TIMES
        for at in sorted(self.having("time"), key=self._likeliness):
            word = self.figures[at].word
            unit_s = word.unit_s or 1.0
            seconds = self.sole.values[at] * unit_s
            usual = float(np.median(seconds))
            if self._runs_down(seconds) or not _SHORTEST_S < usual < _LONGEST_S:
                reason = NO_STEPS_TIMES
                continue
            if self.counts_epochs and not word.order:
                continue
            if totals := self.totals_agree(seconds):
                time = _Time(at, unit_s, "total", _UNCHECKED)
                return self._of(self._fields(time), "total", totals)
            if word.order and not self._is_of_each(at):
                reason = WHOSE_TIMES
                continue
            coarse = self.coarseness_so_far(at, seconds, half_unit(seconds))
            time = _Time(at, unit_s, "step" if coarse is None else "so far", _UNCHECKED)
            checks = [] if word.unit_s is None else self.product_agrees(seconds)
            checks = checks or self.left_agrees(seconds) or self._parts_agree(at)
            return self._of(self._fields(time), "last", checks if (coarse or 0) < _COARSEST else [])
        return self._by_rates_of_steps() or reason

    def _runs_down(self, seconds: Floats) -> bool:
        """Whether times fall from line to line, and near the end to nothing, as what is left does."""
        falls = (np.diff(seconds) <= 0).mean() >= 1 - _COARSEST
        return bool(falls and seconds[-1] < seconds[len(seconds) // 2] / 2)

    def _parts_agree(self, time: int) -> list[str]:
        """Return a check if other times in a line, as of a step's parts, add up to a time."""
        unit_s = self.figures[time].word.unit_s
        parts = [*self.having("time"), *self.having("data"), *self.having("part")]
        parts = [at for at in parts if at != time and self.figures[at].word.unit_s == unit_s]
        sums, whole = np.sum([self.sole.values[at] for at in parts], axis=0), self.sole.values[time]
        alike = len(parts) > 1 and (np.abs(sums - whole) < _COARSEST * whole).mean() > _ALIKE_PARTS
        return ["the times of its parts add up to them"] if alike else []

    def _by_rates_of_steps(self) -> Evidence | None:
        """Return the evidence of steps per second; None without them."""
        for at in self.having("rate"):
            rates = self.sole.values[at]
            if self.figures[at].word.thing == "step" and (rates > 0).all():
                half_s = half_unit(rates) / float(np.median(rates)) ** 2
                coarse = self.coarseness_so_far(at, 1 / rates, half_s)
                name = "seconds" if coarse is None else "mean_seconds"
                checks = self.left_agrees(1 / rates) if (coarse or 0) < _COARSEST else []
                return self._of({name: 1 / np.maximum(self.rows.values[at], 1e-12)}, "last", checks)
        return None

    def _likeliness(self, time: int) -> tuple[int, bool, bool]:
        """Return a key by which the likeliest times of steps come first: by their names, or a total."""
        figure, values = self.figures[time], self.sole.values
        parts = [at for at in (*self.having("time"), *self.having("part")) if at != time]
        is_sum = len(parts) > 1 and (values[time] >= np.sum([values[at] for at in parts], 0)).all()
        is_total = bool(is_sum) and "total" in figure.name
        return figure.word.order, not is_total, not names_step_time(figure.name)

    def _is_of_each(self, time: int) -> bool:
        """Whether a time is of one step by its name, or as each step has a line."""
        name, unit_s = self.figures[time].name, self.figures[time].word.unit_s
        has_mean = any(self.figures[at].in_parentheses for at in self.having("time"))
        is_of_each = np.median(self.lines.since) == 1 or names_each(name, unit_s, has_mean=has_mean)
        return bool(is_of_each) and (self.counts_epochs or "epoch" not in name.split())

    def _known_program(self) -> Evidence | None:
        """Return the evidence of a known program's lines; None for others."""
        words = self.sole.kind.words
        for trainer in TRAINERS:
            named = (at for at in self.having("time") if trainer.has_time(self.figures[at].name))
            at, is_last = next(named, None), trainer.meaning.value == "last"
            if at is None or not trainer.prints(words):
                continue
            if is_last and self.figures[at].word.unit_s is None:
                continue  # others print ``time 3.2``, since the start
            meaning = "total" if trainer.meaning.value == "total" else "step"
            time = _Time(at, self.figures[at].word.unit_s or 1.0, meaning, _UNCHECKED)
            fields = self._fields(time)
            if is_last and self.rows is self.sole:
                fields["seconds"] = alone_if_long(fields["seconds"], self.lines.since)
            check = f"are read as {trainer.name} prints them"
            value: Value = "total" if meaning == "total" else "mean"
            return self._of(fields, value, [check], (), trainer.meaning.known_from)
        return None

    def _over_gaps(self, sums: Floats) -> Floats:
        """Return sums over all steps since the line before, where that line is missing."""
        since = self.lines.since
        if len(since) != len(sums):
            return sums
        gaps = since > (usual := float(np.median(since)))
        alone = gaps & (sums < _OF_ONE_LINE * float(np.median(sums[~gaps])))
        return np.where(alone, sums * since / usual, sums)

    def _of(
        self,
        fields: Mapping[str, Column],
        value: Value,
        checks: Sequence[str],
        notes: Sequence[str] = (),
        known_from: str = KNOWN_FROM,
    ) -> Evidence:
        columns = {**self.columns_of(self.rows), **fields}
        known = np.ones(len(self.rows), bool)
        for name, column in fields.items():
            known &= not name.endswith("seconds") or (column >= 0) & (column < _DAMAGED_S)
        columns = {name: column[known] for name, column in columns.items()}
        evidence = Evidence(columns, value, tuple(checks), tuple(notes), self._size(), known_from)
        in_lines = any(self.figures[at].word.order == 0 for at in self.having("batch"))
        by_rates = any(ON_BATCH in check for check in checks)
        return replace(evidence, batch_from="rates" if by_rates else "lines" if in_lines else None)

    def _size(self) -> int | None:
        """Return the number of ranks by rates of all devices and of one; None without these."""
        rates, values = self.having("rate"), self.sole.values
        of_one = [at for at in rates if self.figures[at].word.of_a_device]
        for device in of_one:
            for total in (at for at in rates if at not in of_one):
                ratio = float(np.median(values[total] / np.maximum(values[device], 1e-12)))
                if ratio >= 1 and abs(ratio - round(ratio)) < 0.01 * ratio:
                    return round(ratio)
        return None
