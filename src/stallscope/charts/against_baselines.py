"""Charts of a run against its baselines: losses to real data and to scale, and the whole jobs."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import percent
from stallscope.text.baselines import decomposed
from stallscope.text.job import parts_of_jobs
from stallscope.text.step_figures import StepFigures

from .charts import job_bar
from .compared_bars import compared_runs
from .kinds import Segment, StackedBars, Waterfall


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
