"""Detect during training that steps have become longer for good.

``change_points`` looks back on a whole run. This is a cumulative sum (Page 1954): steps are compared
with the first ones, and their excess over half of the rise adds up. It is an alarm if the sum is larger
than chance makes it in ten million steps, and if the steps since the sum began to grow, and the last
ones, are longer by at least half of the rise: a burst also adds up, but passes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stallscope.arrays.stats import autocorrelation_time, robust_sd
from stallscope.arrays.types import Floats

#: The rise that is found within 30 steps where steps vary by 5 %.
RISE = 0.10
#: The number of first steady steps that show how long a step usually is.
REFERENCE_STEPS = 200
# A rise that lasts for this many steps is no burst.
_LASTING_STEPS = 20
# The average number of steps between two false alarms (Siegmund's approximation).
_STEPS_BETWEEN_FALSE_ALARMS = 1e7
# Steps vary by at least this much: clocks have a resolution.
_LEAST_SD = 1e-3
# The usual time may be too low by two standard errors of the median of the first steps, in SDs.
_REFERENCE_ERROR = 0.18
# A single slow step counts at most this many standard deviations above the rise.
_MOST_ABOVE = 3.0
# Logarithms need more than 0.
_LEAST = 1e-9


class Rise(NamedTuple):
    """A lasting rise of the step time."""

    #: The position of the step with which it began, and of the one with which it was detected.
    began: int
    detected: int
    #: The relative rise of the median since it began over the usual one: 0.1 is 10 %.
    by: float


def find_rise(times: Floats) -> Rise | None:
    """Return the rise that lasts until the end of a series; None without one, or with too few steps.

    Args:
        times: of steady steps, in their order.
    """
    if len(times) < REFERENCE_STEPS + _LASTING_STEPS:
        return None
    series = np.log(np.maximum(times, _LEAST))
    reference = series[:REFERENCE_STEPS]
    usual = float(np.median(reference))
    # Steps after a slow one are slow, too, so noise adds up faster.
    sd = max(robust_sd(reference) * np.sqrt(autocorrelation_time(reference)), _LEAST_SD)
    half = np.log1p(RISE) / 2 / sd
    above = np.minimum((series[REFERENCE_STEPS:] - usual) / sd, 2 * half + _MOST_ABOVE) - half
    summed = np.cumsum(above)
    lowest = np.minimum.accumulate(np.minimum(summed, 0.0))
    grown = summed - lowest
    # The steps since the sum was last 0.
    positions = np.arange(len(grown))
    began = np.maximum.accumulate(np.where(grown <= 0, positions + 1, 0))
    lasting = (grown > _limit(half)) & (positions - began + 1 >= _LASTING_STEPS)
    if not lasting[-1]:
        return None
    start = int(began[-1])
    since = series[REFERENCE_STEPS + start :]
    least = min(np.median(since), np.median(since[-_LASTING_STEPS // 2 :])) - usual
    if least < np.log1p(RISE) / 2:
        return None
    detected = start + int(np.argmax(lasting[start:]))
    by = float(np.expm1(np.median(since) - usual))
    return Rise(REFERENCE_STEPS + start, REFERENCE_STEPS + detected, by)


def _limit(half: float) -> float:
    """Return the sum that chance exceeds once between two false alarms, in standard deviations.

    Siegmund (1985): exp(2kb) / 2k² steps for a drift of k against the sum, with b 1.166 above the limit.
    """
    drift = max(half - _REFERENCE_ERROR, half / 3)
    return float(np.log(_STEPS_BETWEEN_FALSE_ALARMS * 2 * drift**2 + 1) / (2 * drift)) - 1.166
