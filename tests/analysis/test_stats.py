"""Intervals of autocorrelated series hold what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.signal import lfilter

from stallscope.analysis.stats import autocorrelation_time, mean_with_interval


def series(phi: float, n: int, seed: int) -> np.ndarray:
    """An AR(1) series around 100."""
    noise = np.random.default_rng(seed).normal(size=n + 500)
    return 100 + lfilter([1], [1, -phi], noise)[500:]


@pytest.mark.parametrize(("phi", "n"), [(0.0, 200), (0.5, 500), (0.9, 2000)])
def test_the_interval_holds_the_truth_in_about_95_of_100_runs(phi: float, n: int) -> None:
    hits = 0
    for seed in range(400):
        ci95 = mean_with_interval(series(phi, n, seed)).ci95
        assert ci95 is not None
        hits += ci95[0] <= 100 <= ci95[1]
    assert 0.92 <= hits / 400 <= 0.98


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_the_autocorrelation_time_is_found(phi: float) -> None:
    expected = (1 + phi) / (1 - phi)
    found = np.median([autocorrelation_time(series(phi, 5000, seed)) for seed in range(30)])
    assert found == pytest.approx(expected, rel=0.15)


def test_no_interval_is_given_where_the_data_cannot_carry_one() -> None:
    assert mean_with_interval(series(0.98, 200, 1)).ci95 is None
    assert mean_with_interval([1.0, 2.0]).ci95 is None
    assert np.isnan(mean_with_interval([]).value)


def test_a_constant_series_is_certain() -> None:
    mean = mean_with_interval(np.full(100, 7.0))
    assert (mean.value, mean.ci95) == (7.0, (7.0, 7.0))
