"""Measure the steps of windows by the most precise times in their lines.

Means over all steps so far give sums. Differences of sums are exact except for rounding, which grows
with the number of steps. If that is too coarse, the window's own value counts, which may be that of a
single step. Lines without times are measured between their timestamps, in windows that are long enough
for the clock.

Means so far must agree with the times of single steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.numbers import typical

from .epochs_only import rounded_to
from .window_lines import MEASURED_HALF, StepLines, in_bursts

#: The meaning of a printed time: of the line's only step, of the last step of its window, or the mean,
#: the median or the sum over the window.
Value = Literal["step", "last", "mean", "median", "total"]

# The required relative precision of a window's time.
PRECISE = 0.05
# The fewest windows after joining lines, in each piece of the log.
FEWEST = 5
# If precise windows would have more lines, each line is a window.
_MOST_JOINED = 4
# Lines are about single steps if most of them are; if nearly all are, their times need no rounded means.
_MOST, _NEARLY_ALL = 0.5, 0.95
_SINGLE = "times of single steps"
_IN_WORDS = {
    "step": _SINGLE,
    "running": "means of {steps} steps",
    "last": "times of the last of {steps} steps",
    "mean": "means of {of}{steps} steps",
    "median": "medians of {steps} steps",
    "differences": "means of {steps} steps",
    "scaled": "times of a few of {steps} steps",
    "stamps": "timestamps of lines",
}


@dataclass(frozen=True)
class Durations:
    """Windows of one rank, as arrays with an entry for each."""

    #: The last line of each window.
    at: Ints
    steps: Ints
    #: Seconds per step, and the part of them that is waiting for data; None if it is not printed.
    step_s: Floats
    data_s: Floats | None
    #: The source of the times: a ``Value``, ``running`` means undone, ``differences`` of means so far,
    #: ``scaled`` to these, or ``stamps``.
    source: str
    #: Half of the unit that a typical window's time per step is rounded to, seconds.
    half_s: float
    #: The mean over all steps, its half width, and the mean wait for data, seconds.
    mean_s: float
    mean_half_s: float
    mean_data_s: float | None = None
    #: Whether these means are over all steps, and not only over those with printed times.
    of_all_steps: bool = False
    #: The time of all steps of the job; None unless the windows have all of them.
    logged_s: float | None = None
    #: The number of last steps that times are means over, if lines are further apart; 0 for all steps.
    of_last: int = 0
    #: What readers of the report have to know; empty for nothing.
    note: str = ""

    @property
    def precision(self) -> str:
        """Describe what the times are, in words."""
        steps, of = typical(self.steps), f"the last {self.of_last} of " if self.of_last else ""
        kind = _SINGLE if steps == "1" else _IN_WORDS[self.source].format(steps=steps, of=of)
        return f"{kind}, from running means" if self.source == "running" else kind

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts about step times for a log."""
        facts: dict[str, Any] = {
            "precision": f"{self.precision}, to {rounded_to(1e3 * self.half_s)}",
            "windows": self.source,
            "window_precision_ms": 1e3 * self.half_s,
            "step_ms": 1e3 * self.mean_s,
            "step_precision_ms": 1e3 * self.mean_half_s,
        }
        if self.mean_data_s is not None:
            facts["data_ms"] = 1e3 * self.mean_data_s
        if self.logged_s is not None:
            facts |= {"steps_timed": int(self.steps.sum()), "time_logged_ms": 1e3 * self.logged_s}
        if self.of_last:
            facts["means_of_last"] = self.of_last
        if self.of_all_steps:
            facts["means_of_all_steps"] = True
        return facts


