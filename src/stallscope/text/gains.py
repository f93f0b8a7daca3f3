"""Sort potential gains for people, each named once."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import WhatIf

from .fixes import fix_title

# Smaller gains round to nothing.
_WORTH_MENTIONING = 1.005
# These are answers to the user's questions.
_ASKED = ("bandwidth:", "ranks:")


@dataclass(frozen=True)
class Gain:
    """What a fix gains, with its title for people."""

    title: str
    what_if: WhatIf


def gains(analysis: Analysis) -> list[Gain]:
    """Return the gains, faults first and the largest first; none where the logs cannot tell."""
    if analysis.bottleneck.kind == "insufficient_data":
        return []
    fixes = [one for one in analysis.what_if if not one.fix.startswith(_ASKED)]
    slow = [one.fix for one in fixes if one.fix.startswith(("rank:", "host:"))]
    in_turn = any(one.counts_as_imbalance and not one.ranks for one in analysis.stragglers)
    # With a single slow rank, fixing it and fixing all slow ranks are the same.
    alone = len(slow) == 1 and not in_turn
    shown = [one for one in fixes if not alone or one.fix not in slow]
    best = max((one.speedup for one in shown if _order(one)[0] == 0), default=1.0)
    shown = [one for one in shown if one.fix != "all" or one.speedup > best * _WORTH_MENTIONING]
    shown.sort(key=_order)
    return [Gain(fix_title(one.fix, slow, in_turn), one) for one in shown]


def _order(one: WhatIf) -> tuple[int, float]:
    """Sort fixes of faults first, then all of them together, then parts that every run has."""
    group = {"all": 1, "allreduce": 2, "variation": 2}.get(one.fix, 0)
    return group, -one.speedup


def answers(analysis: Analysis) -> list[Gain]:
    """Return the answers to the user's questions: another bandwidth or number of ranks."""
    asked = [one for one in analysis.what_if if one.fix.startswith(_ASKED)]
    return [
        Gain(fix_title(one.fix, ()) + (" (extrapolated)" if one.extrapolated else ""), one)
        for one in asked
    ]


def main_gain(analysis: Analysis) -> Gain | None:
    """Return the gain of fixing the bottleneck; None if the verdict names nothing to fix."""
    bottleneck = analysis.bottleneck
    if bottleneck.cause == "cores":
        return None
    varies = bottleneck.kind == "imbalance" and not bottleneck.fault
    fix = "variation" if varies else bottleneck.kind
    main = next((gain for gain in gains(analysis) if gain.what_if.fix == fix), None)
    return None if main is None or main.what_if.saved_ms.value <= 0 else main


def other_gains(analysis: Analysis) -> list[Gain]:
    """Return the other gains that are worth mentioning, the largest first."""
    main = main_gain(analysis)
    return [
        gain
        for gain in gains(analysis)
        if gain != main and gain.what_if.speedup >= _WORTH_MENTIONING
    ]
