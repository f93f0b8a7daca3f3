"""What fixing something gains: the run's own steps, replayed without the fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ledger import Ledger
from .stats import Mean, mean_with_interval

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class WhatIf:
    """A fix, the time per step that it saves, and the speed-up that follows."""

    fix: str
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None


def what_if(fix: str, ledger: Ledger, saved: Ints) -> WhatIf:
    """The gain of a fix that saves so many nanoseconds in every step."""
    step = float(ledger.total.mean())
    mean = mean_with_interval(saved)

    def speedup(nanoseconds: float) -> float:
        return step / max(step - nanoseconds, 1.0)

    ci95 = None if mean.ci95 is None else (speedup(mean.ci95[0]), speedup(mean.ci95[1]))
    return WhatIf(fix, mean.scaled(1e-6), speedup(mean.value), ci95)


def healed_arrival(arrival: Ints, faulty: Sequence[int]) -> Ints:
    """Arrivals with the faulty ranks' replaced by what healthy ranks would have needed.

    Quantile mapping: a faulty rank's k-th smallest arrival becomes the matching quantile of the
    healthy ranks' pooled ones, in place, so that what is common to all ranks in a step stays.
    Subtracting the mean excess instead fails on bursts.
    """
    healthy = [r for r in range(arrival.shape[1]) if r not in set(faulty)]
    healed = arrival.copy()
    n = len(arrival)
    if not healthy or not n:
        return healed
    quantiles = np.quantile(arrival[:, healthy], (np.arange(n) + 0.5) / n)
    for rank in faulty:
        healed[np.argsort(arrival[:, rank], kind="stable"), rank] = quantiles.astype(np.int64)
    return healed


def saved_by(arrival: Ints, better: Ints) -> Ints:
    """Nanoseconds per step by which the last arrival comes sooner."""
    return np.asarray(arrival.max(axis=1) - better.max(axis=1))


def without_excess(arrival: Ints, stage: Ints, allowed: float) -> Ints:
    """Arrivals if a stage took no more than ``allowed`` nanoseconds, on every rank."""
    return arrival - np.maximum(stage - int(allowed), 0)
