"""Describe step times that are known from printed lines only."""

from __future__ import annotations

from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount, percent, typical

# What the time in a line measures, by how it was found.
_WINDOWS = {
    "running": "about one step each, from running means",
    "last": "with the time of the last of {steps}",
    "mean": "with the mean of {steps}",
    "median": "with the median of {steps}",
    "differences": "with the mean of {steps}, from means over all steps so far",
    "scaled": "with the time of a few of {steps}, scaled to means over all steps so far",
    "stamps": "with the mean of {steps}",
}

# A median that differs from the mean by this share of it says something of its own.
_DIFFERS = 0.1
# How steps are counted in reports.
_AS_HERE = "from 0"


def printed_figures(printed: PrintedSteps | None) -> list[tuple[str, str]]:
    """Return the figures of printed step times with their names; empty without any."""
    if printed is None:
        return []
    rounded = f"to {amount(printed.precision_ms, 'ms')}" if printed.precision_ms else ""
    lines = printed_lines(printed)
    figures = [
        ("Steady step", amount(printed.step.mean, "ms", printed.step.ci95)),
        ("Median step", _median(printed)),
        ("Waiting for data", _input(printed)),
        ("Not measured apart", _rest(printed)),
        ("Warm-up", counted(printed.warm_up_steps, "step")),
        ("Steps" if printed.recorded else "Lines", ", ".join(filter(None, [lines, rounded]))),
        ("Step numbers", _numbers(printed)),
    ]
    return [(title, text) for title, text in figures if text]


def printed_lines(printed: PrintedSteps) -> str:
    """Describe the lines: 240 lines with the mean of 20 steps."""
    steps = typical(printed.whole.steps)
    if printed.found == "step":
        return counted(len(printed.whole), "single step")
    stamps = ", by their timestamps" if printed.found == "stamps" else ""
    what = _WINDOWS[printed.found].format(steps=f"{steps} steps")
    if steps == "1" and printed.found != "running":
        what = "about one step each"
    return f"{counted(len(printed.whole), 'line')} {what}{stamps}"


def _median(printed: PrintedSteps) -> str:
    """Write the median step where it differs from the mean: few steps take much longer or shorter."""
    mean, median = printed.step.mean, printed.step.p50
    return amount(median, "ms") if abs(mean - median) > _DIFFERS * mean else ""


def _numbers(printed: PrintedSteps) -> str:
    """Describe how steps are counted here and in the log; empty if both are the same or unknown."""
    if printed.numbers in (None, _AS_HERE):
        return ""
    return f"{_AS_HERE} over the job; the log counts {printed.numbers}"


def _input(printed: PrintedSteps) -> str:
    wait, share = printed.input_ms, printed.input_share
    if wait is None or share is None:
        return ""
    known = f"{amount(wait.value, 'ms', wait.ci95)}, {percent(share.value)} of the step"
    return f"{known}; mean over ranks" if len(printed.ranks) > 1 else known


def _rest(printed: PrintedSteps) -> str:
    """Write the rest of a recorded step; empty for lines, which may not cover whole steps."""
    wait, step = printed.input_ms, printed.step.mean
    if wait is None or not printed.recorded:
        return ""
    rest = max(step - wait.value, 0.0)
    together = "compute, waiting for other ranks and allreduce"
    return f"{amount(rest, 'ms')}, {percent(rest / step)} of the step: {together}"
