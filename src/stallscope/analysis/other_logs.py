"""Complete the analysis of runs without stages: logs of epochs, or of how long steps took."""

from __future__ import annotations

from dataclasses import replace

from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import capitalised, counted
from stallscope.formatting.numbers import amount, percent, percent_ends
from stallscope.words import Fix

from .advice.input_advice import for_late_input
from .findings import by_severity
from .findings.find import find_in_messages
from .findings.slow_steps import printed_step_findings
from .gains.verdict import FEWEST_STEPS, WORTHWHILE, insufficient
from .gains.what_if import Advice, Bottleneck, WhatIf, saving
from .ledger.epoch_ledger import EpochTimes, epoch_times, samples_of_all_ranks
from .ledger.printed_steps import PRECISION, PrintedSteps, printed_steps
from .result import Analysis
from .setup import Setup

# The source of the times, unless the logs name another one.
_RECORDER = "the recorder's timestamps"

# A smaller share of the step does not count as waiting.
_HARDLY = 0.01
_ADVICE = Advice(
    "Train with StepLogger on every rank",
    gain="A few hundred steps separate input, compute, slow ranks and allreduce.",
    detail=': model.fit(data, callbacks=[StepLogger("logs/run-42")]), or stallscope.torch\'s',
)


def with_other_logs(analysis: Analysis) -> Analysis:
    """Add the figures of logs without stages; return the analysis unchanged if it has stages."""
    times = epoch_times(analysis.run)
    if times is not None:
        return _of_epochs(analysis, times)
    printed = printed_steps(analysis.run) if analysis.steady is None else None
    return analysis if printed is None else _of_series(analysis, printed, PRECISION)


def _of_epochs(analysis: Analysis, times: EpochTimes) -> Analysis:
    """Return the analysis of a run without recorded steps; findings about stages do not apply."""
    known = replace(
        analysis,
        bottleneck=analysis.bottleneck if _has_failed(analysis) else without_steps(times),
        samples_per_second=samples_of_all_ranks(analysis.run, times),
        findings=find_in_messages(analysis.run),
        epochs=len({(epoch.fit, epoch.epoch) for epoch in times.epochs}),
        epoch_times=times,
    )
    printed = printed_steps(analysis.run)
    return known if printed is None else _of_series(known, printed, times.precision)


def _has_failed(analysis: Analysis) -> bool:
    return analysis.stopped is not None and analysis.stopped.is_fault


def _of_series(analysis: Analysis, printed: PrintedSteps, precision: str) -> Analysis:
    """Add the figures of a series of step times."""
    run, setup = analysis.run, Setup.of(analysis.run)
    verdict = without_stages(printed, str(run.fact("known_from") or _RECORDER), precision)
    if _has_failed(analysis):
        verdict = analysis.bottleneck
    elif verdict.kind == "input":
        reason = (run.fact("stamps") or {}).get("reason")
        evidence = f"{verdict.evidence} {capitalised(reason)}." if reason else verdict.evidence
        # A run of StepLogger needs no advice to use it.
        more = () if run.fact("known_from") is None else verdict.advice
        advice = (*for_late_input(setup), *more)
        verdict = replace(verdict, evidence=evidence, advice=advice)
    elif run.rows:
        # The verdict so far says why the stages are missing.
        known = waits_of_ranks(printed)
        evidence = f"{analysis.bottleneck.evidence} {known}".rstrip()
        verdict = replace(analysis.bottleneck, evidence=evidence)
    inputs = {windows.rank: windows.mean_input_ms for windows in printed.steady_ranks}
    return replace(
        analysis,
        bottleneck=verdict,
        ranks=tuple(replace(rank, input_ms=inputs.get(rank.rank)) for rank in analysis.ranks),
        what_if=gains_of_lines(verdict, printed),
        findings=by_severity((*analysis.findings, *printed_step_findings(printed, setup))),
        epochs=max(analysis.epochs, printed.epochs),
        printed=printed,
        step=printed.step,
        changes=printed.changes,
    )


# -- Reach a verdict, and predict gains, from logs that only have epochs or lines about steps -----


