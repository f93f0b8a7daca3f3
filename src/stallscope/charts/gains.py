"""Chart the time that each fix saves per step."""

from __future__ import annotations

from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.arrays.stats import Mean
from stallscope.text.gains import Gain, gains_note, gains_worth_mentioning, saved, speedup

# The colours of fixes that are not causes.
_ALL, _WAITING = "total", "wait"


@dataclass(frozen=True)
class GainBar:
    """A fix and the milliseconds that it saves per step; ``name`` is a key of the palette."""

    title: str
    name: str
    saved_ms: Mean
    speedup: str
    saves: str
    #: Whether the gain is an upper bound.
    bound: bool


@dataclass(frozen=True)
class GainBars:
    """A bar for each fix, with the interval of the saved time."""

    title: str
    sentence: str
    unit: str
    bars: tuple[GainBar, ...]


def gains_chart(analysis: Analysis) -> GainBars | None:
    """Chart the time that each fix saves per step. None if no fix saves anything."""
    gains = gains_worth_mentioning(analysis)
    if not gains:
        return None
    sentence = f"Time saved per step. {gains_note(analysis)}"
    return GainBars("Potential gains", sentence, "ms", tuple(map(_bar, gains)))


def _bar(gain: Gain) -> GainBar:
    fix = gain.what_if
    name = _ALL if fix.fix == "all" else fix.fix if fix.fix in CAUSES else _WAITING
    return GainBar(gain.title, name, fix.saved_ms, speedup(fix), f"saves {saved(fix)}", fix.bound)
