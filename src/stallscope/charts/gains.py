"""What each fix saves of a step, as bars."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.arrays.stats import Mean
from stallscope.text.gains import GAINS_DO_NOT_ADD_UP, Gain, gains, gains_from, saved, speedup

# The colour of a fix, unless its name is that of a stage.
_COLOURS = {"input": "input", "compute": "compute", "other": "other", "allreduce": "allreduce"}
_ALL, _WAITING = "total", "wait"


@dataclass(frozen=True)
class GainBar:
    """A fix and the milliseconds that it saves per step; ``name`` is a key of the palette."""

    title: str
    name: str
    saved_ms: Mean
    speedup: str
    saves: str
    #: Nobody reaches a bound in full.
    bound: bool


@dataclass(frozen=True)
class GainBars:
    """A bar for each fix, with the interval of what it saves."""

    title: str
    sentence: str
    unit: str
    bars: tuple[GainBar, ...]


def gains_chart(analysis: Analysis) -> GainBars | None:
    """Chart what each fix saves per step. None if none saves anything."""
    found = [one for one in gains(analysis) if one.what_if.saved_ms.value > 0]
    if not found:
        return None
    sentence = f"Time saved per step. {gains_from(analysis)} {GAINS_DO_NOT_ADD_UP}"
    return GainBars("Potential gains", sentence, "ms", tuple(map(_bar, found)))


def _bar(gain: Gain) -> GainBar:
    fix = gain.what_if
    name = _ALL if fix.fix == "all" else _COLOURS.get(fix.fix, _WAITING)
    return GainBar(gain.title, name, fix.saved_ms, speedup(fix), f"saves {saved(fix)}", fix.bound)
