"""Select the k-th smallest of a few values in many places."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.arrays.quantiles import smallest_of_few


@pytest.mark.parametrize("count", range(1, 20))
def test_every_kth_smallest_equals_sorting_and_inputs_stay_unchanged(count: int) -> None:
    values = np.random.default_rng(count).integers(-9, 9, (3, count, 50))
    before = values.copy()
    smallest = smallest_of_few(values, range(count))
    assert np.array_equal(np.stack(smallest, axis=1), np.sort(before, axis=1))
    assert np.array_equal(values, before)
