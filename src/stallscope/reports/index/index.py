"""The runs of an index, and their figures as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import (
    Scale,
    amount,
    scale_for,
)

from .line import Line, by_time_lost

#: The name of the files of an index, which no run may have.
STEM = "index"
_HOURS = "h"


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
