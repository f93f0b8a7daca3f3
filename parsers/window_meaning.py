"""Decide what the times in lines mean: by what is known of their program, and by the clock.

Programs do not say what their means are over, and versions differ, so lines must agree with it: times of
all steps with timestamps. Running means are undone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from stallscope.arrays.stats import running_median
from stallscope.arrays.types import Bools, Floats, Ints

from .window_durations import (
    FEWEST,
    PRECISE,
    Durations,
    Times,
    Value,
    as_printed,
    between_stamps,
    by_meaning,
    every,
    of_means,
    of_totals,
    stretches,
    with_means,
)
from .window_lines import StepLines, in_bursts

# A clock refutes times by this ratio; larger ones are damage.
_ABOUT, _DAMAGED = 1.25, 1e5
# Running means over more steps than this are not looked for.
_LONGEST_RUNNING, _LINES_OF_RUNNING = 200, 1000
# A clock agrees with steps up to this share of its time and this many of its units.
_CLOCK_SHARE, _CLOCK_UNITS = 0.02, 2
# Known meanings hold if they differ from the clock by this share at most, and others do not by less.
_OFF = 0.05
# The last step of a line stands for itself if it takes so many times what it takes in the lines near it.
_ALONE, _NEAR = 5, 9
# A larger difference from the clock is told.
_TOLD = 0.03


class ClockCheck(NamedTuple):
    """How printed times compare with a clock."""

    #: The ratio of a typical stretch, and of all together.
    typical: float
    of_all: float
    #: The sum of all differences, as a share of the clock's time.
    error: float

    @classmethod
    def of(cls, seconds: Floats, ns: Ints, begin: Ints, end: Ints) -> ClockCheck:
        """Compare the printed times of each line's steps with the clock, from line to line."""
        clock = np.maximum(ns[end] - ns[begin], 1) / 1e9
        so_far = np.cumsum(seconds)
        printed = so_far[end] - so_far[begin]
        return cls(
            float(np.median(printed / clock)),
            float(printed.sum() / clock.sum()),
            float(np.abs(printed - clock).sum() / clock.sum()),
        )

    @property
    def refutes(self) -> bool:
        """Whether the clock refutes them.

        Pauses between lines, or lines that were written together, change one of the ratios only.
        """
        least, most = sorted((self.typical, self.of_all))
        return _DAMAGED > least > _ABOUT or 1 / _DAMAGED < most < 1 / _ABOUT

    @property
    def difference(self) -> str:
        """Say that steps take longer or shorter by the log's timestamps; empty if by about as long."""
        longer = 1 / max(self.of_all, 1e-9) - 1
        alike = min(abs(1 / max(self.typical, 1e-9) - 1), abs(longer)) <= _TOLD
        if alike or (self.typical > 1) != (self.of_all > 1):
            return ""
        how = "longer" if longer > 0 else "shorter"
        by = f"{abs(longer):.1%} {how}"
        return f"by the log's timestamps, steps took {by} than their printed times say"

    def note(self, clock: str) -> str:
        """Say that a clock contradicts them."""
        return (
            f"steps took {1 / max(self.typical, 1e-9):,.3g} times as long by {clock} as their "
            "printed times say: the clock counts"
        )


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


def durations(
    lines: StepLines,
    value: Value,
    samples: float | None,
    *,
    window: int | None = None,
    is_certain: bool = False,
) -> Durations | None:
    """Measure windows; None if lines have no times.

    Versions of a program print other times: if the clock refutes the given meaning, it decides.

    Args:
        lines: the lines of one rank.
        value: the meaning of their ``seconds`` and ``data``.
        samples: samples per step in the lines' rates; None if unknown.
        window: the number of last steps that means are over; None for those since the line before.
        is_certain: whether the meaning is beyond doubt.
    """
    printed = Times.of(lines, "seconds", "rate", samples)
    so_far = Times.of(lines, "mean_seconds", "mean_rate", samples)
    if window is not None and printed is not None:
        windows: Durations | None = _of_last_steps(lines, printed, window)
    else:
        windows = by_meaning(lines, value, printed, so_far)
    check = None if windows is None else _against_clock(lines, windows)
    if windows is None or check is None:
        return windows
    if is_certain or check.error <= _OFF:
        return replace(windows, note=check.difference)
    are_means = value == "mean" and windows.source in ("mean", "running")
    undone = _undone(lines, printed) if are_means and printed else None
    if undone is not None:
        return undone
    for reading in _readings(lines, printed, so_far):
        better = _against_clock(lines, reading)
        if better is not None and better.error <= min(_OFF, check.error / 2):
            return reading
    by_clock = between_stamps(lines) if check.refutes else None
    if by_clock is None:
        return replace(windows, note=check.difference)
    return replace(by_clock, note=check.note("the log's timestamps"))


