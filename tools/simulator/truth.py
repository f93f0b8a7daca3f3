"""The truth of a simulated job: the exact quantities of the ledger, on true time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from .draws import Ints

_LEDGER = ("input", "compute", "other", "imbalance", "allreduce", "step")


@dataclass(frozen=True)
class Truth:
    """S steps × R ranks of int64 nanoseconds on true time unless noted."""

    input: Ints
    compute: Ints
    #: From R(i−1) to the rank's begin. In the first step of an epoch the gap between the epochs is left
    #: out, so only the end of the previous step counts; in the very first step, from the earliest begin.
    other: Ints
    ready: Ints
    reduced: Ints
    #: Per step: the first rank's reduced minus the last rank's ready.
    allreduce: Ints
    #: Per step: R(i), the earliest reduced of any rank.
    reduced_first: Ints
    #: Per step.
    epochs: Ints
    #: The time that faults added to each stage, and for "bucket" the delay of early gradients (the
    #: largest one extends the transfer). A fault in other adds nothing to the first step of an epoch,
    #: because the time before it belongs to the epoch.
    extra: Mapping[str, Ints]
    #: S × hosts: subtract it from the host's clock to get true time.
    clock_offset: Ints

    @cached_property
    def arrival(self) -> Ints:
        """Return when each rank's gradients were ready, from the start of the step."""
        return np.asarray(self.other + self.input + self.compute)

    @cached_property
    def critical(self) -> Ints:
        """Return the rank with the largest arrival per step; of several, the highest rank."""
        ranks = self.arrival.shape[1]
        return np.asarray(ranks - 1 - np.argmax(self.arrival[:, ::-1], axis=1))

    @cached_property
    def reference(self) -> Ints:
        """Return the rank with the lower median of the arrivals, per step."""
        ranks = self.arrival.shape[1]
        return np.asarray(np.argsort(self.arrival, axis=1, kind="stable")[:, (ranks - 1) // 2])

    @property
    def imbalance(self) -> Ints:
        """Return how much later than the reference rank the critical rank was ready, per step."""
        return self._of(self.arrival, self.critical) - self._of(self.arrival, self.reference)

    @property
    def step(self) -> Ints:
        """Return the time of each step, without gaps between epochs."""
        return self._of(self.arrival, self.critical) + self.allreduce

    def step_ms(self, first: int = 1) -> float:
        """Return the mean of R(i) − R(i−1) from step ``first`` on, without the first steps of epochs."""
        within = self.epochs[1:] == self.epochs[:-1]
        within &= np.arange(1, len(self.epochs)) >= first
        return float(np.diff(self.reduced_first)[within].mean()) / 1e6

    def ledger_means_ms(self, skip: int = 1) -> dict[str, float]:
        """Return the means of the ledger's entries and of the step, without the first ``skip`` steps."""
        steps: dict[str, npt.NDArray[np.int64]] = {
            name: self._of(getattr(self, name), self.reference)
            for name in ("input", "compute", "other")
        }
        steps |= {name: getattr(self, name) for name in ("imbalance", "allreduce", "step")}
        return {name: float(steps[name][skip:].mean()) / 1e6 for name in _LEDGER}

    @staticmethod
    def _of(stage: Ints, rank: Ints) -> Ints:
        return stage[np.arange(len(stage)), rank]
