"""Turn the rows of a session into the lines of its log."""

from __future__ import annotations

from typing import Optional, Union

from .after_training.own_steps import OwnSteps
from .hangs.in_flight import StepWatch
from .step_log.format import END, EPOCH, IntervalRow, MachineRow, RowFormatter, SkippedRow, StepRow
from .step_log.sampling import Sampler, Sampling

#: A row; text is a line already.
Row = Union[StepRow, IntervalRow, MachineRow, str]


class RowLines:
    """Samples and formats rows, in order, and counts the steps among them.

    Args:
        sampling: which steps to record in full; None for all.
    """

    def __init__(self, sampling: Optional[Sampling]) -> None:
        self._sampler = None if sampling is None else Sampler(sampling)
        #: Learns from the rows how long steps take.
        self.watch: Optional[StepWatch] = None
        #: Sums the rank's own steps; None if no summary is printed.
        self.own_steps: Optional[OwnSteps] = None
        #: The number of the last step.
        self.last_step: Optional[int] = None

    def of(self, row: Row, formatter: RowFormatter) -> str:
        """Return the lines that a row adds."""
        if isinstance(row, str):
            return row
        if isinstance(row, MachineRow):
            return formatter.machine(row)
        if self.watch is not None:
            self.watch.row_written(row)
        return (
            self._of_interval(row, formatter)
            if isinstance(row, IntervalRow)
            else self._of_step(row, formatter)
        )

    def _of_interval(self, row: IntervalRow, formatter: RowFormatter) -> str:
        if self.own_steps is not None:
            self.own_steps.interrupt()
        ends = row.kind in (EPOCH, END)
        skipped = self._sampler.rest() if ends and self._sampler is not None else []
        return "".join(map(formatter.skipped, skipped)) + formatter.interval(row)

    def _of_step(self, row: StepRow, formatter: RowFormatter) -> str:
        self.last_step = row.step
        if self.own_steps is not None:
            self.own_steps.add(row)
        if self._sampler is None:
            return formatter.step(row)
        return "".join(
            formatter.skipped(sampled)
            if isinstance(sampled, SkippedRow)
            else formatter.step(sampled)
            for sampled in self._sampler.rows(row)
        )
