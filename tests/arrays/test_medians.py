"""Running medians are the same with numpy, on short series, as with scipy, on long ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from stallscope.arrays import quantiles
from stallscope.arrays.quantiles import running_median


@pytest.mark.parametrize("length", [1, 2, 50, 51, 1000])
@pytest.mark.parametrize("window", [1, 4, 51])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_short_series(length: int, window: int, kind: type) -> None:
    values = np.random.default_rng(length).integers(0, 40, length).astype(kind)
    expected = ndimage.median_filter(values, size=window, mode="nearest")
    medians = running_median(values, window)
    assert medians.dtype == expected.dtype
    np.testing.assert_array_equal(medians, expected)


def test_long_series(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(size=1000)
    short = running_median(values, 51)
    monkeypatch.setattr(quantiles, "_FEW", 100)
    np.testing.assert_array_equal(running_median(values, 51), short)
    assert len(running_median(values[:0], 51)) == 0
