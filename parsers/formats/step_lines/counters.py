"""Find the counter of lines, and the lines between which a clock can measure its steps."""

from __future__ import annotations

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.lists import counted

from ...window_lines import StepLines, stretches
from .figures import FEWEST_LINES, Rows

# A counter rises by the same number in this share of its lines, and falls in at most this share.
_SHARE_EVEN, _SHARE_FALLS = 0.5, 0.1
# A clock has to measure steps to this share of their time.
PRECISE = 0.05
# The quantities that may count steps, the likeliest first.
_COUNTERS = {"step": 0, "count": 10, "samples": 20}


def of_main_rank(rows: Rows) -> Rows:
    """Return the lines of the rank that has most of them."""
    ranks, counts = np.unique(rows.stamps["rank"], return_counts=True)
    return rows.chosen(rows.stamps["rank"] == ranks[counts.argmax()])


def without_copies(rows: Rows) -> Rows:
    """Drop lines with the figures of the line before: a second logger or rank prints them."""
    same = np.logical_and.reduce(
        [(column[1:] == column[:-1]) | np.isnan(column[1:]) for column in rows.values]
    )
    return rows.chosen(np.append(True, ~same)[: len(rows)])


def counter_of(rows: Rows) -> int | None:
    """Return the figure that counts steps or samples; None if none does."""
    figures = rows.kind.figures
    counters = [at for at, figure in enumerate(figures) if figure.word.quantity in _COUNTERS]
    counters.sort(key=lambda at: _COUNTERS[figures[at].word.quantity] + figures[at].word.order)
    return next((at for at in counters if _counts(rows.values[at])), None)


def _counts(numbers: Floats) -> bool:
    """Whether whole numbers rise evenly, and fall seldom, or to where they began."""
    if not (numbers == np.rint(numbers)).all() or (numbers < 0).any():
        return False
    change = np.diff(numbers)
    rises = change[change > 0]
    if len(rises) < FEWEST_LINES - 2:
        # Each epoch may have a first and a last line only.
        return False
    _, counts = np.unique(rises, return_counts=True)
    falls = np.flatnonzero(change < 0) + 1
    begin = numbers.min() + float(np.median(rises))
    seldom = len(falls) <= _SHARE_FALLS * len(change) or (numbers[falls] <= begin).all()
    return bool(counts.max() >= _SHARE_EVEN * len(rises) and seldom and len(falls) <= len(rises))


def without_repeated_steps(rows: Rows, counter: int) -> tuple[Rows, str]:
    """Drop the lines about steps that a restarted job trained again, with a note on them."""
    steps = rows.values[counter]
    falls = np.flatnonzero(np.diff(steps) < 0) + 1
    every = float(np.median(np.diff(steps)[np.diff(steps) > 0]))
    if not len(falls) or (steps[falls] <= steps.min() + every).any():
        return rows, ""
    kept, repeated = np.ones(len(steps), bool), 0
    for at in falls.tolist():
        kept[:at] &= steps[:at] < steps[at]
        repeated += int(steps[at - 1] - steps[at] + every)
    note = (
        f"{repeated:,} steps were trained twice, after {counted(len(falls), 'restart')}: "
        "only the later ones are used"
    )
    return rows.chosen(kept), note


def spans(lines: StepLines, ns: Ints, unit_ns: int, breaks: Bools) -> tuple[Ints, Ints, Floats]:
    """Return spans of lines that a clock can measure, and the seconds of a step in each.

    Args:
        lines: the lines.
        ns: their moments on the clock.
        unit_ns: the unit that these are rounded to.
        breaks: marks lines before which the time is not that of their steps.

    Returns:
        The first and the last line of each span, and its seconds per step.
    """
    begin, end = stretches(ns, breaks, int(unit_ns / PRECISE))
    last = np.append(np.flatnonzero(breaks)[1:] - 1, len(ns) - 1)[np.cumsum(breaks) - 1]
    # The rest of a piece is too short for a span, and belongs to the one before.
    ends_piece = np.append(last[end][1:] != last[end][:-1], True)[: len(end)]
    end = np.where(ends_piece, last[end], end)
    steps = lines.counted[end] - lines.counted[begin]
    keep = (steps > 0) & (ns[end] > ns[begin])
    seconds = (ns[end] - ns[begin])[keep] / 1e9 / steps[keep]
    return begin[keep], end[keep], np.asarray(seconds)