@dataclass(frozen=True)
class Times:
    """Seconds per step for each line, and half of the unit that they are rounded to."""

    seconds: Floats
    half_s: float

    @classmethod
    def of(cls, lines: StepLines, seconds: str, rate: str, samples: float | None) -> Times | None:
        """Read times from seconds, or from a rate; None if lines have neither."""
        times, printed_rate = lines.of(seconds), lines.of(rate)
        if times is not None:
            return cls(times, lines.half_unit(seconds))
        if printed_rate is None or samples is None:
            return None
        times = samples / np.maximum(printed_rate, 1e-9)
        half = lines.half_unit(rate) * float(np.median(times / np.maximum(printed_rate, 1e-9)))
        return cls(times, half)


def by_meaning(
    lines: StepLines, value: Value, printed: Times | None, so_far: Times | None
) -> Durations | None:
    """Measure windows by a known meaning of the times in lines."""
    if value == "step" and (lines.since == 1).mean() < _MOST:
        value = "last"
    if value in ("step", "last") and printed and so_far and _of_other_steps(lines, printed, so_far):
        so_far = None
    if so_far is not None:
        return of_means(lines, printed, so_far, value)
    if printed is None:
        return between_stamps(lines)
    if value == "total":
        return of_totals(lines, printed)
    return as_printed(lines, printed, value)


def of_means(lines: StepLines, printed: Times | None, so_far: Times, value: Value) -> Durations:
    """Measure windows by means over all steps so far."""
    # Differences of means that never change tell nothing.
    windows = _differences(lines, so_far) if np.ptp(so_far.seconds) else None
    if printed is not None and value in ("step", "last") and _exact(lines, printed, windows):
        return as_printed(lines, printed, value)
    if windows is None:
        windows = as_printed(lines, printed or so_far, value)
    elif printed is not None and len(windows.at) * _MOST_JOINED < len(lines):
        windows = _scaled(lines, so_far, printed, windows)
    data = _data_so_far(lines)
    return replace(
        windows,
        mean_s=_sums(lines, so_far.seconds),
        mean_half_s=so_far.half_s,
        mean_data_s=None if data is None else _sums(lines, data),
        of_all_steps=True,
    )


def _exact(lines: StepLines, printed: Times, differences: Durations | None) -> bool:
    """Whether nearly every step has a line, and its time is as precise as differences of means."""
    finer = differences is None or printed.half_s <= differences.half_s
    return finer and bool((lines.since == 1).mean() >= _NEARLY_ALL)


def _of_other_steps(lines: StepLines, printed: Times, mean: Times) -> bool:
    """Whether means so far are not over the steps since their piece of the log began.

    Some programs print means over the whole job. Where a piece begins with the line of a single step,
    its mean is the time of that step; where each step has a line, sums of means grow by these times.
    """
    counted, half_s = lines.in_means, printed.half_s + mean.half_s
    first = lines.begins & (counted == 1)
    if first.any():
        wrong = np.abs(printed.seconds - mean.seconds)[first] > 2 * half_s
        return bool(wrong.mean() > _MOST)
    alone = ~lines.begins & (lines.since == 1)
    if not alone.any():
        return False
    sums = mean.seconds * counted
    grows = sums - np.roll(sums, 1)
    wrong = np.abs(grows - printed.seconds)[alone] > (2 * counted * half_s)[alone]
    return bool(wrong.mean() > _MOST)


def with_means(
    windows: Durations, at: Ints, steps: Ints, step_s: Floats, data_s: Floats | None
) -> Durations:
    """Return windows with other lines and times, and their means."""
    return replace(
        windows,
        at=at,
        steps=steps,
        step_s=step_s,
        data_s=data_s,
        mean_s=float(np.average(step_s, weights=steps)),
        mean_data_s=None if data_s is None else float(np.average(data_s, weights=steps)),
    )


def as_printed(lines: StepLines, times: Times, value: Value) -> Durations:
    at, no_steps, measured = np.arange(len(lines)), np.zeros(0, np.int64), lines.of(MEASURED_HALF)
    mean_half_s = times.half_s
    if measured is not None:
        # A clock is read again where steps begin again; the errors of these are independent.
        unit_s = float(np.median(measured * lines.own_steps))
        mean_half_s = unit_s * math.sqrt(len(lines.starts)) / int(lines.own_steps.sum())
    windows = Durations(at, no_steps, times.seconds, None, value, times.half_s, 0.0, mean_half_s)
    return with_means(windows, at, lines.own_steps, times.seconds, lines.of("data"))


