"""Figures for conditions, by their names in the JSON report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import get_args

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.advice.loader_reasons import LOADER_CODES
from stallscope.analysis.findings.finding import Severity
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.analysis.ledger.change_points import REFERENCE_STEPS, find_rise
from stallscope.analysis.ledger.job_time import JobTime
from stallscope.analysis.ledger.ledger import Ledger, LedgerEntry
from stallscope.analysis.symptoms import CPU_TIME, SYMPTOMS, was_counted
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.lists import counted, listed
from stallscope.words import CAUSES, STEP_CAUSES, VERDICT_CAUSES, VERDICTS, Fix, StepCauseCode

from .language import Kind, find
from .quantities import (
    NO_BASELINE,
    PROGRESS_FIGURES,
    FigureValue,
    LogProgress,
    Missing,
    Name,
    NamedFigure,
    Quantity,
    Reading,
    WordValue,
    unmeasured,
)

_PERCENTILES = "percentiles have none"
_ALONE = "it is known without one"
_IMBALANCE = "imbalance"

# -- Figures of a step's parts: times, shares of the step, and the excess over the baseline's -----
#
# Input, compute, other and allreduce are those of the ledger by cause. Imbalance is the part of
# them that ranks spend waiting for a slow rank.


def _of_entry(
    name: str, value: Callable[[LedgerEntry, Analysis], Reading], analysis: Analysis
) -> Reading:
    entry = _entry(analysis, name)
    return unmeasured(analysis) if entry is None else value(entry, analysis)


def _entry(analysis: Analysis, name: str) -> LedgerEntry | None:
    return analysis.entry(name) if name == _IMBALANCE else analysis.cause(name)


def _per_step(steady: Ledger, name: str) -> npt.NDArray[np.int64]:
    return steady.imbalance if name == _IMBALANCE else steady.by_cause(name)


def _ms(entry: LedgerEntry, _: Analysis) -> Reading:
    return Mean(entry.ms, entry.ci95_ms)


def _share(entry: LedgerEntry, analysis: Analysis) -> Reading:
    return _over_the_step(entry.name, entry.share, analysis)


def _over_the_step(name: str, share: float, analysis: Analysis) -> Mean:
    """Divide a part of the step by the step; the interval is that of a ratio over the same steps."""
    steady, step = analysis.steady, analysis.step
    if steady is None or step is None or not step.mean:
        return Mean(share, None)
    rest = mean_with_interval(_per_step(steady, name) - share * steady.total)
    rest = steady.widened_by_clocks(name, rest).scaled(1e-6 / step.mean)
    if rest.ci95 is None:
        return Mean(share, None)
    below, above = rest.value - rest.ci95[0], rest.ci95[1] - rest.value
    return Mean(share, (share - below, share + above))


def _excess(entry: LedgerEntry, analysis: Analysis) -> Reading:
    step, base = analysis.step, analysis.baseline
    if base is None:
        return Missing(NO_BASELINE)
    base_entry = _entry(base, entry.name)
    if entry.excess_ms is None or step is None or base_entry is None:
        return Missing("the stages of the baseline's steps were not measured")
    excess = _over_the_step(entry.name, entry.excess_ms / step.mean, analysis)
    # The run's own steps do not contain the baseline's uncertainty.
    usual = Mean(base_entry.ms, base_entry.ci95_ms).scaled(1 / step.mean)
    return excess.minus(Mean(0.0, _around_zero(usual)))


def _around_zero(mean: Mean) -> tuple[float, float] | None:
    ends = mean.ci95
    return None if ends is None else (ends[0] - mean.value, ends[1] - mean.value)


def _excess_ms(entry: LedgerEntry, analysis: Analysis) -> Reading:
    if analysis.baseline is None:
        return Missing(NO_BASELINE)
    if entry.excess_ms is None:
        return Missing("the stages of the baseline's steps were not measured")
    return Mean(entry.excess_ms, entry.excess_ci95_ms)


def _baseline_ms(entry: LedgerEntry, analysis: Analysis) -> Reading:
    if analysis.baseline is None:
        return Missing(NO_BASELINE)
    return _of_baseline(ENTRY_FIGURES[f"{entry.name}.ms"].value(analysis.baseline))


_KINDS = {
    "ms": (Kind.MS, _ms, True),
    "share": (Kind.SHARE, _share, True),
    "excess": (Kind.SHARE, _excess, False),
    "excess_ms": (Kind.MS, _excess_ms, False),
    "baseline_ms": (Kind.MS, _baseline_ms, False),
}


#: By name: ``input.excess``.
ENTRY_FIGURES = {
    f"{entry}.{name}": NamedFigure(kind, partial(_of_entry, entry, value), of_baseline=of_baseline)
    for entry in (*CAUSES, _IMBALANCE)
    for name, (kind, value, of_baseline) in _KINDS.items()
}


def figure(path: tuple[str, ...]) -> NamedFigure | None:
    """Return the figure of this name; None if there is none."""
    if len(path) == 3 and path[0] == "what_if":
        return gain_figure(path[1], path[2])
    if len(path) == 3 and path[0] == "by_cause" and path[1] in CAUSES:
        path = path[1:]
    return find(_FIGURES, ".".join(path))


def known_names() -> list[str]:
    """Return all names, with FIX in the place of a fix."""
    return [*_FIGURES, *(f"what_if.FIX.{name}" for name in GAINS)]


def needs_analysis(name: Name) -> bool:
    """Return whether the run's progress does not tell the figure."""
    return name.of_baseline or ".".join(name.path) not in PROGRESS_FIGURES


