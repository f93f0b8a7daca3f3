"""Figures for conditions, by their names in the JSON report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import get_args

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.findings.finding import Severity
from stallscope.analysis.gains.bottleneck import Bottleneck
from stallscope.analysis.ledger.job_time import JobTime
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.analysis.ledger.rise import REFERENCE_STEPS, find_rise
from stallscope.analysis.why.counted import was_counted
from stallscope.analysis.why.symptoms import CPU_TIME, SYMPTOMS
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.query import find
from stallscope.query.kinds import Kind
from stallscope.query.names import VERDICT_CAUSES, VERDICTS

from .entries import ENTRY_FIGURES
from .found import NO_BASELINE, Found, NamedFigure, WordValue, count, number, unmeasured
from .gains import GAINS, gain_figure
from .quantities import Missing, Quantity, estimate
from .stopping import PROGRESS_FIGURES

_PERCENTILES = "percentiles have none"
_ALONE = "it is known without one"


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


def read(path: tuple[str, ...], of_baseline: bool, analysis: Analysis) -> Found:
    """Read a figure of this run or its baseline; its name must be known to ``figure``."""
    named_figure = figure(path)
    assert named_figure is not None
    if not of_baseline:
        return named_figure.read(analysis, "run")
    base = analysis.baseline
    if base is None:
        return Missing(NO_BASELINE)
    if named_figure.kind is Kind.RATE and base.run.size != analysis.run.size:
        return Missing(
            f"the baseline ran on {counted(base.run.size, 'rank')} and this run on {analysis.run.size:,}"
        )
    return named_figure.read(base, "baseline")


def _throughput(analysis: Analysis, source: str) -> Found:
    rate, step = analysis.samples_per_second, analysis.step
    if rate is None:
        return Missing("it is not known how many samples a step has, or how long it takes")
    if step is None or step.ci95 is None or min(step.ci95) <= 0:
        return estimate(Mean(rate, None), Kind.RATE, source)
    low, high = (rate * step.mean / end for end in reversed(step.ci95))
    return estimate(Mean(rate, (low, high)), Kind.RATE, source)


def _step(name: str) -> Callable[[Analysis, str], Found]:
    def figure_value(analysis: Analysis, source: str) -> Found:
        step = analysis.step
        if step is None:
            return Missing("no step could be timed")
        if name == "mean":
            return estimate(Mean(step.mean, step.ci95), Kind.MS, source)
        return number(getattr(step, name), Kind.MS, source, _PERCENTILES)

    return figure_value


def _rise(analysis: Analysis, _: str) -> Found:
    if analysis.steady is None:
        return unmeasured(analysis)
    times = analysis.steady.total.astype(np.float64)
    if len(times) < REFERENCE_STEPS:
        return Missing(
            f"it takes {REFERENCE_STEPS} steady steps to tell how long steps usually take"
        )
    rise = find_rise(times)
    return Quantity(0.0 if rise is None else rise.by, Kind.SHARE)


def _gap(analysis: Analysis, source: str) -> Found:
    if analysis.baseline is None:
        return Missing(NO_BASELINE)
    if analysis.gap is None:
        return Missing("throughputs of the run and its baseline cannot be compared")
    return estimate(Mean(analysis.gap, analysis.gap_ci95), Kind.SHARE, source)


def _job(name: str) -> Callable[[Analysis, str], Found]:
    def figure_value(analysis: Analysis, _: str) -> Found:
        if analysis.epoch_times is not None or (analysis.ledger is None and name != "total"):
            return unmeasured(analysis)
        return Quantity(getattr(analysis.job, name) * 1e3, Kind.S)

    return figure_value


def _goodput(name: str) -> Callable[[Analysis, str], Found]:
    def figure_value(analysis: Analysis, _: str) -> Found:
        if analysis.goodput is None:
            return unmeasured(analysis)
        return Quantity(getattr(analysis.goodput, name), Kind.SHARE)

    return figure_value


def _verdict(analysis: Analysis, _: str) -> Found:
    kind = analysis.bottleneck.kind
    unsure = unmeasured(analysis).why if kind == "insufficient_data" else ""
    return WordValue(kind, unsure)


def _of_verdict(word: Callable[[Bottleneck], str]) -> Callable[[Analysis, str], Found]:
    def figure_value(analysis: Analysis, _: str) -> Found:
        if analysis.bottleneck.kind == "insufficient_data":
            return unmeasured(analysis)
        return WordValue(word(analysis.bottleneck))

    return figure_value


def _fault(verdict: Bottleneck) -> str:
    return "yes" if verdict.fault else "no"


def _cause(verdict: Bottleneck) -> str:
    return "none" if verdict.cause is None else verdict.cause


def _why(analysis: Analysis, _: str) -> Found:
    reasons = analysis.bottleneck.why
    if analysis.bottleneck.kind == "insufficient_data":
        return unmeasured(analysis)
    if not reasons and not was_counted(analysis.run):
        return Missing("the logs have no counters of the machine")
    return WordValue(reasons[0].code if reasons else "none")


def _findings(severity: str | None) -> Callable[[Analysis, str], Found]:
    return lambda analysis, _: count(
        sum(severity in (None, finding.severity) for finding in analysis.findings)
    )


def _exposed(analysis: Analysis, source: str) -> Found:
    communication = analysis.communication
    if communication is None:
        return Missing("communication was not measured")
    return estimate(communication.exposed_ms, Kind.MS, source)


def _bandwidth(analysis: Analysis, source: str) -> Found:
    communication = analysis.communication
    value = None if communication is None else communication.bus_bandwidth
    if value is None:
        return Missing("communication was not measured")
    return number(value, Kind.NUMBER, source, _ALONE)


def _epoch(analysis: Analysis, source: str) -> Found:
    known = analysis.epoch_times
    if known is None or known.mean_s is None:
        return Missing("only logs that know epochs and no steps have it")
    return number(known.mean_s * 1e3, Kind.S, source, _ALONE)


def _size(analysis: Analysis, _: str) -> Found:
    if analysis.epoch_times is not None and analysis.run.fact("size") is None:
        return Missing("logs of epochs do not contain the number of ranks")
    return count(analysis.run.size)


def _stragglers(analysis: Analysis, _: str) -> Found:
    if analysis.bottleneck.kind == "insufficient_data":
        return unmeasured(analysis)
    return count(len(analysis.stragglers))


def _changes(analysis: Analysis, _: str) -> Found:
    return unmeasured(analysis) if analysis.steady is None else count(len(analysis.changes))


_CAUSES = (*VERDICT_CAUSES, "none")
_REASONS = (*(symptom.code for symptom in (*SYMPTOMS, CPU_TIME)), "none")
_FIGURES: dict[str, NamedFigure] = {
    "samples_per_second": NamedFigure(Kind.RATE, _throughput),
    "gap": NamedFigure(Kind.SHARE, _gap, of_baseline=False),
    **{
        f"step_ms.{name}": NamedFigure(Kind.MS, _step(name))
        for name in ("mean", "p50", "p95", "p99")
    },
    "step_ms.rise": NamedFigure(Kind.SHARE, _rise, of_baseline=False),
    **ENTRY_FIGURES,
    "bottleneck": NamedFigure(Kind.TEXT, _verdict, VERDICTS),
    "bottleneck.fault": NamedFigure(Kind.TEXT, _of_verdict(_fault), ("yes", "no")),
    "bottleneck.cause": NamedFigure(Kind.TEXT, _of_verdict(_cause), _CAUSES),
    "bottleneck.why": NamedFigure(Kind.TEXT, _why, _REASONS),
    **PROGRESS_FIGURES,
    "findings": NamedFigure(Kind.NUMBER, _findings(None)),
    **{
        f"findings.{severity}": NamedFigure(Kind.NUMBER, _findings(severity))
        for severity in get_args(Severity)
    },
    "stragglers": NamedFigure(Kind.NUMBER, _stragglers),
    "changes": NamedFigure(Kind.NUMBER, _changes),
    "warnings": NamedFigure(Kind.NUMBER, lambda analysis, _: count(len(analysis.warnings))),
    "size": NamedFigure(Kind.NUMBER, _size),
    "epochs": NamedFigure(Kind.NUMBER, lambda analysis, _: count(analysis.epochs)),
    "steps.total": NamedFigure(Kind.NUMBER, lambda analysis, _: count(analysis.coverage.steps)),
    "steps.unused": NamedFigure(Kind.NUMBER, lambda analysis, _: count(analysis.coverage.unused)),
    "status": NamedFigure(
        Kind.TEXT, lambda analysis, _: WordValue(analysis.run.status), ("completed", "open")
    ),
    **{f"job_s.{field.name}": NamedFigure(Kind.S, _job(field.name)) for field in fields(JobTime)},
    "goodput": NamedFigure(Kind.SHARE, _goodput("fraction")),
    "goodput.compute": NamedFigure(Kind.SHARE, _goodput("compute_fraction")),
    "communication.exposed_ms": NamedFigure(Kind.MS, _exposed),
    "communication.bus_bandwidth_gb_s": NamedFigure(Kind.NUMBER, _bandwidth),
    "epoch_times.mean_s": NamedFigure(Kind.S, _epoch),
}