def of_totals(lines: StepLines, times: Times) -> Durations:
    """Make windows of printed sums over their steps."""
    steps = lines.since
    # The first steps include tracing.
    counted = slice(min(1, len(steps) - 1), None)
    total, count = float(times.seconds[counted].sum()), int(steps[counted].sum())
    return Durations(
        at=np.arange(len(lines)),
        steps=steps,
        step_s=times.seconds / steps,
        data_s=None,
        source="mean",
        half_s=times.half_s / float(np.median(steps)),
        mean_s=total / count,
        mean_half_s=times.half_s * len(steps[counted]) / count,
        logged_s=float(times.seconds.sum()),
    )


def _differences(lines: StepLines, mean: Times) -> Durations | None:
    """Make windows of differences of means so far, with enough lines in each to be precise.

    None if the means are rounded too much for that.
    """
    data, printed_data = _data_so_far(lines), lines.of("mean_data")
    half_s = mean.half_s if printed_data is None else max(mean.half_s, lines.half_unit("mean_data"))
    at = np.arange(len(lines))
    for joined in (1, *_joined(lines, mean, half_s)):
        at = every(lines, joined)
        steps, step_s, half = _differences_at(lines, mean.seconds, half_s, at)
        if np.median(half) <= PRECISE * np.median(step_s):
            break
    else:
        return None
    # If sums go down, the values are not means over all steps so far.
    if (step_s < -2 * half).any():
        return None
    data_s = None if data is None else _differences_at(lines, data, half_s, at)[1]
    return Durations(
        at=at,
        steps=steps,
        step_s=np.maximum(step_s, 0.0),
        data_s=None if data_s is None else np.maximum(data_s, 0.0),
        source="differences",
        half_s=float(np.median(half)),
        mean_s=0.0,
        mean_half_s=0.0,
    )


def _scaled(lines: StepLines, mean: Times, printed: Times, joined: Durations) -> Durations:
    """Make a window of each line, in proportion to its printed time.

    In each piece of the log they are scaled to the sum that the last mean so far gives. So changes are
    located to a line even if only windows of many lines would be precise.
    """
    steps = lines.in_means - np.where(lines.begins, 0, np.roll(lines.in_means, 1))
    last = lines.lasts

    def scaled(values: Floats, means: Floats) -> Floats:
        totals = np.bincount(lines.piece, values * steps, len(last))
        sums = means[last] * lines.in_means[last]
        return np.asarray(
            values * np.where(totals > 0, sums / np.where(totals > 0, totals, 1), 1)[lines.piece]
        )

    data, data_so_far = lines.of("data"), _data_so_far(lines)
    return replace(
        joined,
        at=np.arange(len(lines)),
        steps=steps,
        step_s=scaled(printed.seconds, mean.seconds),
        data_s=None if data is None or data_so_far is None else scaled(data, data_so_far),
        source="scaled",
        half_s=printed.half_s,
    )


def _data_so_far(lines: StepLines) -> Floats | None:
    """Return the mean waits for data so far, printed or computed from those of windows."""
    mean, data = lines.of("mean_data"), lines.of("data")
    if mean is not None or data is None:
        return mean
    steps = lines.in_means - np.where(lines.begins, 0, np.roll(lines.in_means, 1))
    return np.asarray(lines.sums(data * steps) / lines.in_means)


def _joined(lines: StepLines, mean: Times, half_s: float) -> list[int]:
    """Return numbers of lines to join for precise windows; none if too few windows would be left."""
    _, step_s, half = _differences_at(lines, mean.seconds, half_s, np.arange(len(lines)))
    joined = math.ceil(float(np.median(half)) / max(PRECISE * float(np.median(step_s)), 1e-12))
    most = len(lines) // (FEWEST * len(lines.starts))
    # The median of coarse lines is uncertain: also try twice as many.
    return [count for count in (joined, 2 * joined) if count <= most]


