"""Means of autocorrelated series, with intervals that hold.

Steps follow each other: formulas for independent values cover the truth in as little as 12 % of runs
where 95 % is promised. Here the variance of the mean is widened by the integrated autocorrelation
time τ, and Student's t counts n/τ values, not n.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy import stats as scipy_stats

Floats = npt.NDArray[np.float64]

# Below this many independent values no interval of this kind covers what it promises.
FEWEST_INDEPENDENT = 10


@dataclass(frozen=True)
class Mean:
    """A mean with its 95 % interval; ``ci95`` is None where the data cannot carry one."""

    value: float
    ci95: tuple[float, float] | None

    def scaled(self, factor: float) -> Mean:
        ci95 = None if self.ci95 is None else (self.ci95[0] * factor, self.ci95[1] * factor)
        return Mean(self.value * factor, ci95)


def autocorrelation_time(series: Floats) -> float:
    """τ = 1 + 2Σρ of a series, at least 1 and at most n/6.

    Geyer's initial positive sequence: sums of neighbouring pairs of ρ as long as they are positive.
    Estimated ρ are too small by about τ/n, which is added back once.
    """
    n = len(series)
    centred = series - series.mean() if n else series
    variance = float(centred @ centred)
    if n < 4 or variance <= 0:
        return 1.0
    size = fft.next_fast_len(2 * n, real=True)
    spectrum = fft.rfft(centred, size)
    rho = fft.irfft(np.abs(spectrum) ** 2, size)[: n // 2] / variance
    tau = _initial_positive(rho)
    tau = _initial_positive(np.concatenate([[1.0], rho[1:] + tau / n]))
    return float(np.clip(tau, 1.0, max(1.0, n / 6)))


def _initial_positive(rho: Floats) -> float:
    pairs = rho[: len(rho) // 2 * 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs <= 0)
    end = int(negative[0]) if len(negative) else len(pairs)
    return float(2 * pairs[:end].sum() - 1)


def mean_with_interval(series: npt.ArrayLike) -> Mean:
    """The mean of a series of steps and its 95 % interval (τ–t, see the module's first lines)."""
    values = np.asarray(series, np.float64)
    n = len(values)
    if n == 0:
        return Mean(float("nan"), None)
    mean = float(values.mean())
    tau = autocorrelation_time(values)
    if n / tau < FEWEST_INDEPENDENT:
        return Mean(mean, None)
    half = scipy_stats.t.ppf(0.975, max(3.0, n / tau - 1)) * np.sqrt(values.var() * tau / (n - tau))
    return Mean(mean, (mean - float(half), mean + float(half)))
