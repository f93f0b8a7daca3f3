"""Noise of a healthy job: no step takes as long as the one before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from .draws import Floats, lognormal


@dataclass(frozen=True)
class Noise:
    """Lognormal factors with mean 1 on every stage, autocorrelated over steps (AR(1) of the logs)."""

    #: Coefficient of variation of a stage, independent over ranks and stages.
    cv: float = 0.02
    #: Autocorrelation from one step to the next.
    phi: float = 0.5
    #: Coefficient of variation of a factor that all ranks and stages of a step share.
    common_cv: float = 0.0
    #: Probability, per rank and step, that its compute takes longer still …
    tail_share: float = 0.0
    #: … by an exponential time with this mean, as a multiple of the job's compute_ms.
    tail_scale: float = 0.5

    def __post_init__(self) -> None:
        for name in ("cv", "common_cv", "tail_share", "tail_scale"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"the noise's {name} is {getattr(self, name)}; it is 0 or more")
        if not 0 <= self.phi < 1:
            raise ValueError(f"the noise's phi is {self.phi}; it is at least 0 and less than 1")
        if self.tail_share > 1:
            raise ValueError(f"the noise's tail_share is {self.tail_share}; it is a share, up to 1")

    def factors(self, random: np.random.Generator, rows: int, steps: int, cv: float) -> Floats:
        """Rows × steps factors, each row a series of its own."""
        if cv == 0:
            return np.ones((rows, steps), np.float32)
        series = random.standard_normal((rows, steps), dtype=np.float32)
        if self.phi and steps:
            # The first value already has the series' own spread; the later ones keep it.
            series[:, 1:] *= np.float32(np.sqrt(1 - self.phi**2))
            series = lfilter(np.ones(1, np.float32), np.array([1, -self.phi], np.float32), series)
        return lognormal(series, cv)

    def tail(self, random: np.random.Generator, rows: int, steps: int) -> Floats:
        """Rows × steps multiples of compute_ms: 0 but for the few that take longer."""
        longer = random.random((rows, steps), dtype=np.float32) < self.tail_share
        tail = np.zeros((rows, steps), np.float32)
        tail[longer] = self.tail_scale * random.standard_exponential(int(longer.sum()))
        return tail