def _readings(lines: StepLines, printed: Times | None, so_far: Times | None) -> Iterator[Durations]:
    """Yield what printed times may be, of the steps of a line or so far, without waits or with them."""
    data = lines.of("data")
    for times in (printed, so_far):
        if times is not None:
            yield as_printed(lines, times, "mean")
            yield of_totals(lines, times)
            yield of_means(lines, None, times, "mean")
            if data is not None:
                yield as_printed(lines, Times(times.seconds + data, times.half_s), "mean")


def _against_clock(lines: StepLines, windows: Durations) -> ClockCheck | None:
    """Compare windows with the clock; None if that is not precise enough."""
    ns, enough = lines.stamps_ns, int(lines.stamp_unit_ns / PRECISE)
    if ns is None:
        return None
    took = np.diff(ns)[~lines.breaks[1:]]
    later = took[~in_bursts(took)]
    if len(later) < len(took) and np.median(later) > enough:
        # Lines in a buffer get the time at which it is full.
        return None
    ns, piece = ns[windows.at], np.cumsum(lines.breaks)[windows.at]
    begin, end = stretches(ns, np.append(True, np.diff(piece) > 0)[: len(piece)], enough)
    if (ns[end] - ns[begin]).sum() < max(enough, 1):
        return None
    return ClockCheck.of(windows.step_s * windows.steps, ns, begin, end)


# -- Running means: over the last steps, which lines may share ---------------------------------------


def without_running(means: Floats, counts: Ints, lines: int) -> Floats:
    """Return the sums between lines whose values are running means.

    Args:
        means: the means.
        counts: the number of values in each mean.
        lines: the number of lines until values have left the means.
    """
    sums = np.diff(means * counts, prepend=0.0)
    # What enters a full mean takes the place of what leaves it.
    rest = np.zeros(-len(sums) % lines)
    return np.asarray(np.append(sums, rest).reshape(-1, lines).cumsum(axis=0).ravel()[: len(sums)])


