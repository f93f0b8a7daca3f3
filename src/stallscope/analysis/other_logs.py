"""Complete the analysis of runs without stages: logs of epochs, or of how long steps took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import capitalised, counted
from stallscope.formatting.numbers import amount, percent, percent_ends
from stallscope.words import Fix, FixKind

from .advice.input_advice import for_late_input
from .findings import by_severity
from .findings.find import find_in_messages
from .findings.slow_steps import PrintedLoss, printed_losses, printed_step_findings
from .gains.verdict import FEWEST_STEPS, TOO_MUCH_ALLREDUCE, WORTHWHILE, insufficient
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
_OVERLAP = Advice(
    "Let communication overlap with backward",
    detail=": --overlap-grad-reduce in Megatron-LM, overlap_comm in DeepSpeed",
    note="With gradient accumulation, ranks reduce less often.",
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
    printed, per_rank = printed_steps(analysis.run), times.samples_per_second_per_rank
    if printed is not None and per_rank is not None and times.step_ms:
        # Without warm-up.
        rate = per_rank * times.step_ms / printed.step.mean
        times = replace(times, samples_per_second_per_rank=rate)
    known = replace(
        analysis,
        bottleneck=analysis.bottleneck if _has_failed(analysis) else without_steps(times),
        samples_per_second=samples_of_all_ranks(analysis.run, times),
        findings=find_in_messages(analysis.run),
        epochs=times.count,
        epoch_times=times,
    )
    return known if printed is None else _of_series(known, printed, times.precision)


def _has_failed(analysis: Analysis) -> bool:
    return analysis.stopped is not None and analysis.stopped.is_fault


def _of_series(analysis: Analysis, printed: PrintedSteps, precision: str) -> Analysis:
    """Add the figures of a series of step times."""
    run, setup = analysis.run, Setup.of(analysis.run)
    known_from = str(run.fact("known_from") or _RECORDER)
    faults = faults_of_series(printed, setup, known_from)
    if _has_failed(analysis):
        verdict = analysis.bottleneck
    elif faults:
        verdict = _largest_of(faults, printed, known_from)
        reason = (run.fact("stamps") or {}).get("reason")
        if verdict.kind == "input" and reason:
            verdict = replace(verdict, evidence=f"{verdict.evidence} {capitalised(reason)}.")
        # A run of StepLogger needs no advice to use it.
        if run.fact("known_from") is not None:
            verdict = replace(verdict, advice=(*verdict.advice, _ADVICE))
    elif run.rows:
        # The verdict so far says why the stages are missing.
        known = waits_of_ranks(printed)
        evidence = f"{analysis.bottleneck.evidence} {known}".rstrip()
        verdict = replace(analysis.bottleneck, evidence=evidence)
    else:
        verdict = without_stages(printed, known_from, precision)
    inputs = {windows.rank: windows.mean_input_ms for windows in printed.steady_ranks}
    # Steps before the first line, and clocks that begin again, are not between the first and last line.
    longer_s = 0.0 if printed.recorded else max(printed.job_s - analysis.job.total, 0.0)
    job = analysis.job
    return replace(
        analysis,
        job=replace(job, epoch_gap=job.epoch_gap + longer_s, total=job.total + longer_s),
        bottleneck=verdict,
        ranks=tuple(replace(rank, input_ms=inputs.get(rank.rank)) for rank in analysis.ranks),
        what_if=tuple(fault.gain for fault in faults if fault.gain is not None),
        findings=by_severity((*analysis.findings, *printed_step_findings(printed, setup))),
        epochs=max(analysis.epochs, printed.epochs),
        printed=printed,
        step=printed.step,
        changes=printed.changes,
    )


# -- Reach a verdict, and predict gains, from logs that only have epochs or lines about steps -----


class Fault(NamedTuple):
    """A verdict that a series of step times allows, and the share of the job's time that it is about."""

    verdict: Bottleneck
    share: float
    gain: WhatIf | None = None


def faults_of_series(printed: PrintedSteps, setup: Setup, known_from: str) -> tuple[Fault, ...]:
    """Return what takes a worthwhile share of the job's time, by sums; the largest share first.

    Means and medians of steps hide evaluations between them and a wait in the first batch of an epoch.
    The steps of a recorder or of a trace only show the wait for data: what makes some of them slow is
    known from other ranks' logs.

    Args:
        printed: the series.
        setup: the run's setup.
        known_from: the source of the series, in words.
    """
    if printed.steps < FEWEST_STEPS:
        return ()
    losses = [] if printed.recorded else [*printed_losses(printed, setup)]
    faults = [
        *_late_input(printed, losses, setup, known_from),
        *_long_allreduce(printed),
        *(Fault(_lost(loss), loss.share) for loss in losses if loss.share >= WORTHWHILE),
    ]
    return tuple(sorted(faults, key=lambda fault: -fault.share))


