"""Compute mean times of one rank's steps from its own rows."""

from __future__ import annotations

from typing import List, Optional

from ..step_log.format import StepRow

# The first steps trace, allocate and connect.
_WARM_UP_STEPS = 10

#: A rank alone cannot tell whether it waits for other ranks or for the network.
WAITING = "waiting and allreduce"
#: The parts of a step, as ``OwnSteps.parts_ns`` has them.
PARTS = ("input", "compute", WAITING, "other")


class OwnSteps:
    """Sums over steps that directly follow another one, without the first steps.

    A step lasts from the previous reduction to its own, so its parts add up to it.
    """

    def __init__(self) -> None:
        #: All steps, and those that are in the means.
        self.steps = 0
        self.counted = 0
        self._with_parts = 0
        self._whole_ns = 0
        self._parts_ns = [0] * len(PARTS)
        self._before: Optional[StepRow] = None

    def add(self, row: StepRow) -> None:
        """Add a step; those of one session come in order."""
        before, self._before = self._before, row
        self.steps += 1
        if self.steps <= _WARM_UP_STEPS or before is None or row.step != before.step + 1:
            return
        began = _reduced(before)
        self.counted += 1
        self._whole_ns += _reduced(row) - began
        if row.data is not None and row.ready is not None and row.reduced is not None:
            parts = (
                row.data - row.begin,
                row.ready - row.data,
                row.reduced - row.ready,
                row.begin - began,
            )
            self._with_parts += 1
            self._parts_ns = [total + part for total, part in zip(self._parts_ns, parts)]

    def interrupt(self) -> None:
        """Note an interruption: the next step does not directly follow the last one."""
        self._before = None

    @property
    def whole_ns(self) -> Optional[float]:
        """Return the mean step; None where there were too few."""
        return self._whole_ns / self.counted if self.counted else None

    @property
    def parts_ns(self) -> Optional[List[float]]:
        """Return the means of ``PARTS``; None unless nearly all steps have them."""
        # Single timestamps are missing where a clock was set.
        if not self.counted or self._with_parts < 0.9 * self.counted:
            return None
        return [total / self._with_parts for total in self._parts_ns]


def _reduced(row: StepRow) -> int:
    return row.end if row.reduced is None else row.reduced