def _undone(lines: StepLines, times: Times) -> Durations | None:
    """Return the times of single steps behind running means; None if the times are no such means.

    Timestamps tell: steps must take as long as the clock says, and the printed times must not.
    """
    ns, values, since = lines.stamps_ns, times.seconds, lines.since[0]
    inside = np.append(False, ~lines.breaks[1:])
    if ns is None or (lines.since != since).any() or inside.sum() < max(FEWEST, len(lines) / 2):
        return None
    clock = np.where(inside, np.diff(ns, prepend=ns[0]) / 1e9, 0.0)

    def off(seconds: Floats) -> float:
        took = np.where(inside[: len(seconds)], seconds * since, 0.0)
        return float(np.abs(np.cumsum(took - clock[: len(seconds)])).max())

    unit = lines.stamp_unit_ns / 1e9
    most = min(off(values) / 2, _CLOCK_UNITS * unit + _CLOCK_SHARE * float(clock.sum()))
    least = -2 * times.half_s * len(lines)
    # The first lines tell how long the window is.
    first = values[:_LINES_OF_RUNNING]
    lengths = [len(lines), *range(2, min(len(lines), _LONGEST_RUNNING + 1))]
    counts = np.arange(len(lines)) + 1

    def undone(means: Floats, window: int) -> Floats:
        return without_running(means, np.minimum(counts[: len(means)], window), window)

    _, window = min((off(undone(first, window)), window) for window in lengths)
    step_s = undone(values, window)
    if step_s.min() < least or off(step_s) > most:
        return None
    step_s = np.maximum(step_s, 0.0)
    data = lines.of("data")
    data_s = None if data is None else np.clip(undone(data, window), 0.0, step_s)
    printed = as_printed(lines, times, "mean")
    windows = with_means(printed, printed.at, printed.steps, step_s, data_s)
    half_s = times.half_s * min(window, len(lines) // 2)
    return replace(windows, source="running", half_s=half_s)


def _of_last_steps(lines: StepLines, times: Times, window: int) -> Durations:
    """Measure windows by means over the last ``window`` steps, which lines may share.

    If steps have left the means where an earlier line was, differences of means tell the time between
    lines. Otherwise, or if that is too coarse, lines are joined until they share no steps.
    """
    printed = as_printed(lines, times, "mean")
    usual = float(np.median(lines.since[~lines.begins])) if not lines.begins.all() else window
    if usual >= window:
        return replace(printed, of_last=window if usual > window else 0)
    windows = _between_last_steps(lines, times, window, int(usual))
    if windows is not None:
        return windows
    at = every(lines, math.ceil(window / usual))
    if not len(at):
        return printed
    ends = lines.counted[at]
    goes_on = np.append(False, lines.piece[at][1:] == lines.piece[at][:-1])[: len(at)]
    steps = ends - np.where(goes_on, np.roll(ends, 1), 0)
    data = lines.of("data")
    data_s = None if data is None else data[at]
    return with_means(printed, at, steps, times.seconds[at], data_s)


def _between_last_steps(
    lines: StepLines, times: Times, window: int, usual: int
) -> Durations | None:
    """Return the times between lines behind means over the last steps; None if they are unknown.

    Args:
        lines: the lines of one rank.
        times: their means.
        window: the number of steps in a full mean.
        usual: the steps between two lines.
    """
    apart = window // usual
    place = np.arange(len(lines)) - lines.starts[lines.piece]
    # An epoch's last line may be about fewer steps: its mean stands for them.
    last = np.zeros(len(lines), bool)
    last[lines.lasts] = lines.since[lines.lasts] < usual
    even = lines.begins | last | (lines.since == usual)
    whole = (lines.so_far == lines.counted).all() and lines.since.max() <= usual
    if window % usual or not even.all() or not whole:
        return None
    counts = np.minimum(lines.counted, window)

    def between(means: Floats) -> Floats:
        pieces = (np.split(column, lines.starts[1:]) for column in (means, counts))
        sums = np.concatenate(
            [without_running(piece, count, apart) for piece, count in zip(*pieces, strict=True)]
        )
        return np.where(last, means, sums / lines.since)

    step_s, data = between(times.seconds), lines.of("data")
    # Errors of rounding add up as random ones do.
    half = np.sqrt(place // apart + 1) * window / usual * times.half_s
    if np.median(half) > PRECISE * np.median(step_s) or (step_s < -4 * half).any():
        return None
    step_s = np.maximum(step_s, 0.0)
    data_s = None if data is None else np.clip(between(data), 0.0, step_s)
    windows = with_means(
        as_printed(lines, times, "mean"), np.arange(len(lines)), lines.since, step_s, data_s
    )
    return replace(windows, source="running", half_s=float(np.median(half)))


def alone_if_long(seconds: Floats, since: Ints) -> Floats:
    """Return means over the steps of lines of which only the last step's time is printed.

    A much longer time than in the lines near it is that of its step alone: an evaluation, or the start.

    Args:
        seconds: the time of each line's last step.
        since: the steps since the line before.
    """
    if len(since) != len(seconds):
        return seconds
    if len(seconds) < _NEAR:
        usual = np.full(len(seconds), np.median(seconds))
    else:
        usual, middle = running_median(seconds, _NEAR), _NEAR // 2
        # The first and the last ones are compared with as many lines as the others.
        usual[:middle], usual[-middle:] = usual[middle], usual[-middle - 1]
    return np.where(seconds > _ALONE * usual, (seconds + (since - 1) * usual) / since, seconds)