def read(analysis: Analysis | None, progress: LogProgress | None, name: Name) -> FigureValue:
    """Read a figure of this run or its baseline; its name must be known to ``figure``.

    Figures of the progress are the analysis's if ``progress`` is None.
    """
    if progress is not None and not needs_analysis(name):
        return PROGRESS_FIGURES[".".join(name.path)][1](progress)
    if analysis is None:
        return Missing("it needs the analysis of the run")
    named_figure = figure(name.path)
    assert named_figure is not None
    if not name.of_baseline:
        return named_figure.value(analysis)
    base = analysis.baseline
    if base is None:
        return Missing(NO_BASELINE)
    if named_figure.kind is Kind.RATE and base.run.size != analysis.run.size:
        return Missing(
            f"the baseline ran on {counted(base.run.size, 'rank')} and this run on {analysis.run.size:,}"
        )
    return _of_baseline(named_figure.value(base))


def _of_baseline(value: FigureValue) -> FigureValue:
    return replace(value, of_baseline=True) if isinstance(value, Quantity) else value


def _progress(value: Callable[[LogProgress], Reading], analysis: Analysis) -> Reading:
    return value(LogProgress(analysis.stopped))


def _throughput(analysis: Analysis) -> Reading:
    rate, step = analysis.samples_per_second, analysis.step
    if rate is None:
        return Missing("it is not known how many samples a step has, or how long it takes")
    if step is None or step.ci95 is None or min(step.ci95) <= 0:
        return Mean(rate, None)
    low, high = (rate * step.mean / end for end in reversed(step.ci95))
    return Mean(rate, (low, high))


def _tokens(analysis: Analysis) -> Reading:
    rate = analysis.tokens_per_second
    return rate or Missing("no recorder counted the tokens of its batches")


def _step(name: str, analysis: Analysis) -> Reading:
    step = analysis.step
    if step is None:
        return Missing("no step could be timed")
    return Mean(getattr(step, name), step.ci95 if name == "mean" else None)


def _rise(analysis: Analysis) -> Reading:
    if analysis.steady is None:
        return unmeasured(analysis)
    times = analysis.steady.total.astype(np.float64)
    if len(times) < REFERENCE_STEPS:
        return Missing(
            f"it takes {REFERENCE_STEPS} steady steps to tell how long steps usually take"
        )
    rise = find_rise(times)
    return 0.0 if rise is None else rise.by


def _gap(analysis: Analysis) -> Reading:
    if analysis.baseline is None:
        return Missing(NO_BASELINE)
    if analysis.gap is None:
        return Missing("throughputs of the run and its baseline cannot be compared")
    return Mean(analysis.gap, analysis.gap_ci95)


def _job(name: str, analysis: Analysis) -> Reading:
    if analysis.epoch_times is not None or (analysis.ledger is None and name != "total"):
        return unmeasured(analysis)
    return float(getattr(analysis.job, name)) * 1e3


