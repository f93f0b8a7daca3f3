"""Chart two compared runs, or a job's runs in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.analysis import Analysis
from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import Figure, History
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import exact, percent, signed
from stallscope.formatting.plain import plain
from stallscope.text.step_figures import StepFigures
from stallscope.text.titles import TITLES

from .by_cause import cause_bar
from .curves import Level, OverRuns, RunDot
from .kinds import Bar, Segment, StackedBars, Waterfall

#: The most bars that are readable.
_MOST_BARS = 24


def ledgers_chart(comparison: Comparison) -> StackedBars | None:
    """Chart the step by cause in A and in B. None without stages in both."""
    figures = StepFigures.of_both(comparison.first, comparison.second)
    if comparison.step is None or figures is None:
        return None
    a, b = figures
    first, second = (
        exact(mean.value, "ms", mean.ci95)
        for mean in (comparison.step.first, comparison.step.second)
    )
    return StackedBars(
        "Step time by cause",
        f"A step takes {first} in A and {second} in B.",
        "ms",
        (cause_bar("A", comparison.first, a), cause_bar("B", comparison.second, b)),
    )


def changes_chart(comparison: Comparison) -> Waterfall | None:
    """Chart the changes from A's step to B's. None without stages in both."""
    figures = StepFigures.of_both(comparison.first, comparison.second)
    if comparison.step is None or figures is None:
        return None
    a, b = figures
    return Waterfall(
        "From A to B",
        "What each cause adds to A's step or saves.",
        "ms",
        ("A", comparison.step.first.value),
        tuple(
            Segment(change.name, change.by.value, change.by.ci95) for change in comparison.by_cause
        ),
        ("B", comparison.step.second.value),
        b.causes.less(a.causes),
        a.causes.total,
    )


def figure_charts(history: History) -> dict[str, OverRuns]:
    """Chart the step over the runs, and every entry that changes or drifts, by name."""
    return {
        figure.name: _over_runs(figure, history)
        for figure in history.figures
        if figure.name == "step" or (figure.status in ("change", "trend") and not figure.is_rate)
    }


def _over_runs(figure: Figure, history: History) -> OverRuns:
    title = TITLES.get(figure.name, "Step")
    dots = tuple(
        RunDot(plain(run.analysis.run.name), mean)
        for run, mean in zip(history.runs, figure.values, strict=True)
    )
    marks = tuple(
        (change.run + 1, _by(change.by.value, change.before)) for change in figure.changes
    )
    levels = tuple(_levels(figure))
    return OverRuns(
        f"{title} over the runs",
        f"{counted(len(dots), 'run')}, the oldest first; whiskers are 95% intervals from step to step"
        f"{', dashed lines are levels' if levels else ''}.",
        "ms",
        dots,
        levels,
        marks,
    )


def _by(by: float, before: float) -> str:
    if before > 0:
        return f"{'+' if by > 0 else ''}{percent(by / before)}"
    return f"{signed(by)} ms"


def _levels(figure: Figure) -> Iterator[Level]:
    runs = len(figure.values)
    if figure.status == "change":
        edges = [0, *(change.run for change in figure.changes), runs]
        values = [figure.changes[0].before, *(change.after for change in figure.changes)]
        for first, last, value in zip(edges, edges[1:], values, strict=False):
            yield Level(first + 1, last, value, value)
    if figure.status == "trend" and figure.trend is not None:
        begin, per_run = figure.trend.begin, figure.trend.per_run.value
        yield Level(1, runs, begin, begin + per_run * (runs - 1))


def runs_chart(history: History) -> StackedBars | None:
    """Chart each run's step by cause, of many runs the latest. None without stages."""
    numbered = [
        (number, run.analysis)
        for number, run in enumerate(history.runs, 1)
        if run.analysis.by_cause
    ]
    if not numbered:
        return None
    bars = _numbered_bars(numbered)
    which = "" if len(numbered) == len(bars) else f" of the latest {len(bars)} runs"
    sentence = f"A steady step by cause{which}, the oldest run first."
    return StackedBars("Step time by cause", sentence, "ms", bars)


def different_jobs_chart(analyses: Sequence[Analysis]) -> StackedBars | None:
    """Chart the step by cause of runs of different jobs, of many the last. None without stages."""
    numbered = [
        (number, analysis) for number, analysis in enumerate(analyses, 1) if analysis.by_cause
    ]
    if not numbered:
        return None
    sentence = "A steady step by cause of each run."
    return StackedBars("Step time by cause", sentence, "ms", _numbered_bars(numbered))


def _numbered_bars(numbered: Sequence[tuple[int, Analysis]]) -> tuple[Bar, ...]:
    # The last run sets the unit and the digits.
    latest = StepFigures.of(numbered[-1][1])
    return tuple(
        cause_bar(f"{number}. {plain(analysis.run.name)}", analysis, figures)
        for number, analysis in numbered[-_MOST_BARS:]
        if latest is not None and (figures := latest.in_same_digits(analysis)) is not None
    )
