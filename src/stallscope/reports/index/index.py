"""The runs of an index, and their figures as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Scale,
    amount,
    between,
    plus_minus,
    rate,
    ratio,
    scale_for,
)
from stallscope.text.gains import NO_GAIN

from ..document import NOTHING
from .line import Line, by_time_lost

#: The name of the files of an index, which no run may have.
STEM = "index"
_HOURS = "h"
# Smaller gains round to nothing.
_WORTH_MENTIONING = 1.005
#: Below the table of runs.
NOTE = (
    "Time lost: what the fix saves per step × steps × ranks, as time of one rank. "
    "The fix is the verdict's, or the one that gains most if the verdict names none. "
    "≤ marks a bound: allreduce as if it cost nothing, or a run without a fault."
)


@dataclass(frozen=True)
class Index:
    """Runs, the reasons why others have no report, and the files to link to."""

    lines: Sequence[Line]
    #: A sentence each.
    failed: Sequence[str] = ()
    files: frozenset[str] = field(default=frozenset())

    @property
    def ranked(self) -> list[Line]:
        return by_time_lost(list(self.lines))

    def page(self, line: Line, suffix: str) -> str | None:
        """Return the file about a run with that suffix; None if there is none."""
        name = f"{line.stem}{suffix}"
        return name if name in self.files else None

    @property
    def title(self) -> str:
        return f"Reports on {counted(len(self.lines), 'run')}"

    @property
    def headline(self) -> str:
        """Say how much time the fixes would have saved, over the runs for which it is known."""
        known = [line.lost_h for line in self.lines if line.lost_h is not None]
        if not known:
            return "Of none of these runs is it known what could be won back"
        worst = self.ranked[0]
        total = sum(known)
        if not total:
            return "Nothing could be won back in these runs"
        of = counted(len(self.lines), "run")
        of = of if len(known) == len(self.lines) else f"{len(known)} of {of}"
        most = "Up to " if any(line.bound for line in self.lines) else ""
        in_worst = (
            f", {amount(worst.lost_h, _HOURS)} of it in {worst.name}" if len(known) > 1 else ""
        )
        return f"{most}{amount(total, _HOURS)} of rank time could be won back in {of}{in_worst}"

    @property
    def scale(self) -> Scale:
        """Return the unit of all lost times, chosen for the largest."""
        return scale_for(max((line.lost_h or 0.0 for line in self.lines), default=0.0), _HOURS)


def lost(line: Line, scale: Scale) -> str:
    """Return the lost time: 12.3 ± 0.4 h, or that it was not measured."""
    if line.lost_h is None:
        return NOT_MEASURED
    most = "≤ " if line.bound else ""
    low, high = line.lost_ci95_h or (None, None)
    ends = None if low is None or high is None else (low * scale.factor, high * scale.factor)
    return f"{most}{plus_minus(line.lost_h * scale.factor, ends)} {scale.unit}"


def gain(line: Line) -> str:
    """Return the gain of the fix: 1.23× (1.22–1.24×), or at most 1.23× if it is a bound."""
    if line.speedup is None:
        return NOTHING
    if line.speedup < _WORTH_MENTIONING:
        return NO_GAIN
    most = "at most " if line.bound else ""
    gained = f"{most}{ratio(line.speedup, line.speedup_ci95)}×"
    if line.speedup_ci95 is None:
        return gained
    return f"{gained} ({between(*line.speedup_ci95)}×)"


def throughput(line: Line) -> str:
    """Return samples per second."""
    return rate(line.samples_per_second)


def ranks(line: Line) -> str:
    """Return the number of ranks, and whether the data was synthetic."""
    return f"{line.ranks:,}" + (", synthetic" if line.synthetic else "")


def shares(line: Line) -> dict[str, float]:
    """Return the fractions of the step by cause."""
    whole = sum(line.by_cause_ms.values())
    return {name: ms / whole for name, ms in line.by_cause_ms.items()} if whole else {}