def _goodput(name: str, analysis: Analysis) -> Reading:
    if analysis.goodput is None:
        return unmeasured(analysis)
    return float(getattr(analysis.goodput, name))


def _verdict(analysis: Analysis) -> Reading:
    kind = analysis.bottleneck.kind
    unsure = unmeasured(analysis).why if kind == "insufficient_data" else ""
    return WordValue(kind, unsure)


def _with_verdict(value: Callable[[Analysis], Reading], analysis: Analysis) -> Reading:
    """Return a figure that is known only if there is a verdict."""
    is_unknown = analysis.bottleneck.kind == "insufficient_data"
    return unmeasured(analysis) if is_unknown else value(analysis)


def _why(analysis: Analysis) -> Reading:
    reasons = analysis.bottleneck.why
    if not reasons and not was_counted(analysis.run):
        return Missing("the logs have no counters of the machine")
    return WordValue(reasons[0].code if reasons else "none")


def _step_cause(code: StepCauseCode, analysis: Analysis) -> Reading:
    """Return the share of the step that a cause costs, 0 if too little to be named."""
    if analysis.steady is None:
        return unmeasured(analysis)
    if not analysis.run.notes_cause(code):
        return Missing(f"the recorder noted no {code.replace('_', ' ')}")
    causes = analysis.step_causes.causes
    return next((cause.share for cause in causes if cause.code == code), 0.0)


def _findings(severity: str | None, analysis: Analysis) -> int:
    return sum(severity in (None, finding.severity) for finding in analysis.findings)


def _exposed(analysis: Analysis) -> Reading:
    communication = analysis.communication
    if communication is None:
        return Missing("communication was not measured")
    return communication.exposed_ms


def _bandwidth(analysis: Analysis) -> Reading:
    communication = analysis.communication
    value = None if communication is None else communication.bus_bandwidth
    if value is None:
        return Missing("communication was not measured")
    return Mean(value, None)


def _epoch(analysis: Analysis) -> Reading:
    known = analysis.epoch_times
    if known is None or known.mean_s is None:
        return Missing("only logs that know epochs and no steps have it")
    return Mean(known.mean_s * 1e3, None)


def _size(analysis: Analysis) -> Reading:
    if analysis.epoch_times is not None and analysis.run.fact("size") is None:
        return Missing("logs of epochs do not contain the number of ranks")
    return analysis.run.size


def _named_stragglers(analysis: Analysis) -> int:
    """Count slow ranks and hosts; lateness that varies from step to step names none."""
    return sum(bool(straggler.ranks) for straggler in analysis.stragglers)


def _changes(analysis: Analysis) -> Reading:
    return unmeasured(analysis) if analysis.steady is None else len(analysis.changes)


def _word(value: Callable[[Analysis], Reading], choices: Sequence[str]) -> NamedFigure:
    return NamedFigure(Kind.TEXT, partial(_with_verdict, value), tuple(choices))


