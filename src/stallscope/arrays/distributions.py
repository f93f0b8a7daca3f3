"""Probabilities and quantiles of the common distributions.

They are made from ``scipy.special``: ``scipy.stats`` has the same ones, and takes a third of a second to
import, which is most of the time that a report on a small run takes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .lazy_scipy import special
from .types import Floats

# Relative to the value: smaller steps of a search change nothing but its last digit.
_SMALLEST_STEP = 1e-15


def normal_probability(z: npt.ArrayLike) -> Floats:
    """Return how likely a standard normal value is at most ``z``."""
    return _floats(special.ndtr(z))


def normal_quantile(p: npt.ArrayLike) -> Floats:
    """Return below which value a standard normal value is with probability ``p``."""
    return _floats(special.ndtri(p))


def mills_ratio(z: float) -> float:
    """Return the density of the standard normal distribution at ``z`` over the probability below it."""
    log_density = -0.5 * z * z - 0.5 * np.log(2 * np.pi)
    return float(np.exp(log_density - special.log_ndtr(z)))


def mean_of_truncated(mean: float, limit: float, sd: float) -> float:
    """Return the mean of all values of a normal distribution.

    Args:
        mean: of the values above the limit; at least 0.3 standard deviations above it.
        limit: the limit.
        sd: the standard deviation of all values.
    """
    # Newton's method from above: the function is convex, so that each step stays above its zero.
    whole = mean
    while True:
        z = (whole - limit) / sd
        ratio = mills_ratio(z)
        slope = 1 - ratio * (z + ratio)
        lower = whole - (whole + sd * ratio - mean) / slope
        if lower >= whole - _SMALLEST_STEP * abs(whole):
            return min(lower, whole)
        whole = lower


def student_quantile(p: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return below which value Student's t with so many degrees of freedom is with probability ``p``."""
    return _floats(special.stdtrit(freedom, p))


def student_tail(t: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return how likely Student's t with so many degrees of freedom is above ``t``."""
    return _floats(special.stdtr(freedom, np.negative(t)))


def chi_square_quantile(p: npt.ArrayLike, freedom: npt.ArrayLike) -> Floats:
    """Return below which value χ² with so many degrees of freedom is with probability ``p``."""
    return 2.0 * _floats(special.gammaincinv(np.divide(freedom, 2.0), p))


def binomial_tail(count: int, trials: int, p: float) -> float:
    """Return how likely more than ``count`` of so many trials succeed."""
    if count < 0:
        return 1.0
    return 0.0 if count >= trials else float(special.bdtrc(count, trials, p))


def _floats(values: object) -> Floats:
    return np.asarray(values, np.float64)
