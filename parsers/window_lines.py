"""Number the steps of printed lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stallscope.arrays.stats import interrupted, passes
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted

from .lines.line_blocks import Column
from .lines.timestamp_columns import OF_TIMESTAMPS
from .work_lines import RESTART, WORK_BETWEEN

#: The start of the names of columns with half of the unit of a field, by its text.
HALF = "half_"
#: The field with half of the unit of seconds that were measured, not printed.
MEASURED_HALF = "measured_half"
# If this share of lines has timestamps, those of the others are interpolated.
_NEARLY_ALL = 0.9
# A job with fewer pieces may have been restarted.
_FEWEST_EPOCHS = 3
# If the counter rises by so many times as much as usual once, and so in few lines, lines are missing.
_JUMP, _FEW_JUMPS = 20, 0.15
_MOST_DECIMALS = 6
# The usual time between lines is taken over so many. Most lines of a buffer follow each other within the
# first time, and all these together take at most this share of the log's time.
_AROUND, _WRITTEN_NS, _MOST_WRITTEN = 25, 2 * 10**6, 0.05
# Times between lines differ by their rounding.
_UNITS = 3


@dataclass(frozen=True)
class StepLines:
    """Lines of one rank, in their order, each about other steps."""

    columns: Mapping[str, Column]
    #: Whether a line is the first of a piece: step numbers begin again there, as in each epoch.
    begins: Bools
    #: Steps since the start of the piece, and since the line before; for a first line, its own steps.
    so_far: Ints
    since: Ints
    #: The last step of a line, counted from 0 over the job.
    last_step: Ints
    #: Lines that were left out because the line before is about the same step.
    repeated: int
    #: The number of first steps that are not in means so far.
    untimed: int = 0
    #: The printed number of the first step; None if unknown.
    first_step: int | None = None

    def __len__(self) -> int:
        return len(self.last_step)

    def of(self, name: str) -> Column | None:
        """Return a field of the lines; None if the format does not have it."""
        return self.columns.get(name)

    def half_unit(self, name: str) -> float:
        """Return half of the unit that a field is rounded to, by its numbers or by its text."""
        measured = self.of(MEASURED_HALF)
        if name == "seconds" and measured is not None:
            return float(np.median(measured))
        by_numbers, by_text = half_unit(self.columns[name]), self.of(HALF + name)
        return by_numbers if by_text is None else min(by_numbers, float(by_text.max()))

    @cached_property
    def piece(self) -> Ints:
        """Number the pieces of the log in which step numbers count up."""
        return pieces(self.begins)

    @cached_property
    def starts(self) -> Ints:
        """Return the first line of each piece."""
        return np.flatnonzero(self.begins)

    @cached_property
    def lasts(self) -> Ints:
        """Return the last line of each piece."""
        return np.append(self.starts[1:], len(self)) - 1

    def sums(self, values: Column) -> Column:
        """Return cumulative sums within each piece."""
        total = np.cumsum(values)
        return np.asarray(total - (total - values)[self.starts][self.piece])

    @cached_property
    def counted(self) -> Ints:
        """Count the steps of lines since the start of their piece."""
        return self.sums(self.since)

    @cached_property
    def jumps(self) -> Bools:
        """Mark lines before which lines are missing, as where parts of a log are put together."""
        most = _JUMP * np.median(self.since) if len(self) else 0
        jumps = np.append(np.append(False, ~self.begins & (self.since > most)), False)
        alone = jumps[1:-1] & ~jumps[:-2] & ~jumps[2:]
        return np.asarray(alone & (alone.sum() < _FEW_JUMPS * len(alone)))

    @cached_property
    def training(self) -> Ints:
        """Number the trainings of the log: each begins again with the first step of the first epoch."""
        epoch = self.of("epoch")
        if epoch is None or not len(self):
            return np.zeros(len(self), np.int64)
        begins = np.diff(passes(epoch), prepend=0) > 0
        is_same = np.diff(epoch, prepend=epoch[0]) == 0
        is_first, again = epoch == epoch.min(), self.begins & is_same & (self.piece > 0)
        # Steps that are counted again within other epochs are those of parts of an epoch.
        if not is_first.all() and not (again & ~is_first).any():
            begins |= is_first & again & (self.so_far == self.so_far[is_first].min())
        return np.cumsum(begins)

    @cached_property
    def again(self) -> Bools:
        """Mark lines with which the steps of an epoch begin again, and no known training."""
        epoch = self.of("epoch")
        if epoch is None or not len(self):
            return np.zeros(len(self), bool)
        changes = np.diff(epoch, prepend=epoch[0]) | np.diff(self.training, prepend=0)
        return np.asarray(self.begins & (self.piece > 0) & (changes == 0) & ~self.restarts)

    @cached_property
    def apart(self) -> Bools:
        """Mark lines before which lines are missing, or another training of the log may begin."""
        epoch = self.of("epoch")
        has_epochs = self._has_equal_pieces and len(self.starts) >= _FEWEST_EPOCHS
        if not len(self) or (epoch is None and has_epochs):
            return self.jumps
        # Pieces of different lengths, few of them, or all of one epoch may be trainings.
        training = self.piece if epoch is None or np.ptp(epoch) == 0 else self.training
        return np.asarray(self.jumps | (np.diff(training, prepend=0) > 0))

    @cached_property
    def restarts(self) -> Bools:
        """Mark lines before which the program started again."""
        starts = self.of(RESTART)
        again = 0 if starts is None else np.diff(starts, prepend=starts[:1])
        return np.full(len(self), again) > 0

    @cached_property
    def own_steps(self) -> Ints:
        """Return the steps that a line's own time is of."""
        return np.where(self.jumps, np.median(self.since).astype(np.int64), self.since)

    @cached_property
    def in_means(self) -> Ints:
        """Count the steps in means so far."""
        left_out = np.minimum(self.untimed, self.counted[self.starts] - 1)
        return np.asarray(self.counted - left_out[self.piece])

    @cached_property
    def epochs(self) -> Column | None:
        """Return each line's epoch; None if unknown.

        If no epoch is printed, pieces of equal length are epochs.
        """
        printed = self.of("epoch")
        if printed is not None or len(self.starts) < _FEWEST_EPOCHS:
            return printed
        return self.piece if self._has_equal_pieces else None

    @cached_property
    def _has_equal_pieces(self) -> bool:
        """Return whether all pieces are equally long, of which the last one may not be whole."""
        *whole, last = self.counted[self.lasts].tolist()
        return len({*whole}) <= 1 and last <= max(whole, default=last)

    @property
    def numbers(self) -> str | None:
        """Describe how printed step numbers count: ``from 1 in each epoch``; None if unknown."""
        if self.first_step is None:
            return None
        again = len(self.starts) - 1
        if not again:
            return f"from {self.first_step}"
        if self.of("epoch") is not None:
            return f"from {self.first_step} in each epoch"
        return f"from {self.first_step}, and begins again {counted(again, 'time')}"

    @cached_property
    def stamps_ns(self) -> Ints | None:
        """Return the timestamps of the lines; None unless nearly all of them have one.

        A timestamp that other output has cut off is interpolated.
        """
        timed, ns = self.columns["timed"], self.columns["ns"]
        if not len(self) or timed.mean() < _NEARLY_ALL:
            return None
        if timed.all():
            return ns
        at, known = np.arange(len(ns)), np.flatnonzero(timed)
        zero = ns[known[0]]
        between = np.interp(at, known, (ns[known] - zero).astype(np.float64))
        return np.where(timed, ns, zero + np.rint(between).astype(np.int64))

    @cached_property
    def breaks(self) -> Bools:
        """Mark lines before which the time is not that of their steps.

        A piece begins, after other work between epochs, lines are missing, the program started again, a
        clock was set back, or other work was done.
        """
        return self.breaks_by(self._ns, self.stamp_unit_ns)

    def breaks_by(self, ns: Ints, unit_ns: int) -> Bools:
        """Mark lines before which a clock's time is not that of their steps."""
        return np.asarray(self._apart_by(ns) | self.work_by(ns, unit_ns))

    @cached_property
    def work(self) -> Bools:
        """Mark lines before which other work than steps was done, by their timestamps."""
        return self.work_by(self._ns, self.stamp_unit_ns)

    def work_by(self, ns: Ints, unit_ns: int) -> Bools:
        """Mark lines before which other work was done: a clock's time is much longer than usual."""
        work, inside = np.zeros(len(ns), bool), np.flatnonzero(~self._apart_by(ns))
        took, since = (ns[inside] - ns[inside - 1]).astype(np.float64), self.since[inside]
        if len(inside) and not in_bursts(took).any():
            least = since * np.median(took / since) + _UNITS * unit_ns
            work[inside] = interrupted(took, since, _AROUND) & (took > least)
        return work

    def _apart_by(self, ns: Ints) -> Bools:
        """Mark lines that do not go on from the line before, by their steps or by a clock."""
        back = np.append(True, np.diff(ns) < 0)[: len(ns)]
        return np.asarray(self.begins | self.jumps | self.restarts | back)

    @property
    def _ns(self) -> Ints:
        return self.columns["ns"] if self.stamps_ns is None else self.stamps_ns

    @property
    def stamp_unit_ns(self) -> int:
        """Return the unit that timestamps are rounded down to, nanoseconds.

        The median counts: some programs leave out zeros at the end of a fraction.
        """
        units = np.sort(self.columns["resolution_ns"][self.columns["timed"]])
        return int(units[len(units) // 2]) if len(units) else 1


def step_lines(
    columns: Mapping[str, Column], first_step: int | None = None, untimed: int = 0
) -> StepLines:
    """Number the steps of one rank's lines.

    Args:
        columns: fields of the lines, ``step`` among them.
        first_step: the printed number of the first step; None to find it in the lines.
        untimed: the number of first steps that are not in means so far.
    """
    columns, repeated = without_repeated(columns, "step", "epoch")
    step = columns["step"]
    first = first_step
    if first is None:
        first = 0 if (step == 0).any() else 1
    so_far = step - first + 1
    begins = np.append(True, step[1:] <= step[:-1])[: len(step)]
    since = np.diff(so_far, prepend=0)
    since[begins] = so_far[begins]
    if not begins.all():
        # A job that continues from a checkpoint has not made all steps before its first line.
        usual = int(np.median(since[~begins]))
        to_next = np.where(np.append(begins[1:], True), usual, np.append(since[1:], usual))
        since[begins] = np.minimum(since[begins], np.maximum(to_next, usual)[begins])
    return StepLines(
        columns,
        begins,
        so_far,
        np.maximum(since, 1),
        _over_the_job(columns, begins, so_far),
        repeated,
        untimed,
        # Lines about every tenth step may count from 0 or from 1.
        first if first_step is not None or (step <= 1).any() else None,
    )


def without_repeated(
    columns: Mapping[str, Column], *names: str
) -> tuple[Mapping[str, Column], int]:
    """Keep one of consecutive lines about the same step or epoch, with a timestamp if one has it.

    Args:
        columns: fields of the lines.
        names: the fields that tell what a line is about.

    Returns:
        The lines, and the number of dropped ones that differ from the kept ones: other ranks print into
        the same file, while a second logger repeats lines.
    """
    same = _as_before(columns, *names)
    if not same.any():
        return columns, 0
    chosen = timed_of_each(same, columns["timed"])
    copies = _as_before(columns, *(set(columns) - {*OF_TIMESTAMPS, *WORK_BETWEEN}))
    return {name: column[chosen] for name, column in columns.items()}, int((same & ~copies).sum())


def timed_of_each(same: Bools, timed: Bools) -> Ints:
    """Return of lines like the one before the first with a timestamp, else the first."""
    starts, lines = np.flatnonzero(~same), len(same)
    chosen = np.minimum.reduceat(np.where(timed, np.arange(lines), lines), starts)
    return np.where(chosen < lines, chosen, starts)


def _as_before(columns: Mapping[str, Column], *names: str) -> Bools:
    """Mark lines with the same values as the line before."""
    known = [columns[name] for name in names if name in columns]
    same = np.logical_and.reduce([column[1:] == column[:-1] for column in known])
    return np.append(False, same)[: len(known[0])]


def _over_the_job(columns: Mapping[str, Column], begins: Bools, so_far: Ints) -> Ints:
    """Return the last step of each line, counted over all pieces."""
    starts = np.flatnonzero(begins)
    lasts = np.append(starts[1:], len(begins)) - 1
    lengths = so_far[lasts].copy()
    if "steps" in columns:
        lengths = np.maximum(lengths, columns["steps"][lasts])
    offsets = np.cumsum(lengths) - lengths
    return np.asarray(offsets[pieces(begins)] + so_far - 1)


def pieces(begins: Bools) -> Ints:
    """Number the pieces that begin at marked lines."""
    return np.cumsum(begins) - 1


def decimals_of(text: str) -> int:
    """Count the digits after the point of a number; 0 for other texts."""
    digits = text.partition(".")[2]
    return len(digits) if digits.isdecimal() else 0


def in_bursts(took: Column) -> Bools:
    """Mark times in which a buffer was written: nothing but the writing takes so short."""
    written = took < _WRITTEN_NS
    total, within = float(took.sum()), float(took[written].sum())
    are_most = written.sum() > len(took) / 2
    return np.asarray(written & are_most & (within < _MOST_WRITTEN * total))


def half_unit(values: Floats) -> float:
    """Return half of the unit that numbers are rounded to, by their decimals."""
    for decimals in range(_MOST_DECIMALS):
        scaled = values * 10.0**decimals
        if np.all(np.abs(scaled - np.rint(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)):
            return float(0.5 * 10.0**-decimals)
    return float(0.5 * 10.0**-_MOST_DECIMALS)


def by_rank(columns: Mapping[str, Column]) -> dict[int, dict[str, Column]]:
    """Split columns by rank, each rank's lines in their order."""
    rank = columns["rank"]
    # numpy sorts numbers of 16 bits in linear time.
    is_small = len(rank) > 0 and rank.min() >= -(2**15) and rank.max() < 2**15
    order = np.argsort(rank.astype(np.int16) if is_small else rank, kind="stable")
    in_order = rank[order]
    firsts = np.flatnonzero(np.append(True, in_order[1:] != in_order[:-1])[: len(rank)])
    ranks, pieces = in_order[firsts], np.split(order, firsts[1:])
    return {
        rank: {name: column[rows] for name, column in columns.items() if name != "rank"}
        for rank, rows in zip(ranks.tolist(), pieces, strict=True)
    }
