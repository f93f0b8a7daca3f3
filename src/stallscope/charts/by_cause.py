"""Chart the step by cause as a bar; waiting for slow ranks is paler."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import waiting_part
from stallscope.text.step_figures import StepFigures
from stallscope.text.titles import entry_name, entry_title

from .kinds import Bar, Segment, StackedBars


def cause_chart(analysis: Analysis) -> StackedBars | None:
    """Chart the step by cause, and the baseline's step below it. None without stages.

    The pale part of a stage is the time that other ranks wait for the slowest rank.
    """
    step = analysis.step
    figures = StepFigures.of(analysis)
    if step is None or figures is None:
        return None
    bars = [cause_bar("this run", analysis, figures)]
    base = figures.in_same_digits(analysis.baseline)
    if analysis.baseline is not None and base is not None:
        bars.append(cause_bar("baseline", analysis.baseline, base))
    largest = max(analysis.by_cause, key=lambda entry: entry.ms)
    name = entry_title(largest.name, analysis).lower()
    time = figures.causes.amount(figures.part(largest.name), largest.ci95_ms)
    waiting = ""
    if figures.waiting(largest.name):
        waits = figures.causes.amount(figures.waiting(largest.name))
        waiting = f", {waits} of it waiting for slow ranks"
    return StackedBars(
        f"Step time: {figures.causes.amount(figures.causes.total, step.ci95)}",
        f"The largest part is {name} with {time}{waiting}.",
        "ms",
        tuple(bars),
    )


def cause_bar(label: str, analysis: Analysis, figures: StepFigures) -> Bar:
    """Chart the step by cause as a bar; the part that others wait for is a separate segment."""
    segments, printed = [], []
    for entry in analysis.by_cause:
        waiting, waits = waiting_part(entry), figures.waiting(entry.name)
        ci95 = entry.ci95_ms if not waiting else None
        segments.append(Segment(entry_name(entry.name, analysis), entry.ms - waiting, ci95))
        printed.append(figures.part(entry.name) - waits)
        if waiting:
            segments.append(Segment(f"{entry.name}_waiting", waiting))
            printed.append(waits)
    return Bar(label, tuple(segments), printed=figures.causes.of_rounded(printed))
