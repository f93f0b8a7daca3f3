"""Figures of what-if gains, by fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import listed
from stallscope.query.kinds import Kind

from .found import Found, NamedFigure, number, unmeasured
from .quantities import Missing, Quantity, estimate


def _saved(gain: WhatIf, source: str) -> Quantity:
    return estimate(gain.saved_ms, Kind.MS, source)


def _speedup(gain: WhatIf, source: str) -> Quantity:
    return estimate(Mean(gain.speedup, gain.ci95), Kind.NUMBER, source)


#: The figures of a fix: kind, reader, and the value if no rank is slow.
GAINS: Mapping[str, tuple[Kind, Callable[[WhatIf, str], Quantity], float]] = {
    "speedup": (Kind.NUMBER, _speedup, 1.0),
    "saved_ms": (Kind.MS, _saved, 0.0),
}
_STAGE_FIXES = ("input", "compute", "other", "allreduce", "imbalance", "variation", "all")


def gain_figure(fix: str, name: str) -> NamedFigure | None:
    """Return the figure ``what_if.FIX.NAME``; None if there is none."""
    kind, _, value = fix.partition(":")
    known = fix in _STAGE_FIXES or (kind in ("rank", "host", "bandwidth", "ranks") and value)
    if name not in GAINS or not known:
        return None
    return NamedFigure(GAINS[name][0], _gain(fix, name), of_baseline=False)


def _gain(fix: str, name: str) -> Callable[[Analysis, str], Found]:
    kind, value_of, nothing = GAINS[name]

    def figure_value(analysis: Analysis, source: str) -> Found:
        if analysis.bottleneck.kind == "insufficient_data":
            return unmeasured(analysis)
        gain = next((gain for gain in analysis.what_if if gain.fix == fix), None)
        if gain is not None:
            return value_of(gain, source)
        why = _not_offered(fix, analysis)
        # No such rank is slow, so there is nothing to fix.
        return Missing(why) if why else number(nothing, kind, source, "no rank was found slow")

    return figure_value


def _not_offered(fix: str, analysis: Analysis) -> str:
    """Return why a fix has no gain; empty if there is nothing to fix."""
    kind, _, value = fix.partition(":")
    run = analysis.run
    if kind in ("bandwidth", "ranks"):
        return f"it was not computed; add --what-if {fix}"
    if fix == "compute" and analysis.predicted_from == "run":
        return "it needs a baseline of the same job (--baseline)"
    if kind == "rank" and value not in map(str, run.ranks):
        return f"the run has no log of rank {value}"
    if kind == "host" and value not in run.hosts:
        return f"the run has no log of {listed('host', [value])}"
    return "" if kind in ("imbalance", "rank", "host") else "it was not measured"
