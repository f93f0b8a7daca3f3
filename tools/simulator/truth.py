"""What really happened: the quantities of the ledger as they are, before any clock or log."""

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
    """S steps × R ranks of int64 nanoseconds on true time unless said otherwise."""

    input: Ints
    compute: Ints
    #: From R(i−1) to the own begin. In the first step of an epoch what lies between the epochs is
    #: cut out, which leaves the end of the step before; in the very first, from the earliest begin.
    other: Ints
    ready: Ints
    reduced: Ints
    #: Per step: the first rank's reduced minus the last rank's ready.
    allreduce: Ints
    #: Per step: R(i), the earliest reduced of any rank.
    reduced_first: Ints
    #: Per step.
    epochs: Ints
    #: What the faults added to each stage, and by "bucket" how late a rank was for early gradients
    #: (the transfer is prolonged by the largest). A fault in other adds nothing to the first step of
    #: an epoch: what lies before it is the epoch's.
    extra: Mapping[str, Ints]
    #: S × hosts: subtracting it brings the host's clock to true time.
    clock_offset: Ints

    @cached_property
    def arrival(self) -> Ints:
        """When a rank's gradients were ready, counted from the step's begin."""
        return np.asarray(self.other + self.input + self.compute)

    @cached_property
    def critical(self) -> Ints:
        """Per step: the rank with the greatest arrival; of several, the highest."""
        ranks = self.arrival.shape[1]
        return np.asarray(ranks - 1 - np.argmax(self.arrival[:, ::-1], axis=1))

    @cached_property
    def reference(self) -> Ints:
        """Per step: the rank with the lower median of the arrivals."""
        ranks = self.arrival.shape[1]
        return np.asarray(np.argsort(self.arrival, axis=1, kind="stable")[:, (ranks - 1) // 2])

    @property
    def imbalance(self) -> Ints:
        """Per step: how much later than the reference rank the critical rank was ready."""
        return self._of(self.arrival, self.critical) - self._of(self.arrival, self.reference)

    @property
    def step(self) -> Ints:
        """Per step: the whole of it, without what lies between epochs."""
        return self._of(self.arrival, self.critical) + self.allreduce

    def step_ms(self, first: int = 1) -> float:
        """Mean of R(i) − R(i−1) from step ``first`` on, without the first steps of epochs."""
        within = self.epochs[1:] == self.epochs[:-1]
        within &= np.arange(1, len(self.epochs)) >= first
        return float(np.diff(self.reduced_first)[within].mean()) / 1e6

    def ledger_means_ms(self, skip: int = 1) -> dict[str, float]:
        """Means of the ledger's entries and of the step over all but the first ``skip`` steps."""
        steps: dict[str, npt.NDArray[np.int64]] = {
            name: self._of(getattr(self, name), self.reference)
            for name in ("input", "compute", "other")
        }
        steps |= {name: getattr(self, name) for name in ("imbalance", "allreduce", "step")}
        return {name: float(steps[name][skip:].mean()) / 1e6 for name in _LEDGER}

    @staticmethod
    def _of(stage: Ints, rank: Ints) -> Ints:
        return stage[np.arange(len(stage)), rank]
