"""Compute means of autocorrelated series, with intervals that have their nominal coverage.

Steps depend on each other: 95 % intervals for independent values cover the truth in as little as 12 % of
runs. Here the integrated autocorrelation time τ widens the variance of the mean, and Student's t counts
n/τ values, not n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .distributions import chi_square_quantile, ndimage, student_quantile
from .types import Bools, Floats, Ints

# With fewer independent values, no interval of this kind has its nominal coverage.
FEWEST_INDEPENDENT = 10
# With this many bursts, their number is precise enough.
_ENOUGH_EPISODES = 20
_ONE_EPISODE = 3
# Values this much smaller than the largest outlier are none: they hardly change the mean.
_SMALL = 0.05
# Episodes that cover more of a series are none: that is its usual state.
_MOST_OF_SERIES = 0.5
_FAR_SDS = 6.0
# Most series of steps are uncorrelated after fewer lags; sums for these take less time than a transform.
_FEW_LAGS = 32
# Up to this many values in all windows, numpy takes less time than importing scipy.ndimage (0.05 s).
# Reports on small runs do without that import.
_MANY_IN_WINDOWS = 1 << 16
#: A median absolute deviation of normal values, times this, is their standard deviation.
MAD_TO_SD = 1.4826
Array = npt.NDArray[Any]
# A value is unusual if it exceeds the usual one by this many SDs and by this share.
_SLOW_SDS, _SLOW_SHARE = 6.0, 0.2
# A window has other work than steps if it takes longer by its own usual time, and by that of so many
# steps: no cycle of a loader's workers has as many. It is in few windows.
_LONG_STEPS, _MOST_LONG, _FEWEST_WINDOWS = 50, 0.55, 6
# The quantile of the upper values, and that of normal ones; tails are longer than below the median.
_UPPER, _UPPER_OF_NORMAL, _TAIL = 0.8, 0.8416, 4 / 3


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval; ``ci95`` is None if the data does not suffice for one.

    An interval with an end that is infinite or NaN tells nothing, so it is none.
    """

    value: float
    ci95: tuple[float, float] | None

    def __post_init__(self) -> None:
        if self.ci95 is not None and not all(map(math.isfinite, self.ci95)):
            object.__setattr__(self, "ci95", None)

    def scaled(self, factor: float) -> Mean:
        """Return the mean in another unit."""
        ci95 = None if self.ci95 is None else (self.ci95[0] * factor, self.ci95[1] * factor)
        return Mean(self.value * factor, ci95)

    def widened(self, amount: float) -> Mean:
        """Return the mean with a systematic error of this amount on either side."""
        ci95 = None if self.ci95 is None else (self.ci95[0] - amount, self.ci95[1] + amount)
        return Mean(self.value, ci95)

    def with_error(self, half: float) -> Mean:
        """Return the mean with an independent error of up to this half width (95 %)."""
        return self.minus(Mean(0.0, (-half, half)))

    def minus(self, mean: Mean) -> Mean:
        """Return the difference from the mean of another, independent series."""
        value = self.value - mean.value
        if self.ci95 is None or mean.ci95 is None:
            return Mean(value, None)
        half = np.hypot(self.ci95[1] - self.ci95[0], mean.ci95[1] - mean.ci95[0]) / 2
        return Mean(value, (value - float(half), value + float(half)))

    def times(self, mean: Mean) -> Mean:
        """Return the product with the mean of another, independent series."""
        value = self.value * mean.value
        if self.ci95 is None or mean.ci95 is None:
            return Mean(value, None)
        widths = self.ci95[1] - self.ci95[0], mean.ci95[1] - mean.ci95[0]
        half = float(np.hypot(widths[0] * mean.value, widths[1] * self.value)) / 2
        return Mean(value, (value - half, value + half))

    def over(self, mean: Mean) -> Mean:
        """Return the ratio to the mean of another, independent series, which is not 0."""
        value = self.value / mean.value
        if self.ci95 is None or mean.ci95 is None:
            return Mean(value, None)
        widths = self.ci95[1] - self.ci95[0], mean.ci95[1] - mean.ci95[0]
        half = float(np.hypot(widths[0], value * widths[1])) / abs(mean.value) / 2
        return Mean(value, (value - half, value + half))


