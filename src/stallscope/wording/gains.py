"""What fixing gains, as people want to see it: the most first, nothing twice."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.analysis.what_if import WhatIf

from .verdicts import fix_title

# Smaller gains round to nothing.
_WORTH_MENTIONING = 1.005


@dataclass(frozen=True)
class Gain:
    """What a fix gains, with its title for people."""

    title: str
    what_if: WhatIf


def gains(analysis: Analysis) -> list[Gain]:
    """What fixing gains, the most first; nothing where the logs cannot tell."""
    if analysis.bottleneck.kind == "insufficient_data":
        return []
    slow = [one.fix for one in analysis.what_if if one.fix.startswith(("rank:", "host:"))]
    # Healing all that are slow is healing the one, where there is one.
    shown = [one for one in analysis.what_if if len(slow) != 1 or one.fix not in slow]
    shown.sort(key=lambda one: one.speedup, reverse=True)
    return [Gain(fix_title(one.fix, slow), one) for one in shown]


def main_gain(analysis: Analysis) -> Gain | None:
    """What fixing the bottleneck gains; None where the verdict names none that can be fixed."""
    kind = analysis.bottleneck.kind
    return next((gain for gain in gains(analysis) if gain.what_if.fix == kind), None)


def other_gains(analysis: Analysis) -> list[Gain]:
    """What else gains enough to be mentioned, the most first."""
    main = main_gain(analysis)
    return [
        gain
        for gain in gains(analysis)
        if gain != main and gain.what_if.speedup >= _WORTH_MENTIONING
    ]
