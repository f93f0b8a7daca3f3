"""A run against its baselines, in sentences."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.cores import CoreUse
from stallscope.analysis.stats import Mean

from .numbers import amount, finite, percent
from .verdicts import joined

_PARTS = {"compute": "compute", "other": "work between steps", "allreduce": "exposed allreduce"}


def against(analysis: Analysis) -> tuple[str, str]:
    """By how much a run is slower than its baseline, and how sure that is."""
    base, own = analysis.baseline, analysis.step
    if base is None or base.step is None or own is None:
        return "These logs cannot be compared", "Step times were not measured in both runs."
    loss = Mean(own.mean, own.ci95).minus(Mean(base.step.mean, base.step.ci95))
    steps = (
        f"A step takes {amount(own.mean, 'ms', own.ci95)} here and "
        f"{amount(base.step.mean, 'ms', base.step.ci95)} in the baseline."
    )
    return _title(analysis, loss), f"{steps} {_throughput(analysis)}"


def decomposed(analysis: Analysis) -> str:
    """What the difference consists of; empty without stages in both runs."""
    parts = analysis.decomposition
    if parts is None:
        return ""
    more = [f"{_in_words(parts.input_stall)} are input stall"]
    named = (("compute", parts.compute), ("other", parts.other), ("allreduce", parts.allreduce))
    more += [f"{_in_words(mean)} {_PARTS[name]}" for name, mean in named if mean.value >= 0]
    less = [faster_stage(name, mean, analysis) for name, mean in named if mean.value < 0]
    sentences = [f"Of the {_in_words(parts.loss)} difference, {joined(more)}", *less]
    if parts.scale is not None:
        sentences.append(f"The baseline's step is {_in_words(parts.scale)} longer than on one rank")
    return " ".join(f"{sentence}." for sentence in sentences)


def faster_stage(name: str, mean: Mean, analysis: Analysis) -> str:
    """Say that a stage takes less than in the baseline, and why where ranks share cores."""
    by = amount(-mean.value, "ms", None if mean.ci95 is None else (-mean.ci95[1], -mean.ci95[0]))
    sentence = f"{_PARTS[name].capitalize()} is {by} faster than in the baseline"
    cores = CoreUse.of(analysis.run)
    leaves_cores = cores.shared and not cores.waiting_is_busy
    if name == "compute" and leaves_cores and _waits_longer(analysis):
        return f"{sentence}: waiting ranks leave their cores to the others"
    return sentence


def _waits_longer(analysis: Analysis) -> bool:
    """Whether ranks wait for each other longer than in the baseline."""
    entry = analysis.entry("imbalance")
    return entry is not None and (entry.excess_ms or 0.0) > 0


def _title(analysis: Analysis, loss: Mean) -> str:
    name = "the synthetic baseline" if _synthetic(analysis) else "the baseline"
    if loss.ci95 is not None and loss.ci95[0] <= 0 <= loss.ci95[1]:
        return f"This run is as fast as {name}, as far as the steps can tell"
    word = "longer" if loss.value > 0 else "shorter"
    by = amount(abs(loss.value), "ms", _absolute(loss))
    return f"A step takes {by} {word} than in {name}"


def _throughput(analysis: Analysis) -> str:
    gap = finite(analysis.gap)
    if gap is None:
        return (
            "The throughput loss is unknown: the runs have different numbers of ranks, or "
            "their samples were not recorded."
        )
    low_high = analysis.gap_ci95
    sure = (
        ""
        if low_high is None
        else f" (95% interval: {percent(low_high[0])} to {percent(low_high[1])})"
    )
    verb = "lost" if gap >= 0 else "gained"
    return f"{percent(abs(gap))} of the baseline's throughput is {verb}{sure if gap >= 0 else ''}."


def _synthetic(analysis: Analysis) -> bool:
    return analysis.baseline is not None and analysis.baseline.run.synthetic


def _absolute(mean: Mean) -> tuple[float, float] | None:
    if mean.ci95 is None or mean.value >= 0:
        return mean.ci95
    return -mean.ci95[1], -mean.ci95[0]


def _in_words(mean: Mean) -> str:
    return amount(mean.value, "ms", mean.ci95)