_FIGURES: dict[str, NamedFigure] = {
    "samples_per_second": NamedFigure(Kind.RATE, _throughput),
    "tokens_per_second": NamedFigure(Kind.RATE, _tokens),
    "gap": NamedFigure(Kind.SHARE, _gap, of_baseline=False),
    "step_ms.mean": NamedFigure(Kind.MS, partial(_step, "mean")),
    **{
        f"step_ms.{name}": NamedFigure(Kind.MS, partial(_step, name), without=_PERCENTILES)
        for name in ("p50", "p95", "p99")
    },
    "step_ms.rise": NamedFigure(Kind.SHARE, _rise, of_baseline=False),
    **ENTRY_FIGURES,
    "bottleneck": NamedFigure(Kind.TEXT, _verdict, VERDICTS),
    "bottleneck.fault": _word(
        lambda analysis: WordValue("yes" if analysis.bottleneck.fault else "no"), ("yes", "no")
    ),
    "bottleneck.cause": _word(
        lambda analysis: WordValue(analysis.bottleneck.cause or "none"), (*VERDICT_CAUSES, "none")
    ),
    "bottleneck.why": _word(
        _why,
        (
            *STEP_CAUSES,
            *(symptom.code for symptom in (*SYMPTOMS, CPU_TIME)),
            *LOADER_CODES,
            "none",
        ),
    ),
    **{
        f"causes.{code}.share": NamedFigure(Kind.SHARE, partial(_step_cause, code))
        for code in STEP_CAUSES
    },
    **{
        name: NamedFigure(kind, partial(_progress, value), of_baseline=False)
        for name, (kind, value) in PROGRESS_FIGURES.items()
    },
    "findings": NamedFigure(Kind.NUMBER, partial(_findings, None)),
    **{
        f"findings.{severity}": NamedFigure(Kind.NUMBER, partial(_findings, severity))
        for severity in get_args(Severity)
    },
    "stragglers": NamedFigure(Kind.NUMBER, partial(_with_verdict, _named_stragglers)),
    "changes": NamedFigure(Kind.NUMBER, _changes),
    "warnings": NamedFigure(Kind.NUMBER, lambda analysis: len(analysis.warnings)),
    "size": NamedFigure(Kind.NUMBER, _size),
    "epochs": NamedFigure(Kind.NUMBER, lambda analysis: analysis.epochs),
    "steps.total": NamedFigure(Kind.NUMBER, lambda analysis: analysis.coverage.steps),
    "steps.unused": NamedFigure(Kind.NUMBER, lambda analysis: analysis.coverage.unused),
    "status": NamedFigure(
        Kind.TEXT, lambda analysis: WordValue(analysis.run.status), ("completed", "open")
    ),
    **{
        f"job_s.{field.name}": NamedFigure(Kind.S, partial(_job, field.name))
        for field in fields(JobTime)
    },
    "goodput": NamedFigure(Kind.SHARE, partial(_goodput, "fraction")),
    "goodput.compute": NamedFigure(Kind.SHARE, partial(_goodput, "compute_fraction")),
    "communication.exposed_ms": NamedFigure(Kind.MS, _exposed),
    "communication.bus_bandwidth_gb_s": NamedFigure(Kind.NUMBER, _bandwidth, without=_ALONE),
    "epoch_times.mean_s": NamedFigure(Kind.S, _epoch, without=_ALONE),
}

# -- Figures of what-if gains, by fix -------------------------------------------------------------


#: The figures of a fix: kind, reader, and the value if no rank is slow.
GAINS: Mapping[str, tuple[Kind, Callable[[WhatIf], Mean], float]] = {
    "speedup": (Kind.NUMBER, lambda gain: Mean(gain.speedup, gain.ci95), 1.0),
    "saved_ms": (Kind.MS, lambda gain: gain.saved_ms, 0.0),
}


def gain_figure(fix: str, name: str) -> NamedFigure | None:
    """Return the figure ``what_if.FIX.NAME``; None if there is none."""
    with suppress(ValueError):
        if name in GAINS:
            value = partial(_gain, Fix.parse(fix), name)
            return NamedFigure(GAINS[name][0], value, of_baseline=False)
    return None


def _gain(fix: Fix, name: str, analysis: Analysis) -> Reading:
    kind, value_of, nothing = GAINS[name]
    if analysis.bottleneck.kind == "insufficient_data":
        return unmeasured(analysis)
    gain = next((gain for gain in analysis.what_if if gain.fix == fix), None)
    if gain is not None:
        return value_of(gain)
    why = _not_offered(fix, analysis)
    # No such rank is slow, so there is nothing to fix.
    return Missing(why) if why else Quantity(nothing, kind, None, "no rank was found slow")


def _not_offered(fix: Fix, analysis: Analysis) -> str:
    """Return why a fix has no gain; empty if there is nothing to fix."""
    kind, value, run = fix.kind, fix.value, analysis.run
    if kind in ("bandwidth", "ranks"):
        return f"it was not computed; add --what-if {fix}"
    if kind == "compute" and analysis.predicted_from == "run":
        return "it needs a baseline of the same job (--baseline)"
    if kind == "rank" and value not in map(str, run.ranks):
        return f"the run has no log of rank {value}"
    if kind == "host" and value not in run.hosts:
        return f"the run has no log of {listed('host', [value])}"
    return "" if kind in ("imbalance", "rank", "host") else "it was not measured"
