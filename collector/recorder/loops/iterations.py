"""Sum iterations of a training loop into steps."""

from __future__ import annotations

from typing import List, Optional

from ..step_log.format import StepRow


class IterationSummer:
    """Sums iterations that only accumulate gradients into steps, and numbers the steps.

    Args:
        next_step: the number of the next row.
        passes_per_step: iterations that make a step.
        iterations_done: how many of those the optimizer had already done before the first row.
    """

    def __init__(self, next_step: int, passes_per_step: int, iterations_done: int = 0) -> None:
        self.next_step = next_step
        self._passes = passes_per_step
        self._iterations: List[StepRow] = []
        self._missing = passes_per_step - iterations_done % passes_per_step

    def rows(self, iteration: StepRow) -> List[StepRow]:
        """Return the step that an iteration completes; nothing while gradients accumulate."""
        self._iterations.append(iteration)
        if len(self._iterations) < self._missing:
            return []
        row = sum_iterations(self._iterations)._replace(step=self.next_step)
        self._iterations = []
        self._missing = self._passes
        self.next_step += 1
        return [row]


def sum_iterations(iterations: List[StepRow]) -> StepRow:
    """Sum iterations into one step; only the last one ended with a reduction.

    Input waits and samples add up; the other values are the last iteration's.
    """
    first, last = iterations[0], iterations[-1]
    fetched = _total(
        [
            None if iteration.data is None else iteration.data - iteration.begin
            for iteration in iterations
        ]
    )
    return last._replace(
        begin=first.begin,
        data=None if fetched is None else first.begin + fetched,
        micro=sum(iteration.micro for iteration in iterations),
        samples=_total([iteration.samples for iteration in iterations]),
        clock=first.clock,
    )


def _total(values: List[Optional[int]]) -> Optional[int]:
    """Return the sum; None where a value is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
