"""Where wall time lies on the timeline's axis.

Wall clocks tie it to the steps: that of the log that the axis is counted on, and that of the writer of
what is placed. They agree as well as the hosts' clocks are set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.utc import reduced_at
from stallscope.arrays.types import Ints
from stallscope.run import Run


@dataclass(frozen=True)
class Axis:
    """Wall time of the steps: nanoseconds since 1970."""

    lanes: Lanes
    #: Where the step, or what lies before it, begins, in ascending order; and where the step ends.
    begin: Ints
    end: Ints

    @classmethod
    def of(cls, run: Run, lanes: Lanes) -> Axis | None:
        """None where no wall clock ties the axis to UTC, or several do that have nothing in common."""
        end = reduced_at(run, lanes.ledger)
        if end is None:
            return None
        return cls(lanes, np.maximum.accumulate(end - (lanes.end - lanes.gap_begin)), end)

    def place(self, walls: Ints) -> Ints:
        """Nanoseconds on the axis: below 0 before the first step, beyond the span after the last."""
        lanes = self.lanes
        step = np.maximum(np.searchsorted(self.begin, walls, "right") - 1, 0)
        at = lanes.end[step] + walls - self.end[step]
        # Time between clocks that have nothing in common has no length on the axis.
        following = np.minimum(step + 1, len(lanes) - 1)
        return np.where(following > step, np.minimum(at, lanes.gap_begin[following]), at)