def every(lines: StepLines, joined: int) -> Ints:
    """Return the last of every ``joined`` lines of each piece."""
    place = np.arange(len(lines)) - lines.starts[lines.piece]
    return np.flatnonzero(place % joined == joined - 1)


def _differences_at(
    lines: StepLines, mean: Floats, half_s: float, at: Ints
) -> tuple[Ints, Floats, Floats]:
    """Return the steps of windows that end at these lines, their means, and the means' half widths."""
    counted, piece = lines.in_means, lines.piece[at]
    sums = (mean * counted)[at]
    goes_on = np.append(False, piece[1:] == piece[:-1])[: len(at)]
    before = np.where(goes_on, np.roll(counted[at], 1), 0)
    steps = counted[at] - before
    step_s = (sums - np.where(goes_on, np.roll(sums, 1), 0.0)) / steps
    return steps, np.asarray(step_s), np.asarray(half_s * (counted[at] + before) / steps)


def _sums(lines: StepLines, mean: Floats) -> float:
    """Return the mean over all steps, from the last mean so far of each piece."""
    return float(np.average(mean[lines.lasts], weights=lines.in_means[lines.lasts]))


def between_stamps(lines: StepLines) -> Durations | None:
    """Make windows between timestamps, with enough lines in each to be precise."""
    ns, unit = lines.stamps_ns, lines.stamp_unit_ns
    if ns is None:
        return None
    begin, at = stretches(ns, lines.breaks, int(unit / PRECISE))
    total = int((lines.counted[at] - lines.counted[begin]).sum())
    took_s = float((ns[at] - ns[begin]).sum()) / 1e9
    if not took_s:
        return None
    begin, at = with_work(begin, at, lines.work)
    steps, took = lines.counted[at] - lines.counted[begin], (ns[at] - ns[begin]) / 1e9
    return Durations(
        at=at,
        steps=steps,
        step_s=took / steps,
        data_s=None,
        source="stamps",
        half_s=unit / 1e9 / float(np.median(steps)),
        mean_s=took_s / total,
        mean_half_s=unit / 1e9 * int(np.count_nonzero(lines.breaks)) / total,
    )


def with_work(begin: Ints, end: Ints, work: Bools) -> tuple[Ints, Ints]:
    """Add to stretches those of two lines between which other work was done."""
    at = np.flatnonzero(work)
    begin, end = np.append(begin, at - 1), np.append(end, at)
    order = np.argsort(end, kind="stable")
    return begin[order], end[order]


def stretches(ns: Ints, breaks: Bools, enough: int) -> tuple[Ints, Ints]:
    """Return the first and the last line of stretches that are long enough for the clock.

    They leave out the time before steps begin again, as it may contain a validation.
    """
    inside = np.flatnonzero(~breaks)
    took = ns[inside] - ns[inside - 1]
    written = in_bursts(took)
    if written.any():
        # From one burst to the next.
        enough = max(enough, int(np.median(took[~written])) // 2)
    # Two lines of one moment belong to one stretch.
    if not len(inside) or (np.median(took) >= enough and took.all()):
        return inside - 1, inside
    first: list[int] = []
    last: list[int] = []
    for start, end in pairwise([*np.flatnonzero(breaks).tolist(), len(ns)]):
        at = start
        piece = ns[start:end]
        late_enough = (np.searchsorted(piece, piece + enough) + start).tolist()
        while at < end - 1:
            later = max(late_enough[at - start], at + 1)
            # A short rest counts only if it is the whole stretch.
            if later >= end and at > start:
                break
            later = min(later, end - 1)
            first.append(at)
            last.append(later)
            at = later
    return np.array(first, np.int64), np.array(last, np.int64)
