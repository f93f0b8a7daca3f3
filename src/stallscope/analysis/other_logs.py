"""Complete the analysis of runs without stages: logs of epochs, or of how long steps took."""

from __future__ import annotations

from dataclasses import replace

from stallscope.formatting.lists import capitalised

from .advice.input import for_late_input
from .findings import by_severity
from .findings.printed_steps import printed_step_findings
from .gains.printed_steps import (
    gains_of_lines,
    waits_of_ranks,
    without_stages,
    without_steps,
)
from .ledger.epochs import EpochTimes, epoch_times, samples_of_all_ranks
from .ledger.printed_steps import PRECISION, PrintedSteps, printed_steps
from .result import Analysis
from .settings.setup import Setup

# The source of the times, unless the logs name another one.
_RECORDER = "the recorder's timestamps"


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
        bottleneck=without_steps(times),
        samples_per_second=samples_of_all_ranks(analysis.run, times),
        findings=(),
        epochs=len({(epoch.fit, epoch.epoch) for epoch in times.epochs}),
        epoch_times=times,
    )
    printed = printed_steps(analysis.run)
    return known if printed is None else _of_series(known, printed, times.precision)


def _of_series(analysis: Analysis, printed: PrintedSteps, precision: str) -> Analysis:
    """Add the figures of a series of step times."""
    run, setup = analysis.run, Setup.of(analysis.run)
    verdict = without_stages(printed, str(run.fact("known_from") or _RECORDER), precision)
    if analysis.stopped is not None:
        verdict = analysis.bottleneck
    elif verdict.kind == "input":
        reason = (run.fact("stamps") or {}).get("reason")
        evidence = f"{verdict.evidence} {capitalised(reason)}." if reason else verdict.evidence
        # A run of StepLogger needs no advice to use it.
        more = () if run.fact("known_from") is None else verdict.advice
        advice = (*map(str, for_late_input(setup)), *more)
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
