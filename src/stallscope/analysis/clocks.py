"""One clock for all hosts, from the completions of collectives.

Ranks of one host share its monotonic clock; hosts do not. An allreduce completes on all ranks nearly
together, so the offset of a host at a step is the median over its ranks of ``reduced`` minus the
same of the reference host, smoothed by a running median: a single fit over the whole run fails under
slewed and stepped clocks. Arrivals are never used: late arrival is what is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

Ints = npt.NDArray[np.int64]

# Long enough to average over completion jitter, short enough to follow slewed clocks.
_WINDOW = 51
# The median of n normal values scatters √(π/2) more than their mean.
_MEDIAN_LOSS = np.sqrt(np.pi / 2)
_MAD_TO_SD = 1.4826


@dataclass(frozen=True)
class HostClocks:
    """Clock offsets against the reference host."""

    #: S × R nanoseconds; subtracting them brings a rank's times to the reference clock.
    offset: Ints
    #: Per rank: nanoseconds by which the offset may be wrong, statistically and by completion skew.
    uncertainty: npt.NDArray[np.float64]

    @classmethod
    def same(cls, steps: int, ranks: int) -> HostClocks:
        """All ranks on one clock."""
        return cls(np.zeros((steps, ranks), np.int64), np.zeros(ranks))

    def mean_offset(self) -> npt.NDArray[np.float64]:
        """Per rank, nanoseconds."""
        if not len(self.offset):
            return np.zeros(self.offset.shape[1])
        return np.asarray(self.offset.mean(axis=0))


def align_clocks(reduced: Ints, domains: list[str], null: int) -> HostClocks:
    """Offsets of every rank at every step.

    Args:
        reduced: S × R nanoseconds, each rank on its own clock, ``null`` where not measured.
        domains: per rank, the name of its clock.
        null: the value that stands for "not measured".
    """
    steps, ranks = reduced.shape
    offset = np.zeros((steps, ranks), np.int64)
    uncertainty = np.zeros(ranks)
    names = np.array(domains)
    reference = names[0]
    base = _completion(reduced[:, names == reference], null)
    for name in sorted(set(domains) - {str(reference)}):
        own = names == name
        completion = _completion(reduced[:, own], null)
        known = (base != null) & (completion != null)
        if not known.any():
            uncertainty[own] = np.inf
            continue
        difference = (completion - base)[known]
        smooth = median_filter(difference, size=min(_WINDOW, len(difference)), mode="nearest")
        at = np.flatnonzero(known)
        nearest = np.clip(np.searchsorted(at, np.arange(steps)), 0, len(at) - 1)
        offset[:, own] = smooth[nearest][:, None]
        scatter = _MAD_TO_SD * float(np.median(np.abs(difference - smooth)))
        skew = max(_skew(reduced[:, own], null), _skew(reduced[:, names == reference], null))
        uncertainty[own] = skew + scatter * _MEDIAN_LOSS / np.sqrt(min(_WINDOW, len(difference)))
    return HostClocks(offset, uncertainty)


def _completion(reduced: Ints, null: int) -> Ints:
    """Per step the median over a host's ranks; ``null`` where one of them is missing."""
    measured = (reduced != null).all(axis=1)
    if not measured.any():
        return np.full(len(reduced), null)
    first = int(reduced[measured].min())
    # Differences from a common origin, so that no precision is lost in the median's floats.
    median = np.median(np.where(measured[:, None], reduced - first, 0), axis=1)
    return np.where(measured, np.rint(median).astype(np.int64) + first, null)


def _skew(reduced: Ints, null: int) -> float:
    """How far the completions of one host's ranks typically lie apart."""
    measured = (reduced != null).all(axis=1)
    if reduced.shape[1] < 2 or not measured.any():
        return 0.0
    return float(np.median(np.ptp(reduced[measured], axis=1)))
