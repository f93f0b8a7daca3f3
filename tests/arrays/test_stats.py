"""Intervals of autocorrelated series hold as often as they should."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage
from scipy.signal import lfilter

from stallscope.arrays import stats
from stallscope.arrays.stats import Mean, autocorrelation_time, mean_with_interval, running_median


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
    estimate = np.median([autocorrelation_time(series(phi, 5000, seed)) for seed in range(30)])
    assert estimate == pytest.approx(expected, rel=0.15)


def test_without_enough_data_there_is_no_interval() -> None:
    assert mean_with_interval(series(0.98, 200, 1)).ci95 is None
    assert mean_with_interval([1.0, 2.0]).ci95 is None
    assert np.isnan(mean_with_interval([]).value)


@pytest.mark.parametrize("end", [np.nan, np.inf, -np.inf])
def test_an_interval_without_a_finite_end_is_none(end: float) -> None:
    assert Mean(10.0, (9.0, end)) == Mean(10.0, (end, 11.0)) == Mean(10.0, None)
    assert Mean(10.0, (9.0, 11.0)).widened(end).ci95 is None
    assert Mean(10.0, (0.0, 11.0)).scaled(end).ci95 is None


def test_a_constant_series_is_certain() -> None:
    mean = mean_with_interval(np.full(100, 7.0))
    assert (mean.value, mean.ci95) == (7.0, (7.0, 7.0))


@pytest.mark.parametrize(("n", "every"), [(500, 25), (500, 100), (2000, 100)])
def test_the_interval_holds_with_a_few_bursts_too(n: int, every: int) -> None:
    hits = 0
    for seed in range(300):
        random = np.random.default_rng(seed)
        begins = random.random(n + 2) < 1 / every
        late = begins[:-2] | begins[1:-1] | begins[2:]
        values = series(0.5, n, seed) + np.where(late, 60 * random.normal(1, 0.1, n), 0)
        ci95 = mean_with_interval(values).ci95
        assert ci95 is not None
        hits += ci95[0] <= 100 + 60 * (1 - (1 - 1 / every) ** 3) <= ci95[1]
    assert 0.92 <= hits / 300 <= 0.995


def test_one_burst_among_equal_values_gives_a_wide_interval() -> None:
    mean = mean_with_interval([*[5.0] * 200, 105.0, *[5.0] * 200])
    assert mean.ci95 is not None
    assert mean.ci95[0] == pytest.approx(5.0, abs=0.05)
    assert mean.ci95[1] > mean.value + 4 * (mean.value - 5)


@pytest.mark.parametrize("length", [1, 2, 50, 51, 1000])
@pytest.mark.parametrize("window", [1, 4, 51])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_running_medians_of_short_series_are_scipys(length: int, window: int, kind: type) -> None:
    values = np.random.default_rng(length).integers(0, 40, length).astype(kind)
    expected = ndimage.median_filter(values, size=window, mode="nearest")
    medians = running_median(values, window)
    assert medians.dtype == expected.dtype
    np.testing.assert_array_equal(medians, expected)


def test_running_medians_of_long_series_are_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(size=1000)
    short = running_median(values, 51)
    monkeypatch.setattr(stats, "_MANY_IN_WINDOWS", 100)
    np.testing.assert_array_equal(running_median(values, 51), short)
    assert len(running_median(values[:0], 51)) == 0
