"""Make rows of step logs for tests of the recorder."""

from __future__ import annotations

import time

from stallscope.collector.recorder.step_log.line_format import StepRow


def step_row(number: int) -> StepRow:
    """Make the row of a step that starts now and takes a microsecond."""
    begin = time.monotonic_ns()
    return StepRow(number, 0, begin, None, None, None, begin + 1000, 1, 8, 0)
