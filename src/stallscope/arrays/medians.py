"""Compute running medians."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .lazy_scipy import ndimage

# Up to this many values in all windows, numpy is faster than importing scipy.
_FEW = 1 << 16


def running_median(values: npt.NDArray[Any], window: int) -> npt.NDArray[Any]:
    """Return the median of the values around each one; the first and the last repeat beyond the ends.

    With an even number of values, it is the larger of the two in the middle.
    """
    if not len(values):
        return values
    if len(values) * window > _FEW:
        return np.asarray(ndimage.median_filter(values, size=window, mode="nearest"))
    middle = window // 2
    padded = np.pad(values, (middle, window - 1 - middle), mode="edge")
    around = np.lib.stride_tricks.sliding_window_view(padded, window)
    return np.asarray(np.partition(around, middle, axis=1)[:, middle])
