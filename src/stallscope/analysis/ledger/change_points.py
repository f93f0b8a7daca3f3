"""Find the steps at which step time changed for good, and what changed.

Binary segmentation: the step that splits the run into the two most different parts is a change point
if the parts differ by more than autocorrelated noise makes them differ, and by enough to matter; then
each part is looked at alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.lazy_scipy import ndimage
from stallscope.arrays.stats import autocorrelation_time, robust_sd
from stallscope.arrays.types import Floats

from .ledger import ENTRIES, Ledger

# Shorter parts are bursts.
_SHORTEST = 25
# The largest of many correlated t values: beyond 5.5 in less than 1 of 100 clean runs.
_SIGNIFICANT = 5.5
# Smaller changes are not reported.
_WORTH = 0.05
_MOST = 10
_FAR_SDS = 4.0


@dataclass(frozen=True)
class ChangePoint:
    """A step at which step time changed for good, and what changed most."""

    step: int
    before_ms: float
    after_ms: float
    #: The entry of the ledger that changed most, and by how much.
    entry: str
    by_ms: float
    #: The rank that is critical after it where most of it is imbalance; None otherwise.
    rank: int | None


def change_points(ledger: Ledger) -> tuple[ChangePoint, ...]:
    """Find the change points of steady steps, in order."""
    series = _without_outliers(np.log(np.maximum(ledger.total, 1).astype(np.float64)))
    found: list[int] = []
    _split(series, 0, len(series), found)
    edges = [0, *sorted(found), len(series)]
    return tuple(
        _described(ledger, edges[index - 1], edges[index], edges[index + 1])
        for index in range(1, len(edges) - 1)
    )


def _without_outliers(series: Floats) -> Floats:
    """Limit single slow steps, which are not change points."""
    if len(series) < 2 * _SHORTEST:
        return series
    middle = ndimage.median_filter(series, size=2 * _SHORTEST + 1, mode="nearest")
    limit = _FAR_SDS * robust_sd(series - middle)
    return np.asarray(np.clip(series, middle - limit, middle + limit))


def _split(series: Floats, begin: int, end: int, found: list[int]) -> None:
    own = series[begin:end]
    n = len(own)
    if n < 2 * _SHORTEST or len(found) >= _MOST:
        return
    left = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(own)
    difference = (sums[-1] - sums[left - 1]) / (n - left) - sums[left - 1] / left
    weight = np.sqrt(left * (n - left) / n)
    best = int(np.argmax(np.abs(difference) * weight))
    at = int(left[best])
    # Noise is measured around the mean of each part.
    rest = np.concatenate([own[:at] - own[:at].mean(), own[at:] - own[at:].mean()])
    scatter = rest.std() * np.sqrt(autocorrelation_time(rest))
    significant = abs(difference[best]) * weight[best] > _SIGNIFICANT * max(float(scatter), 1e-12)
    if not significant or abs(difference[best]) < np.log1p(_WORTH):
        return
    found.append(begin + at)
    _split(series, begin, begin + at, found)
    _split(series, begin + at, end, found)


def _described(ledger: Ledger, begin: int, at: int, end: int) -> ChangePoint:
    before, after = slice(begin, at), slice(at, end)
    changed = {}
    for name in ENTRIES:
        entry = ledger.entry(name)
        changed[name] = float(entry[after].mean() - entry[before].mean()) / 1e6
    most = max(changed, key=lambda name: abs(changed[name]))
    rank = None
    if most == "imbalance":
        slower = after if changed[most] > 0 else before
        times = np.bincount(ledger.critical[slower], minlength=len(ledger.ranks))
        # Only a rank that is critical in most steps is named.
        if times.max() * 2 > times.sum():
            rank = ledger.ranks[int(times.argmax())]
    return ChangePoint(
        int(ledger.steps[at]),
        float(ledger.total[before].mean()) / 1e6,
        float(ledger.total[after].mean()) / 1e6,
        most,
        changed[most],
        rank,
    )