def _largest_of(faults: Sequence[Fault], printed: PrintedSteps, known_from: str) -> Bottleneck:
    """Return the verdict on the largest share, with what the others say of all steps."""
    first, *smaller = faults
    verdict = first.verdict
    in_steps = [fault.verdict for fault in smaller if fault.verdict.loss is None]
    sentences = [verdict.evidence, *(fault.evidence for fault in in_steps)]
    advice = [*verdict.advice, *(advice for fault in in_steps for advice in fault.advice)]
    sentences.append(_unknown_stages(printed, known_from))
    return replace(verdict, evidence=" ".join(sentences), advice=tuple(dict.fromkeys(advice)))


def without_stages(printed: PrintedSteps, known_from: str, precision: str) -> Bottleneck:
    """Return the verdict on a series of step times that shows no fault, and how to record more.

    Args:
        printed: the series.
        known_from: its source, in words.
        precision: its precision, in words.
    """
    share, what = printed.input_share, "how long steps took, and nothing known of their stages"
    if printed.stages is not None:
        what = f"mean stages of {printed.stages.by}, but not those of each rank and step"
    if printed.input_ms is not None and share is not None:
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


def _late_input(
    printed: PrintedSteps, losses: Sequence[PrintedLoss], setup: Setup, known_from: str
) -> Iterator[Fault]:
    """Yield the wait for data if the low end of its interval is worthwhile.

    With several ranks, the shortest wait counts: another rank's work may hide a longer one. The gain is
    an upper bound, because a rank may wait for other ranks instead. If slow steps are most of the wait,
    as the first ones of epochs, the verdict says so.
    """
    share = printed.input_share
    if printed.input_ms is None or share is None:
        return
    wait = printed.least_input_ms or printed.input_ms
    certain = share if wait is printed.input_ms else wait.scaled(1 / printed.step.mean)
    if (certain.ci95 or (certain.value,))[0] < WORTHWHILE:
        return
    of_job = certain.value * printed.share_of_steps
    slow_steps = [loss.finding for loss in losses if loss.waiting > of_job / 2]
    interval = certain.ci95
    sure = f" (95% interval: {percent_ends(interval)})" if interval else ""
    verdict = Bottleneck(
        "input",
        None,
        f"{_who_waits(printed)} {amount(wait.value, 'ms', wait.ci95)} of "
        f"{amount(printed.step.mean, 'ms')} for their data, {percent(certain.value)}{sure}, by "
        f"{known_from}." + "".join(f" {finding.evidence}" for finding in slow_steps),
        advice=(
            *(advice for finding in slow_steps for advice in finding.advice),
            *for_late_input(setup),
        ),
        fault=True,
    )
    most = printed.most_input_ms or printed.input_ms
    yield Fault(verdict, of_job, _at_most("input", most, printed))


def _long_allreduce(printed: PrintedSteps) -> Iterator[Fault]:
    """Yield communication by printed timers if it takes too much of a step.

    Timers of other stages are no faults: every step has to compute.
    """
    ms = 0.0 if printed.stages is None else printed.stages.ms.get("allreduce", 0.0)
    share = ms / printed.step.mean
    if printed.stages is None or share < TOO_MUCH_ALLREDUCE:
        return
    verdict = Bottleneck(
        "allreduce",
        None,
        f"Communication takes {amount(ms, 'ms')} of {amount(printed.step.mean, 'ms')}, "
        f"{percent(share)}, by the timers of {printed.stages.by}. It may contain waiting for other "
        "ranks.",
        advice=(_OVERLAP,),
        fault=True,
    )
    gain = _at_most("allreduce", Mean(ms, None), printed)
    yield Fault(verdict, share * printed.share_of_steps, gain)


def _at_most(kind: FixKind, saved_ms: Mean, printed: PrintedSteps) -> WhatIf:
    """Return the bounded gain of a fix that saves at most this much in every step."""
    gain = WhatIf(Fix(kind), Mean(0.0, None), 1.0, None, bound=True)
    return saving(gain, saved_ms, printed.step.mean)


def _lost(loss: PrintedLoss) -> Bottleneck:
    """Return the verdict on time outside of steps, or in slow steps."""
    return Bottleneck(
        "other",
        loss.loss.cause,
        loss.finding.evidence,
        advice=loss.finding.advice,
        fault=True,
        loss=loss.loss,
    )


def _unknown_stages(printed: PrintedSteps, known_from: str) -> str:
    if printed.stages is not None:
        return "These logs do not show the stages of each rank and step."
    if printed.input_ms is not None:
        return "These logs do not show the other stages of a step."
    return f"These logs do not show the stages of a step: they are {known_from}."


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
