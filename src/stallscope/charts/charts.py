"""Descriptions of charts, made from an Analysis.

Every chart has a sentence that says what it shows; screen readers read it, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.figures import RankSummary
from stallscope.text.baselines import against, baseline_name
from stallscope.text.job import (
    JOB_PARTS,
    goodput_column,
    goodput_parts,
    goodput_sentence,
    job_column,
)
from stallscope.text.step_figures import RANK_PARTS, StepFigures

from .by_cause import cause_chart
from .compared_bars import ComparedBars
from .curves import EfficiencyLines, OverRuns
from .gains import GainBars, gains_chart
from .heat_map import HeatMap
from .kinds import Bar, Segment, StackedArea, StackedBars, Waterfall, drawn_as
from .over_time import OverTime, machine_chart
from .rank_windows import printed_ranks_chart
from .rates import RateBars
from .step_time import step_time_chart

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
        "baseline": baseline_chart(analysis),
        "ranks": ranks_chart(analysis),
        "steps": step_time_chart(analysis),
        "printed_ranks": printed_ranks_chart(analysis),
        "network": network_chart(analysis),
        "machines": machine_chart(analysis),
        "job": job_chart(analysis),
    }
    return {name: chart for name, chart in charts.items() if chart is not None}
