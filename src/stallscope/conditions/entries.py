"""Figures of a step's parts: times, shares of the step, and the excess over the baseline's.

Input, compute, other and allreduce are those of the ledger by cause. Imbalance is the part of them that
ranks spend waiting for a slow rank.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import LedgerEntry
from stallscope.analysis.ledger.ledger import CAUSES, Ledger
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.query.kinds import Kind

from .found import NO_BASELINE, Found, NamedFigure, unmeasured
from .quantities import Missing, estimate

_IMBALANCE = "imbalance"


def _of_entry(
    name: str, read: Callable[[LedgerEntry, Analysis, str], Found]
) -> Callable[[Analysis, str], Found]:
    def figure_value(analysis: Analysis, source: str) -> Found:
        entry = _entry(analysis, name)
        return unmeasured(analysis) if entry is None else read(entry, analysis, source)

    return figure_value


def _entry(analysis: Analysis, name: str) -> LedgerEntry | None:
    return analysis.entry(name) if name == _IMBALANCE else analysis.cause(name)


def _per_step(steady: Ledger, name: str) -> npt.NDArray[np.int64]:
    return steady.imbalance if name == _IMBALANCE else steady.by_cause(name)


def _ms(entry: LedgerEntry, _: Analysis, source: str) -> Found:
    return estimate(Mean(entry.ms, entry.ci95_ms), Kind.MS, source)


def _share(entry: LedgerEntry, analysis: Analysis, source: str) -> Found:
    return estimate(_over_the_step(entry.name, entry.share, analysis), Kind.SHARE, source)


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


def _excess(entry: LedgerEntry, analysis: Analysis, source: str) -> Found:
    step, base = analysis.step, analysis.baseline
    if base is None:
        return Missing(NO_BASELINE)
    base_entry = _entry(base, entry.name)
    if entry.excess_ms is None or step is None or base_entry is None:
        return Missing("the stages of the baseline's steps were not measured")
    excess = _over_the_step(entry.name, entry.excess_ms / step.mean, analysis)
    # The run's own steps do not contain the baseline's uncertainty.
    usual = Mean(base_entry.ms, base_entry.ci95_ms).scaled(1 / step.mean)
    return estimate(excess.minus(Mean(0.0, _around_zero(usual))), Kind.SHARE, source)


def _around_zero(mean: Mean) -> tuple[float, float] | None:
    ends = mean.ci95
    return None if ends is None else (ends[0] - mean.value, ends[1] - mean.value)


def _excess_ms(entry: LedgerEntry, analysis: Analysis, source: str) -> Found:
    if analysis.baseline is None:
        return Missing(NO_BASELINE)
    if entry.excess_ms is None:
        return Missing("the stages of the baseline's steps were not measured")
    return estimate(Mean(entry.excess_ms, entry.excess_ci95_ms), Kind.MS, source)


def _baseline_ms(entry: LedgerEntry, analysis: Analysis, _: str) -> Found:
    base = analysis.baseline
    if base is None:
        return Missing(NO_BASELINE)
    base_entry = _entry(base, entry.name)
    return unmeasured(base) if base_entry is None else _ms(base_entry, base, "baseline")


_KINDS = {
    "ms": (Kind.MS, _ms, True),
    "share": (Kind.SHARE, _share, True),
    "excess": (Kind.SHARE, _excess, False),
    "excess_ms": (Kind.MS, _excess_ms, False),
    "baseline_ms": (Kind.MS, _baseline_ms, False),
}

#: By name: ``input.excess``.
ENTRY_FIGURES = {
    f"{entry}.{name}": NamedFigure(kind, _of_entry(entry, value), of_baseline=of_baseline)
    for entry in (*CAUSES, _IMBALANCE)
    for name, (kind, value, of_baseline) in _KINDS.items()
}
