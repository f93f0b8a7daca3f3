"""Hold the chosen fields of one kind of lines, and test whether numbers count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from stallscope.arrays.types import Ints

from ...patterns.columns import DURATIONS
from .kinds import FEWEST_LINES, Candidate

NOTHING_REPEATS = "no kind of line repeats with changing numbers"
NOTHING_COUNTS = "no number in its repeating lines counts steps or epochs"
NO_TIMES = (
    "its lines count steps or epochs, and have neither timestamps nor durations; rates give "
    "times only if they are of samples, and the file has the batch size and the number of ranks"
)
WHOSE_TIMES = "its durations may be of one step, or of all steps since the line before"
#: Reasons why there is no pattern, from the first failed step to the last.
REASONS = (NOTHING_REPEATS, NOTHING_COUNTS, NO_TIMES, WHOSE_TIMES)
# The most consecutive lines that may repeat a number.
_MOST_REPEATS = 0.2


@dataclass
class Fields:
    """The chosen fields of one kind of lines."""

    #: The rank of each line.
    stream: Ints
    #: By their names.
    chosen: dict[str, Candidate] = field(default_factory=dict)
    #: Their values; timestamps may also be those of a launcher.
    ns: Ints | None = None
    step: Ints | None = None
    epoch: Ints | None = None
    notes: list[str] = field(default_factory=list)
    #: The reason if no times are found.
    no_times: str = NO_TIMES

    @property
    def has_times(self) -> bool:
        """Whether a pattern can read times."""
        return self.ns is not None or not self.chosen.keys().isdisjoint({*DURATIONS, "rate"})

    def pairs(self) -> tuple[Ints, Ints]:
        """Return pairs of consecutive lines in the output of a rank."""
        order = np.argsort(self.stream, kind="stable")
        same = self.stream[order][1:] == self.stream[order][:-1]
        return order[:-1][same], order[1:][same]

    def go_on(self, numbers: Ints) -> bool:
        """Whether numbers do not fall, except to their start."""
        first, then = self.pairs()
        falls = (numbers[then] < numbers[first]) & (numbers[then] > numbers.min() + 1)
        return int(falls.sum()) <= 0.1 * len(falls)

    def count(self, numbers: Ints) -> bool:
        """Whether numbers rise evenly from line to line, and only begin again with an epoch."""
        first, then = self.pairs()
        change = numbers[then] - numbers[first]
        rises = change[change > 0]
        if len(rises) < FEWEST_LINES - 2:
            return False
        step, count = Counter(rises.tolist()).most_common(1)[0]
        begins = (change < 0) & (numbers[then] <= numbers.min() + step)
        if self.epoch is not None:
            begins |= (change < 0) & (self.epoch[then] > self.epoch[first])
        wrong = int(((change < 0) & ~begins).sum())
        return count >= 0.5 * len(rises) and wrong <= 0.1 * len(rises)

    def repeat(self) -> bool:
        """Whether lines often repeat the number of the line before, as mixed kinds of lines do."""
        numbers = self.epoch if self.step is None else self.step
        assert numbers is not None
        first, then = self.pairs()
        return int((numbers[then] == numbers[first]).sum()) > _MOST_REPEATS * len(first)

    def steps_apart(self) -> int:
        """Return the number of steps between lines."""
        if self.step is None:
            return 1
        first, then = self.pairs()
        change = self.step[then] - self.step[first]
        return int(np.median(change[change > 0]))
