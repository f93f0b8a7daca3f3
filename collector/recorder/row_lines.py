"""Turn the rows of a session into the lines of its log, and sum up their times."""

from __future__ import annotations

from typing import List, Optional, Tuple, Union

from .hangs import StepWatch
from .step_log.line_format import (
    END,
    EPOCH,
    UNKNOWN_ELEMENTS,
    InterruptionRow,
    IntervalRow,
    MachineRow,
    RowFormatter,
    Sampler,
    Sampling,
    SkippedRow,
    StepRow,
    TokensRow,
    facts_line,
)

#: A row; text is a line already.
Row = Union[StepRow, IntervalRow, InterruptionRow, TokensRow, MachineRow, str]

# The first steps trace, allocate and connect.
_WARM_UP_STEPS = 10
#: A rank alone cannot tell whether it waits for other ranks or for the network.
WAITING = "waiting and allreduce"
#: The parts of a step, as ``OwnSteps.parts_ns`` has them.
PARTS = ("input", "compute", WAITING, "other")


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
        # Whether the first step tells its elements, how many per sample, and the file that says so.
        self._tells_elements: Optional[bool] = None
        self._usual = 0
        self._stated_in: Optional[RowFormatter] = None

    def of(self, row: Row, formatter: RowFormatter) -> str:
        """Return the lines that a row adds."""
        if isinstance(row, str):
            return row
        if isinstance(row, MachineRow):
            return formatter.machine(row)
        if isinstance(row, InterruptionRow):
            return formatter.interruption(row)
        if isinstance(row, TokensRow):
            is_kept = self._sampler is None or self._sampler.keeps(row.step)
            return formatter.tokens(row) if is_kept else ""
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
        usual, row = self._without_usual_elements(row, formatter)
        if self._sampler is None:
            return usual + formatter.step(row)
        return usual + "".join(
            formatter.skipped(sampled)
            if isinstance(sampled, SkippedRow)
            else formatter.step(sampled)
            for sampled in self._sampler.rows(row)
        )

    def _without_usual_elements(self, row: StepRow, formatter: RowFormatter) -> Tuple[str, StepRow]:
        """Leave out elements that the samples tell: as many per sample as in the first step.

        Returns:
            The line that states the usual number, once in each file, and the row.
        """
        samples, elements = row.samples, row.elements
        if self._tells_elements is None:
            self._tells_elements = bool(samples) and elements is not None
            self._usual = (elements or 0) // (samples or 1)
        if not self._tells_elements:
            # Earlier rows would seem to have the usual number.
            return "", row if elements is None else row._replace(elements=None)
        stated = self._stated_in is formatter
        self._stated_in = formatter
        line = "" if stated else facts_line({"sample_elements": self._usual})
        if elements is None:
            return line, row if samples is None else row._replace(elements=UNKNOWN_ELEMENTS)
        is_usual = samples is not None and elements == samples * self._usual
        return line, row._replace(elements=None) if is_usual else row


# -- Compute mean times of one rank's steps from its own rows -------------------------------------


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
