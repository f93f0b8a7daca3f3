"""Average over repeats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallscope.arrays.lazy_scipy import scipy_stats
from stallscope.arrays.stats import Mean

#: With this many repeats, their spread gives the uncertainty of their mean.
FEWEST_REPEATS = 2


def mean_over(means: Sequence[Mean]) -> Mean:
    """Return the mean over repeats; the interval of two or more comes from their spread."""
    if len(means) < FEWEST_REPEATS:
        return means[0]
    values = np.array([mean.value for mean in means])
    half = scipy_stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    centre = float(values.mean())
    return Mean(centre, (centre - float(half), centre + float(half)))
