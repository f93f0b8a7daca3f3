"""Find the warm-up: the first steps of a session, which trace, allocate and connect."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.arrays.stats import robust_sd

from .ledger import Ledger

# Steps are warm-up while they are slower than nearly all steps of the second half.
_SLOW_SDS = 6.0
_SLOW_RATIO = 1.5
# This many settled steps in a row end the warm-up.
_SETTLED = 5
# If a run is slow for longer, that is no warm-up but a finding.
_LONGEST = 100
_LONGEST_SHARE = 0.2


def warm_up_steps(ledger: Ledger) -> npt.NDArray[np.bool_]:
    """Mark the steps that belong to the warm-up of their session.

    The first step of a session always does, because it traces. The first steps of later epochs do not:
    their delays occur in every epoch.
    """
    warm = np.zeros(len(ledger), bool)
    edges = [*np.flatnonzero(ledger.session_start), len(ledger)]
    for begin, end in pairwise(edges):
        warm[begin : begin + _settling_length(ledger.total[begin:end])] = True
    return warm


def _settling_length(total: npt.NDArray[Any]) -> int:
    """Return how many of the first times of a series are warm-up."""
    n = len(total)
    if n < 2:
        return n
    settled_half = total[n // 2 :]
    median = float(np.median(settled_half))
    slow = total > max(median + _SLOW_SDS * robust_sd(settled_half), _SLOW_RATIO * median)
    longest = _longest(n)
    for length in range(1, longest):
        if not slow[length : length + _SETTLED].any():
            return length
    return longest


def settling_length_within(total: npt.NDArray[Any]) -> int:
    """Return how many of the first times of a series are warm-up, even if it stays slow for long.

    If the first times stay slow for longer than a warm-up, look for the warm-up among them only.
    """
    length = _settling_length(total)
    longest = _longest(len(total))
    if length < longest or longest <= 2 * _SETTLED:
        return length
    return settling_length_within(total[:longest])


def _longest(count: int) -> int:
    return max(1, min(_LONGEST, int(count * _LONGEST_SHARE)))
