"""Compare a run with its baselines in sentences."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.setup import CoreUse
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import joined
from stallscope.formatting.numbers import finite, percent, percent_ends
from stallscope.formatting.sums import SumColumn
from stallscope.words import PartByCause

from .step_figures import StepFigures
from .vocabulary import NAMES

_PARTS: tuple[PartByCause, ...] = ("compute", "other", "allreduce")


def against(analysis: Analysis) -> tuple[str, str]:
    """Say how much slower a run is than its baseline, and how certain that is."""
    base, step = analysis.baseline, analysis.step
    if base is None or base.step is None or step is None:
        return "These logs cannot be compared", "Step times were not measured in both runs."
    loss = Mean(step.mean, step.ci95).minus(Mean(base.step.mean, base.step.ci95))
    here = SumColumn.of([step.mean], step.mean, step.ci95)
    baseline = here.in_same_digits([base.step.mean])
    steps = (
        f"A step takes {here.amount(here.total, step.ci95)} here and "
        f"{baseline.amount(baseline.total, base.step.ci95)} in the baseline."
    )
    by = here.less(baseline)
    title = _title(analysis, loss, by.amount(abs(by.total), loss.ci95))
    return title, f"{steps} {_unfit(analysis) or _throughput(analysis)}"


def _unfit(analysis: Analysis) -> str:
    """Say why gains are predicted without the baseline, where it is no other kind of run."""
    match = analysis.match
    if match is None or not (match.itself or match.faulty or match.slower):
        return ""
    why = f"The baseline is slower than this run ({match.slower})"
    if match.itself:
        why = "The baseline is this run itself"
    elif match.faulty:
        fault = match.faulty.rstrip(".")
        why = f"{_throughput(analysis)} The baseline has a fault of its own: {fault}"
    return f"{why}. Gains are predicted without it."


def baseline_name(analysis: Analysis) -> str:
    """Name the baseline by its data: ``the synthetic baseline`` or ``a run on real data``."""
    base = analysis.baseline
    return "the synthetic baseline" if base and base.run.synthetic else "a run on real data"


def decomposed(analysis: Analysis) -> str:
    """Split the difference by cause; empty without stages in both runs."""
    parts, step_figures = analysis.decomposition, StepFigures.of_both(analysis, analysis.baseline)
    if parts is None or step_figures is None:
        return ""
    figures, base = step_figures
    by = figures.causes.less(base.causes)
    stall, *others = by.parts
    more, less = [f"{by.amount(stall, parts.input_stall.ci95)} are {input_name(analysis)}"], []
    means = (parts.compute, parts.other, parts.allreduce)
    for name, mean, part in zip(_PARTS, means, others, strict=True):
        size = by.amount(abs(part), mean.ci95)
        if part >= 0:
            more.append(f"{size} {NAMES[name]}")
        else:
            less.append(_faster_stage(name, size, analysis))
    sentences = [f"Of the {by.amount(by.total, parts.loss.ci95)} difference, {joined(more)}", *less]
    scale = figures.scale_loss(analysis)
    if parts.scale is not None and scale is not None:
        longer = by.amount(scale, parts.scale.ci95)
        sentences.append(f"The baseline's step is {longer} longer than on one rank")
    return " ".join(f"{sentence}." for sentence in sentences)


def input_name(analysis: Analysis) -> str:
    """Name the difference of input: only data in memory shows what of it is stall."""
    return "input stall" if analysis.baseline and analysis.baseline.run.synthetic else "input"


def _faster_stage(name: PartByCause, by: str, analysis: Analysis) -> str:
    """Say that a stage takes less than in the baseline, and why where ranks share cores."""
    sentence = f"{NAMES[name].capitalize()} is {by} faster than in the baseline"
    if name != "compute" or not _waits_longer(analysis):
        return sentence
    cores = CoreUse.of(analysis.run)
    if cores.waiting_is_busy or not cores.shared:
        return sentence
    return f"{sentence}: waiting ranks leave their cores to the others"


def _waits_longer(analysis: Analysis) -> bool:
    """Whether ranks wait for each other longer than in the baseline."""
    entry = analysis.entry("imbalance")
    return entry is not None and (entry.excess_ms or 0.0) > 0


def _title(analysis: Analysis, loss: Mean, by: str) -> str:
    base, match = analysis.baseline, analysis.match
    if match is not None and match.itself:
        return "This run is compared with itself"
    name = baseline_name(analysis)
    if base is not None and not base.run.synthetic:
        name = f"{base.run.name}, {name}"
    if loss.ci95 is not None and loss.ci95[0] <= 0 <= loss.ci95[1]:
        return f"This run is as fast as {name}, as far as the steps can tell"
    word = "longer" if loss.value > 0 else "shorter"
    return f"A step takes {by} {word} than in {name}"


def _throughput(analysis: Analysis) -> str:
    gap = finite(analysis.gap)
    if gap is None:
        return (
            "The throughput loss is unknown: the runs have different numbers of ranks, or "
            "their samples were not recorded."
        )
    ends = analysis.gap_ci95
    sure = "" if ends is None else f" (95% interval: {percent_ends(ends)})"
    verb = "lost" if gap >= 0 else "gained"
    return f"{percent(abs(gap))} of the baseline's throughput is {verb}{sure if gap >= 0 else ''}."
