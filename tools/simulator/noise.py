"""Noise of a healthy job."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from .draws import Floats, lognormal


@dataclass(frozen=True)
class Noise:
    """Lognormal factors with mean 1 on every stage, autocorrelated over steps (AR(1) of logarithms)."""

    #: Coefficient of variation of a stage, independent over ranks and stages.
    cv: float = 0.02
    #: Autocorrelation from one step to the next.
    phi: float = 0.5
    #: Coefficient of variation of a factor that all ranks and stages of a step share.
    common_cv: float = 0.0
    #: Probability, per rank and step, of an additional delay in compute.
    tail_share: float = 0.0
    #: Mean of that delay, which is exponential, as a multiple of the job's compute_ms.
    tail_scale: float = 0.5

    def __post_init__(self) -> None:
        for name in ("cv", "common_cv", "tail_share", "tail_scale"):
            if not getattr(self, name) >= 0:
                raise ValueError(
                    f"the noise's {name} is {getattr(self, name)}; it must be at least 0"
                )
        if not 0 <= self.phi < 1:
            raise ValueError(f"the noise's phi is {self.phi}; it must be at least 0 and below 1")
        if self.tail_share > 1:
            raise ValueError(f"the noise's tail_share is {self.tail_share}; it must be at most 1")

    def factors(self, random: np.random.Generator, rows: int, steps: int, cv: float) -> Floats:
        """Draw factors, rows × steps; each row is an independent series."""
        if cv == 0:
            return np.ones((rows, steps), np.float32)
        series = random.standard_normal((rows, steps), dtype=np.float32)
        if self.phi and steps:
            # The first value has the series' spread already; the scaling keeps it for later values.
            series[:, 1:] *= np.float32(np.sqrt(1 - self.phi**2))
            series = lfilter(np.ones(1, np.float32), np.array([1, -self.phi], np.float32), series)
        return lognormal(series, cv)

    def tail(self, random: np.random.Generator, rows: int, steps: int) -> Floats:
        """Draw the additional delays as multiples of compute_ms, rows × steps; most are 0."""
        longer = random.random((rows, steps), dtype=np.float32) < self.tail_share
        tail = np.zeros((rows, steps), np.float32)
        tail[longer] = self.tail_scale * random.standard_exponential(int(longer.sum()))
        return tail
