"""The stages of several runs by cause, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import waiting_part
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import NOT_MEASURED, amount
from stallscope.formatting.sums import SumColumn
from stallscope.text.gain_words import pace_sentence
from stallscope.text.step_figures import StepFigures
from stallscope.text.vocabulary import TITLES, entry_name, entry_title
from stallscope.words import CAUSES

from .chart_kinds import Bar, Segment, StackedBars, drawn_as


@dataclass(frozen=True)
class ComparedBars:
    """Groups of bars with whiskers: one bar per series in every group.

    A group's name is a key of TITLES and of the palette; None was not measured.
    """

    title: str
    sentence: str
    unit: str
    series: tuple[str, ...]
    groups: tuple[tuple[str, tuple[Mean | None, ...]], ...]
    #: Every series' groups as printed, if a table has the same figures.
    printed: tuple[SumColumn | None, ...] = ()

    def text(self, group: int, series: int) -> str:
        """Write a bar's value."""
        mean = self.groups[group][1][series]
        column = self.printed[series] if self.printed else None
        if mean is None:
            return NOT_MEASURED
        if column is None:
            return amount(mean.value, self.unit, mean.ci95)
        return column.amount(column.parts[group], mean.ci95)


def stages_chart(analysis: Analysis) -> ComparedBars | None:
    """Chart a step by cause in this run, its baseline and the run on one rank. None without two runs."""
    runs, figures = compared_runs(analysis), StepFigures.of(analysis)
    if len(runs) < 2 or not any(run.by_cause for _, run in runs):
        return None
    names = [name for name, _ in runs]
    return ComparedBars(
        "Stage by stage",
        f"What a step's time is spent on in {', '.join(names[:-1])} and {names[-1]}; whiskers are "
        "95% intervals of the means. Stages contain waiting for slow ranks, which is shown last.",
        "ms",
        tuple(names),
        tuple(
            (drawn_as(name), tuple(_mean(run, name) for _, run in runs))
            for name in (*CAUSES, "imbalance")
        ),
        tuple(_printed(run, figures) for _, run in runs),
    )


def _printed(run: Analysis, figures: StepFigures | None) -> SumColumn | None:
    rounded = None if figures is None else figures.in_same_digits(run)
    return (
        None
        if rounded is None
        else rounded.causes.of_rounded([*rounded.causes.parts, rounded.waits.total])
    )


def compared_runs(analysis: Analysis) -> list[tuple[str, Analysis]]:
    """List the run and those that it is compared with, by their labels."""
    runs = (("this run", analysis), ("baseline", analysis.baseline), ("one rank", analysis.single))
    return [(name, run) for name, run in runs if run is not None]


def _mean(analysis: Analysis, name: str) -> Mean | None:
    entry = analysis.cause(name) or analysis.entry(name)
    if entry is None:
        return None
    # On one rank imbalance is zero by definition, not by estimate.
    return Mean(entry.ms, None if entry.ci95_ms == (0.0, 0.0) else entry.ci95_ms)


# -- Chart the step by cause as a bar; waiting for slow ranks is paler ----------------------------


def cause_chart(analysis: Analysis) -> StackedBars | None:
    """Chart the step by cause, and the baseline's step below it; a log's own timers if it has no more.

    None without stages. The pale part of a stage is the time that other ranks wait for the slowest rank.
    """
    step = analysis.step
    figures = StepFigures.of(analysis)
    if step is None or figures is None:
        return None if analysis.printed is None else _timers_chart(analysis.printed)
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


def _timers_chart(lines: PrintedSteps) -> StackedBars | None:
    """Chart the stages that a log's timers print, and the rest of the step. None without timers."""
    stages = lines.stages
    if stages is None:
        return None
    largest = max(stages.ms, key=lambda name: stages.ms[name])
    segments = (*_segments(stages.ms), Segment("rest", stages.rest_ms))
    parts = [segment.value for segment in segments]
    # One digit more than the step: short stages must not look like zero.
    printed = SumColumn.of(parts, sum(parts), finer=1)
    return StackedBars(
        "Step time by printed timers",
        f"The largest part is {TITLES[largest].lower()} with {amount(stages.ms[largest], 'ms')}; "
        f"of {stages.by}, mean of {counted(stages.tables, 'line')}.",
        "ms",
        (Bar("this run", segments, printed=printed),),
    )


def paces_chart(analysis: Analysis) -> StackedBars | None:
    """Chart what an input probe measured: the loader alone, steps without input stalls, real steps.

    None without a probe.
    """
    probe = analysis.input_probe
    if probe is None:
        return None
    bars = [
        Bar("without input stalls", _segments(probe.by_cause_ms)),
        Bar("real steps", _segments({entry.name: entry.ms for entry in analysis.by_cause})),
    ]
    slowest = probe.slowest
    if slowest is not None and slowest.loader_ms is not None:
        loader = Segment("input", slowest.loader_ms.value, slowest.loader_ms.ci95)
        bars.insert(0, Bar("loader alone", (loader,)))
    return StackedBars("Input, measured in this run", pace_sentence(probe), "ms", tuple(bars))


def _segments(by_cause_ms: Mapping[Any, float]) -> tuple[Segment, ...]:
    # Stages of one rank may be slightly negative where clocks differ.
    return tuple(Segment(name, max(ms, 0.0)) for name, ms in by_cause_ms.items())


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