def without_stages(printed: PrintedSteps, known_from: str, precision: str) -> Bottleneck:
    """Return the verdict on a series of step times: whether steps wait for data, and how to record more.

    The wait is a fault if the low end of its interval is worthwhile. With several ranks, the shortest
    wait counts: another rank's work may hide a longer one.

    Args:
        printed: the series.
        known_from: its source, in words.
        precision: its precision, in words.
    """
    share, what = printed.input_share, "how long steps took, but not their stages"
    if printed.stages is not None:
        what = f"mean stages of {printed.stages.by}, but not those of each rank and step"
    if printed.input_ms is not None and share is not None:
        sure = printed.least_input_ms or printed.input_ms
        certain = share if sure is printed.input_ms else sure.scaled(1 / printed.step.mean)
        low = (certain.ci95 or (certain.value,))[0]
        if low >= WORTHWHILE and printed.steps >= FEWEST_STEPS:
            return _input(printed, sure, certain, known_from)
        wait = percent(share.value)
        nothing = "nothing of other stages" if printed.stages is None else what
        what = f"that steps wait for data {wait} of their time, and {nothing}"
        if printed.steps < FEWEST_STEPS:
            what = f"{counted(printed.steps, 'step')}, too few for a verdict; {wait} is waiting for data"
    return _insufficient(what, known_from, precision)


def without_steps(times: EpochTimes) -> Bottleneck:
    """Return the verdict on logs of epochs, or of a mean: what they show, and how to record more."""
    if times.epochs:
        what = "how long epochs took, but not the stages of a step"
    elif times.step_ms is not None:
        what = "how long a step took on average, but not its stages"
    else:
        what = "how often a metric was logged, but not the stages of a step"
    return _insufficient(what, times.known_from, times.precision)


def _insufficient(what: str, known_from: str, precision: str) -> Bottleneck:
    known = f"these logs record {what}: they are {known_from} ({precision})"
    return replace(insufficient(known), advice=(_ADVICE,))


def gains_of_lines(bottleneck: Bottleneck, printed: PrintedSteps) -> tuple[WhatIf, ...]:
    """Return the most that input without delays gains; nothing if the wait is unknown.

    It is an upper bound, because a rank may wait for other ranks instead.
    """
    if bottleneck.kind != "input" or printed.input_ms is None:
        return ()
    gain = WhatIf(Fix("input"), Mean(0.0, None), 1.0, None, bound=True)
    return (saving(gain, printed.most_input_ms or printed.input_ms, printed.step.mean),)


def _input(printed: PrintedSteps, wait: Mean, share: Mean, known_from: str) -> Bottleneck:
    interval = share.ci95
    sure = f" (95% interval: {percent_ends(interval)})" if interval else ""
    step = amount(printed.step.mean, "ms")
    return Bottleneck(
        "input",
        None,
        f"{_who_waits(printed)} {amount(wait.value, 'ms', wait.ci95)} of {step} for their data, "
        f"{percent(share.value)}{sure}, by {known_from}. These logs do not show the other stages of "
        "a step.",
        advice=(_ADVICE,),
        fault=True,
    )


def _who_waits(printed: PrintedSteps) -> str:
    if printed.least_input_ms is None or len(printed.ranks) == 1:
        return "Steps wait"
    return "All ranks wait at least"


def waits_of_ranks(printed: PrintedSteps) -> str:
    """Describe how long the ranks wait for data, if only that is known; empty otherwise.

    This blames no rank: the others may compute for as long meanwhile.
    """
    means = [(windows.mean_input_ms, windows.rank) for windows in printed.steady_ranks]
    waits = [(ms, rank) for ms, rank in means if ms is not None]
    if not waits or len(waits) < len(printed.ranks):
        return ""
    (least, first), (most, last) = min(waits), max(waits)
    step = f"of {amount(printed.step.mean, 'ms')} per step"
    if most < _HARDLY * printed.step.mean:
        known = f"no rank more than {amount(most, 'ms')} {step}"
    elif first == last:
        known = f"{amount(most, 'ms')} {step}"
    else:
        known = f"rank {first} {amount(least, 'ms')} and rank {last} {amount(most, 'ms')} {step}"
        if len(waits) > 2:
            known += ", others between these"
    return f"Waiting for data takes {known}. The rest is not measured apart."
