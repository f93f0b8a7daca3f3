"""Descriptions of charts, made from an Analysis.

Every chart has a sentence that says what it shows; screen readers read it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.comparison import Comparison
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.analysis.regression import Figure, History
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import exact, percent, signed
from stallscope.formatting.plain import plain
from stallscope.text.baselines import against, baseline_name, decomposed
from stallscope.text.job_words import (
    JOB_PARTS,
    goodput_column,
    goodput_parts,
    goodput_sentence,
    job_column,
    parts_of_jobs,
)
from stallscope.text.step_figures import StepFigures
from stallscope.text.vocabulary import TITLES
from stallscope.words import RANK_PARTS

from .chart_kinds import Bar, Segment, StackedArea, StackedBars, Waterfall, drawn_as
from .compared_bars import ComparedBars, cause_bar, cause_chart, compared_runs, paces_chart
from .curves import EfficiencyLines, Level, OverRuns, RunDot
from .heat_map import HeatMap
from .rows import GainBars, gains_chart
from .scaling_curves import RateBars
from .step_time import OverTime, machine_chart, printed_ranks_chart, step_time_chart

#: The most bars that are readable; of more ranks, the latest are shown.
MOST_RANKS = 32
Chart = (
    StackedBars
    | StackedArea
    | Waterfall
    | HeatMap
    | ComparedBars
    | GainBars
    | RateBars
    | EfficiencyLines
    | OverRuns
    | OverTime
)

#: The most bars that are readable.
_MOST_BARS = 24


def ranks_chart(analysis: Analysis, most: int = MOST_RANKS) -> StackedBars | None:
    """Chart every rank's own step: its work, then its wait. None without stages.

    Stragglers come first, then ranks host by host. Of more than ``most`` ranks, the latest are shown,
    and the mean of the others.
    """
    ranks = [rank for rank in analysis.ranks if rank.wait_ms is not None]
    if not ranks:
        return None
    named = set(analysis.bottleneck.ranks)
    shown, others = ranks, []
    if len(ranks) > most:
        # The latest ranks wait least.
        by_lateness = sorted(ranks, key=lambda rank: (rank.rank not in named, rank.wait_ms or 0.0))
        shown, others = by_lateness[:most], by_lateness[most:]
    hosts = list(dict.fromkeys(rank.host for rank in ranks))
    shown = sorted(
        shown, key=lambda rank: (rank.rank not in named, hosts.index(rank.host), rank.rank)
    )
    figures = StepFigures.of(analysis)
    bars = [
        _rank_bar(
            f"rank {rank.rank}" if len(hosts) == 1 else f"rank {rank.rank} · {rank.host}",
            [rank],
            figures,
            emphasised=rank.rank in named,
        )
        for rank in shown
    ]
    if others:
        bars.append(_rank_bar(f"mean of the other {len(others):,}", others, figures))
    what = f"The {len(shown)} latest of {len(ranks):,} ranks" if others else "All ranks"
    order = "those that are named first, then host by host" if len(hosts) > 1 else ""
    return StackedBars(
        "Ranks side by side",
        f"{what}{', ' if order else ''}{order}: what each did in a step, and how long it waited for the "
        "last one.",
        "ms",
        tuple(bars),
    )


def _rank_bar(
    label: str,
    ranks: Sequence[RankSummary],
    figures: StepFigures | None,
    *,
    emphasised: bool = False,
) -> Bar:
    """Average the steps of some ranks."""
    means = [
        float(np.mean([getattr(rank, f"{name}_ms") or 0.0 for rank in ranks]))
        for name in RANK_PARTS
    ]
    return Bar(
        label,
        tuple(map(Segment, RANK_PARTS, means)),
        emphasised,
        None if figures is None else figures.of_parts(means),
    )


def baseline_chart(analysis: Analysis) -> Waterfall | None:
    """Chart the changes from the baseline's step to this run's. None without stages in both."""
    base = analysis.baseline
    figures = StepFigures.of_both(analysis, base)
    if base is None or base.step is None or analysis.step is None or figures is None:
        return None
    this_run, usual = figures
    changes = tuple(
        Segment(entry.name, entry.excess_ms, entry.excess_ci95_ms)
        for entry in analysis.by_cause
        if entry.excess_ms is not None
    )
    title, sentence = against(analysis)
    return Waterfall(
        f"Against {baseline_name(analysis)}",
        f"{title}. {sentence}",
        "ms",
        ("baseline", base.step.mean),
        changes,
        ("this run", analysis.step.mean),
        this_run.causes.less(usual.causes),
        usual.causes.total,
    )


def network_chart(analysis: Analysis) -> StackedBars | None:
    """Chart the gradients' time on the network, and the run's exposed time below it. None if unknown."""
    use = analysis.network_use
    if use is None or use.parts is None or use.differs or use.exposed_ms is None:
        return None
    parts = {name: mean for name, mean in vars(use.parts).items() if mean is not None}
    alone = tuple(Segment(name, mean.value, mean.ci95) for name, mean in parts.items())
    exposed = Segment("allreduce", use.exposed_ms.value, use.exposed_ms.ci95)
    bars = (Bar("nothing trains", alone), Bar("this run", (exposed,)))
    sentence = "All gradients of a step, reduced while nothing trains, and what this run waits for."
    return StackedBars("Gradients on this network", sentence, "ms", bars)


def job_chart(analysis: Analysis) -> StackedBars | None:
    """Chart goodput and the losses by cause. None without stages of steps."""
    goodput = analysis.goodput
    if goodput is None:
        return None
    parts = goodput_parts(analysis)
    printed = goodput_column(analysis)
    bar = Bar(
        "job", tuple(Segment(drawn_as(name), value) for name, value in parts), printed=printed
    )
    return StackedBars("Where the job's time went", goodput_sentence(goodput), "s", (bar,))


def job_bar(label: str, analysis: Analysis, names: Sequence[str]) -> Bar:
    """Chart the named parts of a job's time as a bar."""
    segments = tuple(Segment(name, getattr(analysis.job, name)) for name in names)
    column = job_column(analysis)
    rounded = dict(zip(JOB_PARTS, column.parts, strict=True))
    return Bar(label, segments, printed=column.of_rounded([rounded[name] for name in names]))


