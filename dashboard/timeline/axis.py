"""Convert wall time to positions on the timeline's axis.

The axis follows the clock of one log per generation; events and metrics have the wall clocks of their
writers. Positions are as accurate as these clocks agree.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.utc import reduced_at
from stallscope.arrays.types import Ints
from stallscope.run import Run


@dataclass(frozen=True)
class TimeAxis:
    """Wall time of the steps: nanoseconds since 1970."""

    lanes: Lanes
    #: When each step starts, with the gap before it, in ascending order; and when it ends.
    start: Ints
    end: Ints

    @classmethod
    def of(cls, run: Run, lanes: Lanes) -> TimeAxis | None:
        """Return the axis; None if a log has no wall clock, or has several unrelated ones."""
        ends = [reduced_at(run, one.ledger, one.number) for one in lanes.generations]
        known = [one for one in ends if one is not None]
        if len(known) < len(ends):
            return None
        end = np.concatenate(known)
        return cls(lanes, np.maximum.accumulate(end - (lanes.end - lanes.gap_begin)), end)

    def place(self, walls: Ints) -> Ints:
        """Return nanoseconds on the axis: below 0 before the first step, above the span at the end."""
        lanes = self.lanes
        step = np.maximum(np.searchsorted(self.start, walls, "right") - 1, 0)
        at = lanes.end[step] + walls - self.end[step]
        # Time between unrelated clocks has no length on the axis.
        following = np.minimum(step + 1, len(lanes) - 1)
        return np.where(following > step, np.minimum(at, lanes.gap_begin[following]), at)
