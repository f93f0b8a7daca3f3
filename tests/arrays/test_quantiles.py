"""Quantiles by one selection are numpy's, digit by digit."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.arrays.stats import median, quantile, quantiles


@pytest.mark.parametrize("count", [1, 2, 3, 10, 21, 100, 999])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_as_numpy_has_them(count: int, kind: type) -> None:
    values = np.random.default_rng(count).integers(-(10**12), 10**15, (5, count)).astype(kind)
    for some in (values, values // 10**14, values[0]):
        np.testing.assert_array_equal(median(some), np.median(some, axis=-1))
        shares = (1, 0.95, 0.5, 0.25, 0.2, 0.01, 0, 0)
        together = quantiles(some, shares)
        for q, computed in zip(shares, together, strict=True):
            np.testing.assert_array_equal(quantile(some, q), np.quantile(some, q, axis=-1))
            np.testing.assert_array_equal(computed, quantile(some, q))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 40, 41])
def test_the_median_of_something_unknown_is_unknown(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(count, count))
    np.fill_diagonal(values, np.nan)
    assert np.isnan(median(values)).all()