def autocorrelation_time(series: Floats) -> float:
    """Estimate τ = 1 + 2Σρ of a series, at least 1 and at most n/6.

    Geyer's initial positive sequence: sum neighbouring pairs of ρ as long as they are positive.
    Estimates of ρ are too small by about τ/n, which is added back once.
    """
    n = len(series)
    centred = series - series.mean() if n else series
    variance = float(centred @ centred)
    if n < 4 or variance <= 0:
        return 1.0
    for lags in sorted({min(_FEW_LAGS, n // 2), n // 2}):
        rho = _lagged_products(centred, lags) / variance
        tau, _ = _initial_positive(rho)
        tau, ended = _initial_positive(np.concatenate([[1.0], rho[1:] + tau / n]))
        if ended:
            break
    return float(np.clip(tau, 1.0, max(1.0, n / 6)))


def _lagged_products(series: Floats, lags: int) -> Floats:
    """Return the sums of products of a series with itself, shifted by 0 to ``lags`` − 1."""
    if lags <= _FEW_LAGS:
        n = len(series)
        return np.array([series[lag:] @ series[: n - lag] for lag in range(lags)])
    # The transform is fast for a small number times a power of two.
    longest = 2 * len(series) - 1
    size = min(factor << (longest // factor).bit_length() for factor in (1, 3, 5, 9, 15, 25))
    return np.fft.irfft(np.abs(np.fft.rfft(series, size)) ** 2, size)[:lags]


def _initial_positive(rho: Floats) -> tuple[float, bool]:
    """Return τ of the autocorrelations until a pair is negative, and whether one was."""
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return float(2 * pairs[:end].sum() - 1), len(negative) > 0


def mean_with_interval(series: npt.ArrayLike, fewest: float = FEWEST_INDEPENDENT) -> Mean:
    """Return the mean of a series of steps and its 95 % interval (see the module's docstring).

    Args:
        series: consecutive values.
        fewest: with fewer independent values there is no interval.
    """
    values = np.asarray(series, np.float64)
    n = len(values)
    if n == 0:
        return Mean(float("nan"), None)
    mean = float(values.mean())
    usual, bursts, episodes = _without_few_bursts(values)
    tau = autocorrelation_time(usual)
    if n / tau < fewest:
        return Mean(mean, None)
    half = student_quantile(0.975, max(3.0, n / tau - 1)) * np.sqrt(usual.var() * tau / (n - tau))
    below, above = _poisson(bursts, episodes)
    return Mean(mean, (mean - float(np.hypot(half, below)), mean + float(np.hypot(half, above))))


def evenly(number: int, most: int) -> Ints:
    """Return at most this many positions of a series, evenly spread from the first to the last one."""
    return np.unique(np.linspace(0, number - 1, min(number, most)).astype(np.int64))


def passes(numbers: Ints) -> Ints:
    """Number the passes of a series: each fall to its lowest number begins another one."""
    falls = np.diff(numbers, prepend=numbers[:1]) < 0
    return np.cumsum(falls & (numbers == (numbers.min() if len(numbers) else 0)))


def robust_sd(values: npt.ArrayLike) -> float:
    """Estimate the standard deviation of normal values from their median absolute deviation."""
    array = np.asarray(values, np.float64)
    if not array.size:
        return 0.0
    return MAD_TO_SD * float(np.median(np.abs(array - np.median(array))))


# -- quantiles, equal to numpy's to the last digit -------------------------------------------------
#
# numpy selects four values for each quantile, and each costs as much as the first. One selection is
# enough: the next larger value is the minimum of those above. With numpy's functions an analysis of
# 1,000 ranks × 10,000 steps takes 1.2 times as much CPU time (1.52 s against 1.28 s).


def median(values: npt.ArrayLike) -> Floats:
    """Return the median over the last axis, of at least one value, as ``np.median`` does.

    It is NaN if one of the values is.
    """
    array = np.asarray(values)
    count = array.shape[-1]
    low, high, _ = _neighbours(array, (count - 1) // 2)
    if count % 2:
        # NaN sorts last.
        return np.asarray(np.where(np.isnan(high), high, low), np.float64)
    return np.asarray((low.astype(np.float64) + high) / 2)


def quantile(values: npt.ArrayLike, q: float) -> Floats:
    """Return a quantile over the last axis, of at least one value, as ``np.quantile`` does.

    Args:
        values: numbers, none of them NaN.
        q: from 0 to 1.
    """
    (value,) = quantiles(values, (q,))
    return value


def quantiles(values: npt.ArrayLike, descending: Sequence[float]) -> list[Floats]:
    """Return several quantiles as ``quantile`` does; each is sought among the values below the last."""
    left, interpolated = np.asarray(values), []
    last = before = left.shape[-1] - 1
    for q in descending:
        below = int(last * q)
        if below < before:
            left = left[..., : before + 1]
        low, high, left = _neighbours(left, below)
        share, difference, before = last * q - below, high - low, below
        # In numpy's order of operations.
        between = low + difference * share if share < 0.5 else high - difference * (1 - share)
        interpolated.append(np.asarray(between, np.float64))
    return interpolated


def _neighbours(array: Array, at: int) -> tuple[Array, Array, Array]:
    """Return the value at this place in order, the next one (itself if it is the last), and the array
    with no larger value before that place.
    """
    part = np.partition(array, at, axis=-1)
    low, rest = part[..., at], part[..., at + 1 :]
    return low, rest.min(axis=-1) if rest.shape[-1] else low, part


def running_median(values: npt.NDArray[Any], window: int) -> npt.NDArray[Any]:
    """Return the median of the values around each one; the first and the last repeat beyond the ends.

    With an even number of values, it is the larger of the two in the middle.
    """
    if not len(values):
        return values
    if len(values) * window > _MANY_IN_WINDOWS:
        return np.asarray(ndimage.median_filter(values, size=window, mode="nearest"))
    middle = window // 2
    padded = np.pad(values, (middle, window - 1 - middle), mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, window)
    return np.asarray(np.partition(around, middle, axis=1)[:, middle])


def usual_without(values: Floats, excluded: Bools, window: int) -> Floats:
    """Return the median around each value of the values that are not excluded."""
    at = np.flatnonzero(~excluded)
    if not len(at):
        return values
    return np.asarray(np.interp(np.arange(len(values)), at, running_median(values[at], window)))


def above_usual(values: Floats, window: int) -> tuple[Floats, Bools]:
    """Return how far each value is above the median around it, and whether that is unusual.

    Args:
        values: a series.
        window: the number of values in a median.
    """
    usual = running_median(values, window)
    half = window // 2
    if len(values) > window > 1:
        # The first and the last values have the median of the nearest whole window.
        usual[:half], usual[-half:] = usual[half], usual[-half - 1]
    over = values - usual
    return over, unusual(over, usual, robust_sd(over))


def unusual(over: Floats, usual: Floats, sd: float) -> Bools:
    """Mark values that exceed the usual ones by far.

    Args:
        over: how far each value is above the usual one.
        usual: the usual values.
        sd: the standard deviation of usual values.
    """
    return np.asarray(over > np.maximum(_SLOW_SDS * sd, _SLOW_SHARE * usual))


def tail_sd(over: Floats) -> float:
    """Estimate the standard deviation of usual values from above the median, too, with a heavy tail."""
    upper = float(np.quantile(over, _UPPER)) / _UPPER_OF_NORMAL if len(over) else 0.0
    return _TAIL * max(robust_sd(over), upper)


def interrupted(took: Floats, steps: Ints, window: int) -> Bools:
    """Mark windows of steps that contain other work, by how much longer they take than those around.

    Steps that became slow are so for many windows. Of two neighbours, the faster one tells the usual
    time, also where every second window contains an evaluation.

    Args:
        took: the time of each window.
        steps: its number of steps.
        window: the number of windows that the usual time is taken over.
    """
    if len(took) < _FEWEST_WINDOWS:
        return np.zeros(len(took), bool)
    each = took / steps
    level = running_median(np.minimum(each, np.append(each[1:], each[-2])), window)
    # Of the two windows on either side, one is as fast as usual.
    near = np.pad(each, 2, mode="reflect")
    before, after = np.minimum(near[:-4], near[1:-3]), np.minimum(near[3:-1], near[4:])
    level = np.maximum(level, np.maximum(before, after))
    longer = 1 + np.maximum(_LONG_STEPS / steps, 1)
    marked = (each > longer * level) & (level > 0)
    usual = usual_without(each, marked, window)
    over = each - usual
    marked &= unusual(over, usual, tail_sd(over[~marked]))
    return np.asarray(marked & (marked.mean() <= _MOST_LONG))


def _without_few_bursts(values: Floats) -> tuple[Floats, float, int]:
    """Remove bursts from a series if a few of them dominate its variance.

    Returns:
        The series without bursts, their part of the mean, and the number of episodes.
    """
    middle = float(np.median(values))
    centred = values - middle
    size = np.abs(centred)
    # Where most values are equal, any other one is far from them.
    far = size > max(_FAR_SDS * robust_sd(values), _SMALL * float(size.max()))
    squares = centred**2
    if not far.any() or squares[far].sum() < 0.5 * squares.sum():
        return values, 0.0, 0
    # Outliers that follow each other closely are one episode.
    places = np.flatnonzero(far)
    apart = np.diff(places)
    episodes = int((apart > _ONE_EPISODE).sum()) + 1
    covered = len(places) + (apart[apart <= _ONE_EPISODE] - 1).sum()
    if episodes >= _ENOUGH_EPISODES or covered > _MOST_OF_SERIES * len(values):
        # Every second or third value is no episode: the series is like that.
        return values, 0.0, 0
    usual = np.where(far, values[~far].mean() if not far.all() else middle, values)
    return usual, float(values.mean() - usual.mean()), episodes


def _poisson(part: float, episodes: int) -> tuple[float, float]:
    """Return how much smaller or larger a part of a mean may be, if it comes from few episodes.

    Episodes are random, so their number has Garwood's interval for a Poisson count. Formulas for means
    of many values are far too narrow here.
    """
    if not episodes:
        return 0.0, 0.0
    low = chi_square_quantile(0.025, 2 * episodes) / 2 / episodes
    high = chi_square_quantile(0.975, 2 * episodes + 2) / 2 / episodes
    smaller, larger = part * (1 - low), part * (high - 1)
    return (float(smaller), float(larger)) if part > 0 else (-float(larger), -float(smaller))