def named_charts(analysis: Analysis) -> dict[str, Chart]:
    """Return all charts of a run by name, the most important first."""
    charts = {
        "by_cause": cause_chart(analysis),
        "gains": gains_chart(analysis),
        "input_probe": paces_chart(analysis),
        "baseline": baseline_chart(analysis),
        "ranks": ranks_chart(analysis),
        "steps": step_time_chart(analysis),
        "printed_ranks": printed_ranks_chart(analysis),
        "network": network_chart(analysis),
        "machines": machine_chart(analysis),
        "job": job_chart(analysis),
    }
    return {name: chart for name, chart in charts.items() if chart is not None}


# -- Charts of a run against its baselines --------------------------------------------------------
#
# Losses to real data and to scale, and the whole jobs.


def decomposition_chart(analysis: Analysis) -> Waterfall | None:
    """Chart the losses from the step on one rank or synthetic data to this run's.

    None without a baseline's stages.
    """
    parts, base = analysis.decomposition, analysis.baseline
    figures = StepFigures.of_both(analysis, base)
    if parts is None or analysis.step is None or base is None or base.step is None:
        return None
    if figures is None:
        return None
    this_run, usual = figures
    single = analysis.single.step if analysis.single is not None else None
    start = ("baseline", base.step.mean)
    changes = [
        _change("input_stall", parts.input_stall),
        _change("compute", parts.compute),
        _change("other", parts.other),
        _change("allreduce", parts.allreduce),
    ]
    printed, printed_start = this_run.causes.less(usual.causes), usual.causes.total
    scale = this_run.scale_loss(analysis)
    if parts.scale is not None and single is not None and scale is not None:
        start = ("one rank", single.mean)
        changes.insert(0, _change("scale", parts.scale))
        printed = printed.of_rounded([scale, *printed.parts])
        printed_start = round(printed_start - scale, printed.decimals)
    return Waterfall(
        "Losses by cause",
        decomposed(analysis),
        "ms",
        start,
        tuple(changes),
        ("this run", analysis.step.mean),
        printed,
        printed_start,
    )


def jobs_chart(analysis: Analysis) -> StackedBars | None:
    """Chart the parts of the whole jobs' time. None if no run has stages."""
    runs = [(name, run) for name, run in compared_runs(analysis) if run.ledger is not None]
    if not runs:
        return None
    names = parts_of_jobs([run for _, run in runs])
    shares = [
        f"{percent(run.job.steps / run.job.total)} ({name})" for name, run in runs if run.job.total
    ]
    return StackedBars(
        "Where the whole job's time went",
        f"Steady steps take {', '.join(shares)}; the rest is start-up and what lies between steps.",
        "s",
        tuple(job_bar(label, run, names) for label, run in runs),
    )


def _change(name: str, mean: Mean) -> Segment:
    return Segment(name, mean.value, mean.ci95)


# -- Chart two compared runs, or a job's runs in order --------------------------------------------


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
    """Chart the changes from A's step to B's, for as much work. None without stages in both."""
    work, changes = comparison.same_work, comparison.fair
    factor = 1.0 if work is None else work.factor
    figures = StepFigures.of_both(comparison.first, comparison.second, factor)
    if changes.step is None or figures is None:
        return None
    a, b = figures
    for_as_much = "" if work is None else f", for as many {work.unit}s"
    return Waterfall(
        "From A to B",
        f"What each cause adds to A's step or saves{for_as_much}.",
        "ms",
        ("A", changes.step.first.value),
        tuple(Segment(change.name, change.by.value, change.by.ci95) for change in changes.by_cause),
        ("B", changes.step.second.value),
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
